// SPDX-License-Identifier: Apache-2.0
//
// Messages of a fabric peer on its link, and descriptions of a region. The first byte selects the
// kind.
#include <span>

#include "bytes.h"
#include "transport/fabric/message.h"

namespace {

using namespace mc::transport;          // NOLINT: a program's only file
using namespace mc::transport::fabric;  // NOLINT
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
  require(message->text.empty() ||
          message->text.data() + message->text.size() == body.data() + body.size());
  require(message->kind != MessageKind::kNotify ||
          (!message->text.empty() && message->text.size() <= kMaxOneSidedNotificationBytes));
  require(message->notified.outcome <= kLastOutcome);
  require(message->domains.size() <= kMaxDomains);
  for (const DomainEntry& domain : message->domains) {
    require(domain.slot < kMaxDomains && domain.address_bytes <= kMaxAddressBytes);
    require(domain.name.back() == 0 && domain.epoch != 0);
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
  require(descriptor->devices.size() <= kMaxDomains && descriptor->size_bytes > 0);
  require(descriptor->base + descriptor->size_bytes >= descriptor->base);
  require(descriptor->covers.size() == descriptor->chunk_count());
  for (const RegionKeys& device : descriptor->devices) {
    require(device.slot < kMaxDomains && device.keys.size() == descriptor->chunk_count());
  }
  const auto again = descriptor->encode(kDescriptorFormat);
  require(again.size() == bytes.size() && std::memcmp(again.data(), bytes.data(), size - 1) == 0);
  return 0;
}
