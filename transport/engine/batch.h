// SPDX-License-Identifier: Apache-2.0
//
// What it is: requests that were submitted together, and where each is.
//
//                    ┌─► kWaiting ─┐ (peer not known yet, or its table is out of date)
//     kNew ──────────┴─────────────┴─► kOutgoing ─► kFlying ──┐
//                                  └─► kCopying ──────────────┴─► kEnded
//
// Threads: under the engine's lock. Owns: its requests; the local memory is the caller's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "mc/transfer.h"
#include "transport/engine/directory.h"
#include "transport/engine/local/shared_files.h"
#include "transport/engine/local/staging.h"
#include "transport/transport.h"

namespace mc::transfer {

// From here on a copy within the host is shared by two threads. By memcpy one core is almost as
// fast as memory is, and to wake a second thread costs as much as half a megabyte.
inline constexpr std::uint64_t kShareBytes = 256 * 1024;
inline constexpr std::uint64_t kShareMappedBytes = 4 << 20;

struct Request {
  enum class State : std::uint8_t { kNew, kWaiting, kOutgoing, kFlying, kCopying, kEnded };
  bool write = false;
  State state = State::kNew;
  std::uint8_t looks = 0;         // at a fresh table, since the range was not in ours
  std::uint16_t chunks_open = 0;  // being copied by some thread
  mc_status status = MC_OK;
  std::byte* local = nullptr;             // where bytes are taken from or land
  std::unique_ptr<StagedRequest> staged;  // local, if the caller's is memory of a device
  mc_transfer_segment segment = 0;
  std::uint64_t remote = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t bytes = 0;    // done
  mc_status failing = MC_OK;  // it ends so, as soon as nothing touches its memory
  // kFlying
  transport::OperationId operation = transport::kNoOperation;
  // kCopying
  std::uint64_t taken_bytes = 0;  // given to threads
  bool stale = false;             // the range is not what the entry says any more
  std::shared_ptr<const SharedFiles::Window> window;  // null: the kernel copies
  std::uint64_t generation = 0;                       // of the table that has the entry
  DirectoryEntry entry{};

  // What the caller named.
  const std::byte* callers() const { return staged ? staged->device_address() : local; }
  std::uint64_t share_bytes() const { return window ? kShareMappedBytes : kShareBytes; }
};

// The cookie of a read of a table; those of requests have this bit clear.
inline constexpr std::uint64_t kTableCookie = 1ull << 63;

// Where the batch of this id stands.
inline std::uint32_t slot_of(std::uint64_t id) { return static_cast<std::uint32_t>(id) - 1; }

struct Batch {
  std::uint64_t id = 0;
  std::uint64_t deadline_ns = 0;
  std::vector<Request> requests;
  std::size_t open = 0;  // not ended
  // The notification; its request is the last one, which is started when the others are done.
  bool notifies = false;
  std::vector<std::byte> note;
  std::deque<std::uint32_t> copies;  // requests with bytes that no thread has taken
  bool submitting = false;           // its call has not decided yet who copies
  bool queued = false;               // for the copying thread
  bool failed = false;
  bool cancelled = false;
  Status first_failure;
  std::uint32_t users = 0;  // calls and queues that look at it
  bool freed = false;       // goes when nobody looks at it any more
  std::condition_variable changed;

  bool ended() const { return open == 0; }
};

}  // namespace mc::transfer
