// SPDX-License-Identifier: Apache-2.0
//
// The head of every frame after the handshake. Little-endian:
//
//   0            4      5        6        8    12           16      24
//   │ body_bytes │ kind │ method │ status │ id │ timeout_ms │ epoch │ body …
//
// timeout_ms of a request: how long the sender still waits. After this time the answer may be
// MC_TIMEOUT.
// epoch of an answer or of a master's request: the epoch of the leader that sends the frame, or 0
// if no leader sends the frame. epoch of a member's Attend: the highest epoch that the member has heard.
// status of an answer: 0 means success and the body is the method's answer; otherwise the body is a
// Refusal.
// Threads: values.
// Trusts: nothing. decode_frame() checks kind, method and length before the link makes room for a
//   body.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mc/status.h"
#include "metadata/wire/method.h"

namespace mc::metadata::rpc {

inline constexpr std::size_t kFrameHeadBytes = 24;

enum class FrameKind : std::uint8_t {
  kRequest = 1,
  kAnswer = 2,
  kCancel = 3,  // the caller no longer waits for the answer to id; no body
  kPing = 4,    // answered by kPong; no body
  kPong = 5,
};

// Statuses: mc_status codes, and two more that only masters send.
inline constexpr std::uint16_t kNotLeader = 0x8001;  // the Refusal may name the leader
inline constexpr std::uint16_t kNotJoined = 0x8002;  // join first

struct FrameHead {
  std::uint32_t body_bytes = 0;
  FrameKind kind = FrameKind::kPing;
  std::uint8_t method = 0;
  std::uint16_t status = 0;
  std::uint32_t id = 0;
  std::uint32_t timeout_ms = 0;
  std::uint64_t epoch = 0;
  bool operator==(const FrameHead&) const = default;
};

using FrameHeadBytes = std::array<char, kFrameHeadBytes>;
using LimitsOf = wire::BodyLimits (*)(std::uint8_t method);

FrameHeadBytes encode_frame(const FrameHead& head);
// REQUIRES: bytes.size() >= kFrameHeadBytes. Errors: MC_INVALID_ARGUMENT.
Result<FrameHead> decode_frame(std::string_view bytes, LimitsOf limits_of);

}  // namespace mc::metadata::rpc
