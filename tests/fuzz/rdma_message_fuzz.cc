// SPDX-License-Identifier: Apache-2.0
//
// Messages of an rdma peer on its link, and descriptions of a region. The first byte selects the
// kind.
#include <span>

#include "bytes.h"
#include "transport/rdma/message.h"

namespace {

using namespace mc::transport;        // NOLINT: a program's only file
using namespace mc::transport::rdma;  // NOLINT
using mc::fuzz::require;

void check_message(std::span<const std::byte> bytes, bool from_asker) {
  if (bytes.size() < kControlHeaderBytes) return;
  const auto header = decode_control_header(bytes.first(kControlHeaderBytes), kProtocol);
  if (!header) return;
  require(header->body_bytes <= kMaxBodyBytes);
  const auto body = bytes.subspan(kControlHeaderBytes);
  const auto message = decode_body(*header, body, from_asker);
  if (!message) return;
  require(body.size() == header->body_bytes);
  require(!decode_body(*header, body, !from_asker));
  switch (message->kind) {
    case MessageKind::kOpen:
      require(message->open.lane < kMaxPairs && message->open.device < kMaxDevices);
      require(message->open.mtu >= IBV_MTU_256 && message->open.mtu <= IBV_MTU_4096);
      break;
    case MessageKind::kOpened:
      require(message->opened.lane < kMaxPairs && message->opened.outcome <= kLastOutcome);
      break;
    case MessageKind::kDevices:
      require(message->devices.size() <= kMaxDevices);
      for (const DeviceEntry& device : message->devices) require(device.slot < kMaxDevices);
      break;
    case MessageKind::kDescription:
      require(message->text.size() + sizeof(RegionBody) == body.size());
      break;
    default:
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 3 < 2) {
    check_message(bytes, data[0] % 3 == 0);
    return 0;
  }
  const auto descriptor = RegionDescriptor::decode(kDescriptorFormat, bytes);
  if (!descriptor) return 0;
  require(descriptor->devices.size() <= kMaxDevices && descriptor->size_bytes > 0);
  require(descriptor->covers.size() == descriptor->chunk_count());
  for (const RegionKeys& device : descriptor->devices) {
    require(device.slot < kMaxDevices && device.keys.size() == descriptor->chunk_count());
  }
  const auto again = descriptor->encode(kDescriptorFormat);
  require(again.size() == bytes.size() && std::memcmp(again.data(), bytes.data(), size - 1) == 0);
  return 0;
}
