// SPDX-License-Identifier: Apache-2.0
//
// The file that a client and the worker of a device (agent/gpu) share: rings of requests and
//   completions as in a channel, and the arguments of requests. The agent makes the file.
//
//   0 header │ requests, 256 x 64 B ─► │ completions ◄─ │ stamps │ arguments, 256 KiB
//
//   A copy may be ordered after and before work of a stream of the client, by a stamp:
//
//   client's stream: compute ─► ready[slot] = stamp        done[slot] >= stamp ─► compute
//   worker:                     waits ──► copies ──► done[slot] = stamp
//
//   The client's driver writes and awaits the words (cuStreamWriteValue32, cuStreamWaitValue32 with
//   GEQ), for which the client pins the page. After a failure, and after the end of a worker, the
//   client copies the bytes itself, and writes the word.
//
// Threads: values; a thread of the client and the loop of the worker use the file.
// Trusts: nothing. decode_lane_request() and read_copy() copy, check, and return a value or nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "shm/layout.h"
#include "shm/ring.h"

namespace mc::shm {

inline constexpr std::uint64_t kLaneArgumentBytes = 256 * 1024;

struct alignas(kPageBytes) DeviceLane {
  FileHeader file;
  ChannelHeader header;  // "agent" is the worker
  alignas(kLineBytes) RingSlot requests[kRingSlots];
  RingSlot completions[kRingSlots];
  alignas(kPageBytes) Word32 ready[kRingSlots];  // written by the client and its streams
  Word32 done[kRingSlots];                       // written by the worker after success
  alignas(kPageBytes) unsigned char arguments[kLaneArgumentBytes];
};

enum class LaneOp : std::uint32_t {
  kOpenMemory = 1,   // a: the client's number of an allocation; b: its bytes. Arguments: the handle
  kCloseMemory = 2,  // a: the number
  kCopy = 3,         // LaneCopy[]
  // a: the number; b: the bytes of the whole allocation. Arguments: the bytes of each chunk, 64 bit.
  // A message on the lane's socket, sent before the request, has a descriptor of each chunk. The
  // chunks follow those of earlier requests.
  kAddChunks = 4,
};

struct LaneRequest {
  std::uint64_t request_id;
  std::uint32_t op;
  std::uint32_t item_count;
  std::uint32_t argument_offset;
  std::uint32_t argument_bytes;
  std::uint64_t a;
  std::uint64_t b;
  // Of a kCopy. The slot is free again after the completion.
  std::uint32_t slot;
  std::uint32_t stamp;  // 0: the copies begin at once
  std::uint64_t reserved;
};
static_assert(sizeof(LaneRequest) == sizeof(RecordWords));

struct LaneCompletion {
  std::uint64_t request_id;
  std::int32_t status;
  std::uint32_t reserved0;
  std::uint64_t reserved[5];
};
static_assert(sizeof(LaneCompletion) == sizeof(RecordWords));

// Host memory of a copy.
enum class LaneMemory : std::uint32_t { kPool = 1, kStaging = 2 };

struct LaneCopy {
  std::uint64_t allocation;
  std::uint64_t device_offset;
  std::uint64_t host_offset;
  std::uint64_t bytes;
  std::uint32_t memory;     // LaneMemory
  std::uint32_t to_device;  // 0 or 1
};
static_assert(sizeof(LaneCopy) == 40);
inline constexpr std::uint32_t kMaxLaneCopies = 4096;
inline constexpr std::uint32_t kMaxLaneChunks = 32;
inline constexpr std::uint64_t kMaxLaneBytes = 1 << 30;  // of one request

inline constexpr std::size_t kDeviceHandleBytes = 64;

// Whether the word has come to the stamp; stamps wrap.
inline bool has_come(const Word32& word, std::uint32_t stamp) {
  return static_cast<std::int32_t>(word.load_acquire() - stamp) >= 0;
}
// Checks operation, counts and argument range of a copied record.
std::optional<LaneRequest> decode_lane_request(const RecordWords& words);
// An item of a kCopy request, copied before it is checked. REQUIRES: item < request.item_count.
std::optional<LaneCopy> read_copy(const DeviceLane& lane, const LaneRequest& request,
                                  std::uint32_t item);

}  // namespace mc::shm
