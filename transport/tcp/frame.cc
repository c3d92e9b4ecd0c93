// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/frame.h"

#include <bit>
#include <cstring>

#include "transport/limits.h"

namespace mc::transport::tcp {

static_assert(std::endian::native == std::endian::little, "frames are little-endian in memory");

namespace {

std::optional<Frame> copy_frame(std::span<const std::byte> bytes) {
  Frame frame;
  if (bytes.size() != sizeof frame) return std::nullopt;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.magic != kFrameMagic || frame.reserved0 != 0 || frame.reserved != 0) {
    return std::nullopt;
  }
  return frame;
}

bool names_no_memory(const Frame& frame) {
  return frame.region == 0 && frame.generation == 0 && frame.offset_bytes == 0 &&
         frame.size_bytes == 0;
}

bool names_a_lane(const Frame& frame) {
  return frame.region == 0 && frame.generation == 0 && frame.offset_bytes == 0 &&
         frame.size_bytes < kMaxLanes && frame.serial != 0;
}

}  // namespace

std::optional<Frame> decode_request(std::span<const std::byte> bytes, std::uint64_t expected_id) {
  const auto frame = copy_frame(bytes);
  if (!frame || frame->id != expected_id || frame->outcome != 0) return std::nullopt;
  const auto kind = static_cast<FrameKind>(frame->kind);
  if (frame->serial != 0 && kind != FrameKind::kWrite && kind != FrameKind::kCut) {
    return std::nullopt;
  }
  bool good = false;
  switch (kind) {
    case FrameKind::kRead:
      good =
          frame->payload_bytes == 0 && frame->size_bytes > 0 && frame->size_bytes <= kMaxSliceBytes;
      break;
    case FrameKind::kWrite:
      good = frame->size_bytes == 0 && frame->payload_bytes > 0 &&
             frame->payload_bytes <= kMaxSliceBytes;
      break;
    case FrameKind::kNotify:
      good = names_no_memory(*frame) && frame->payload_bytes > 0 &&
             frame->payload_bytes <= kMaxNotificationBytes;
      break;
    case FrameKind::kPing:
      good = names_no_memory(*frame) && frame->payload_bytes == 0;
      break;
    case FrameKind::kCut:
      good = names_a_lane(*frame) && frame->payload_bytes == 0;
      break;
    default:
      break;
  }
  return good ? frame : std::nullopt;
}

std::optional<Frame> decode_reply(std::span<const std::byte> bytes, const Expected& expected) {
  const auto frame = copy_frame(bytes);
  if (!frame || frame->id != expected.id || frame->outcome > kLastOutcome ||
      frame->kind != static_cast<std::uint16_t>(expected.kind) || !names_no_memory(*frame) ||
      frame->left_us != 0 || frame->serial != 0) {
    return std::nullopt;
  }
  const bool done = frame->outcome == static_cast<std::uint8_t>(Outcome::kDone);
  if (frame->payload_bytes != (done ? expected.payload_bytes : 0)) return std::nullopt;
  if (expected.kind == FrameKind::kPong && !done) return std::nullopt;
  return frame;
}

}  // namespace mc::transport::tcp
