// SPDX-License-Identifier: Apache-2.0
//
// Frames of a peer on a lane: hello, requests, answers, and the description of a region.
#include <span>

#include "bytes.h"
#include "transport/limits.h"
#include "transport/region.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/lane_hello.h"

namespace {

using namespace mc::transport;       // NOLINT: a program's only file
using namespace mc::transport::tcp;  // NOLINT
using mc::fuzz::require;

void check_request(const Frame& frame) {
  require(frame.size_bytes <= kMaxSliceBytes && frame.payload_bytes <= kMaxSliceBytes);
  switch (static_cast<FrameKind>(frame.kind)) {
    case FrameKind::kRead:
      require(frame.size_bytes > 0 && frame.payload_bytes == 0);
      break;
    case FrameKind::kWrite:
      require(frame.payload_bytes > 0);
      break;
    case FrameKind::kNotify:
      require(frame.payload_bytes > 0 && frame.payload_bytes <= kMaxNotificationBytes);
      break;
    case FrameKind::kPing:
      require(frame.payload_bytes == 0);
      break;
    case FrameKind::kCut:
      require(frame.size_bytes < kMaxLanes && frame.serial != 0 && frame.payload_bytes == 0);
      break;
    default:
      require(false);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto frame = bytes.first(std::min(size, kFrameBytes));
  std::uint64_t id = 0;
  if (size >= 16) std::memcpy(&id, data + 8, sizeof id);
  if (const auto request = decode_request(frame, id)) check_request(*request);
  require(!decode_request(frame, id + 1));
  for (const auto kind : {FrameKind::kData, FrameKind::kAnswer, FrameKind::kPong}) {
    for (const std::uint32_t payload : {0u, 1u, kMaxSliceBytes}) {
      const auto reply = decode_reply(frame, {kind, id, payload});
      if (!reply) continue;
      require(reply->outcome <= kLastOutcome);
      require(reply->payload_bytes == (reply->outcome == 0 ? payload : 0));
    }
  }
  if (const auto hello = decode_hello(bytes)) {
    require(hello->lane < kMaxLanes && hello->role <= kLastLaneRole && hello->node != 0);
  }
  if (const auto region = RegionTable::decode_descriptor(bytes)) require(*region != kNoRegion);
  return 0;
}
