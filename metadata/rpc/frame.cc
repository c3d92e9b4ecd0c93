// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/frame.h"

#include "libmc/auth/little_endian.h"

namespace mc::metadata::rpc {

FrameHeadBytes encode_frame(const FrameHead& head) {
  FrameHeadBytes bytes;
  auth::store(bytes.data(), 0, head.body_bytes);
  auth::store(bytes.data(), 4, static_cast<std::uint8_t>(head.kind));
  auth::store(bytes.data(), 5, head.method);
  auth::store(bytes.data(), 6, head.status);
  auth::store(bytes.data(), 8, head.id);
  auth::store(bytes.data(), 12, head.timeout_ms);
  auth::store(bytes.data(), 16, head.epoch);
  return bytes;
}

Result<FrameHead> decode_frame(std::string_view bytes, LimitsOf limits_of) {
  FrameHead head;
  head.body_bytes = auth::load<std::uint32_t>(bytes.data(), 0);
  const auto kind = auth::load<std::uint8_t>(bytes.data(), 4);
  head.method = auth::load<std::uint8_t>(bytes.data(), 5);
  head.status = auth::load<std::uint16_t>(bytes.data(), 6);
  head.id = auth::load<std::uint32_t>(bytes.data(), 8);
  head.timeout_ms = auth::load<std::uint32_t>(bytes.data(), 12);
  head.epoch = auth::load<std::uint64_t>(bytes.data(), 16);
  if (kind < 1 || kind > static_cast<std::uint8_t>(FrameKind::kPong)) {
    return fail(MC_INVALID_ARGUMENT, "a frame of unknown kind " + std::to_string(kind));
  }
  head.kind = static_cast<FrameKind>(kind);
  std::size_t limit = 0;
  if (head.kind == FrameKind::kRequest || head.kind == FrameKind::kAnswer) {
    const wire::BodyLimits limits = limits_of(head.method);
    // An answer to an unknown method is impossible. A request of an unknown method is refused after
    // at most a small body.
    if (!limits.known && head.kind == FrameKind::kAnswer) {
      return fail(MC_INVALID_ARGUMENT,
                  "an answer to unknown method " + std::to_string(head.method));
    }
    limit = head.kind == FrameKind::kRequest ? limits.request_bytes : limits.answer_bytes;
    if (!limits.known || head.status != 0) limit = wire::kMaxSmallBody;
  }
  if (head.body_bytes > limit) {
    return fail(MC_INVALID_ARGUMENT, "a frame of method " + std::to_string(head.method) +
                                         " with a body of " + std::to_string(head.body_bytes) +
                                         " bytes; at most " + std::to_string(limit) +
                                         " are allowed");
  }
  return head;
}

}  // namespace mc::metadata::rpc
