// SPDX-License-Identifier: Apache-2.0
//
// The contract between agents for data over TCP: the frames of a lane after the hello.
//   A lane has an asking and a serving end. A frame is 64 bytes, little-endian, and payload follows
//   some frames. A lane answers requests in the order of ids, so the asking side knows
//   the next answer and receives the payload straight into the destination.
//
//     asking end                                     serving end
//     kRead  id region generation offset size    ─►
//                                                ◄─  kData   id payload…   or outcome, no payload
//     kWrite id region generation offset payload ─►
//                                                ◄─  kAnswer id outcome
//     kNotify id payload                         ─►
//                                                ◄─  kAnswer id outcome
//     kPing  id                                  ─►
//                                                ◄─  kPong   id
//     kCut   id lane serial                      ─►  no byte of that lane lands any more
//                                                ◄─  kAnswer id outcome
// Threads: values.
// Trusts: nothing. decode_request() and decode_reply() copy and check, and return a value or none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/outcome.h"

namespace mc::transport::tcp {

enum class FrameKind : std::uint16_t {
  kRead = 1,
  kWrite = 2,
  kNotify = 3,
  kPing = 4,
  kCut = 5,
  kData = 65,
  kAnswer = 66,
  kPong = 67,
};

inline constexpr std::uint32_t kFrameMagic = 0x3146434d;  // "MCF1"

struct Frame {
  std::uint32_t magic;
  std::uint16_t kind;
  std::uint8_t outcome;  // kData, kAnswer
  std::uint8_t reserved0;
  std::uint64_t id;      // per lane, from 1; each higher than the id before
  std::uint64_t region;  // kRead, kWrite
  std::uint64_t generation;
  std::uint64_t offset_bytes;
  std::uint32_t size_bytes;     // kRead: wanted bytes; kCut: index of the lane
  std::uint32_t payload_bytes;  // after this frame
  std::uint32_t left_us;        // requests: until the deadline, saturating
  // kWrite: serial of the lane that carries the frame; 0 if the lane is never cut. kCut: the lane
  // with this serial, and the lane's earlier serials. Each new lane of a transport has a higher
  // serial.
  std::uint32_t serial;
  std::uint64_t reserved;
};
inline constexpr std::size_t kFrameBytes = 64;
static_assert(sizeof(Frame) == kFrameBytes);
static_assert(offsetof(Frame, id) == 8 && offsetof(Frame, region) == 16);
static_assert(offsetof(Frame, offset_bytes) == 32 && offsetof(Frame, size_bytes) == 40);
static_assert(offsetof(Frame, left_us) == 48 && offsetof(Frame, serial) == 52);

// A frame with the magic set.
constexpr Frame make_frame(FrameKind kind, std::uint64_t id) {
  Frame frame{};
  frame.magic = kFrameMagic;
  frame.kind = static_cast<std::uint16_t>(kind);
  frame.id = id;
  return frame;
}

// Decodes a request. None: the peer breaks the contract, and the lane must be cut. REQUIRES:
// bytes.size() == kFrameBytes.
std::optional<Frame> decode_request(std::span<const std::byte> bytes, std::uint64_t expected_id);

// The expected answer to the oldest open request.
struct Expected {
  FrameKind kind = FrameKind::kPong;
  std::uint64_t id = 0;
  std::uint32_t payload_bytes = 0;  // of a kData that succeeds
};
std::optional<Frame> decode_reply(std::span<const std::byte> bytes, const Expected& expected);

}  // namespace mc::transport::tcp
