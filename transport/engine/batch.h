// SPDX-License-Identifier: Apache-2.0
//
// Requests that were submitted together, and the state of each.
//
//                    ┌─► kWaiting ─┐ (peer not known yet, or the table is out of date)
//     kNew ──────────┴─────────────┴─► kOutgoing ─► kFlying ──┐
//                                  └─► kCopying ──────────────┴─► kEnded
//
// Threads: under the engine's lock.
// Owns: the requests. Local memory is the caller's.
// Trusts: make_batch() checks the caller's requests.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "libmc/base/mutex.h"
#include "mc/transfer.h"
#include "transport/engine/local/shared_files.h"
#include "transport/engine/local/staging.h"
#include "transport/engine/wire/check.h"
#include "transport/engine/wire/directory.h"
#include "transport/transport.h"

namespace mc::transfer {

struct SubmitOptions {
  std::uint64_t timeout_ns = 0;  // 0: the engine's default
  mc_transfer_segment notify = 0;
  std::string_view note_name;
  std::string_view note_message;
  bool waits = false;  // the caller waits at once, so small copies need no other thread
  transport::Priority priority = transport::Priority::kForeground;
  bool checksum = false;  // the peer compares the checksums of written bytes
};

// From this size on, two threads share a copy within the host. With memcpy a core is almost as
// fast as memory, and waking a second thread costs as much as copying half a megabyte.
inline constexpr std::uint64_t kShareBytes = 256 * 1024;
inline constexpr std::uint64_t kShareMappedBytes = 4 << 20;

struct Request {
  enum class State : std::uint8_t { kNew, kWaiting, kOutgoing, kFlying, kCopying, kEnded };
  bool write = false;
  State state = State::kNew;
  std::uint8_t looks = 0;         // fresh reads of the table since the range was not found
  std::uint16_t chunks_open = 0;  // chunks that threads are copying
  mc_status status = MC_OK;
  std::byte* local = nullptr;             // source or destination in this process
  std::unique_ptr<StagedRequest> staged;  // set if the caller's memory is on a device
  mc_transfer_segment segment = 0;
  std::uint64_t remote = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t bytes = 0;    // done
  mc_status failing = MC_OK;  // final status, once no thread or transport uses the memory
  // kFlying
  transport::OperationId operation = transport::kNoOperation;
  // kCopying
  std::uint64_t taken_bytes = 0;                      // given to threads
  bool stale = false;                                 // the peer's registration has changed
  std::shared_ptr<const SharedFiles::Window> window;  // null: the kernel copies
  std::uint64_t generation = 0;                       // of the table that has the entry
  DirectoryEntry entry{};

  // The local address that the caller named.
  const std::byte* callers() const { return staged ? staged->device_address() : local; }
  std::uint64_t share_bytes() const { return window ? kShareMappedBytes : kShareBytes; }
};

struct RequestRef {
  std::uint32_t slot = 0;   // of the batch
  std::uint32_t index = 0;  // of the request
};

// A question to the peer whether written bytes have arrived.
struct Check {
  std::uint32_t of = 0;  // the request that has written them
  CheckQuestion question{};
};

struct Batch {
  std::uint64_t id = 0;
  std::uint64_t deadline_ns = 0;
  transport::Priority priority = transport::Priority::kForeground;
  std::vector<Request> requests;
  std::size_t open = 0;  // requests that have not ended
  // The requests of a stage start when those of the stage before have all succeeded. The requests lie in this order:
  // the caller's, the notification, the questions.
  enum class Stage : std::uint8_t { kData, kChecks, kNote };
  Stage stage = Stage::kData;
  std::size_t stage_open = 0;
  bool notifies = false;
  std::vector<std::byte> note;
  std::vector<Check> checks;
  std::deque<std::uint32_t> copies;  // requests with bytes that no thread has taken
  bool submitting = false;           // submit() has not yet decided which threads copy
  bool queued = false;               // for the copying thread
  bool failed = false;
  bool cancelled = false;
  Status first_failure;
  std::uint32_t users = 0;  // calls and queues that refer to the batch
  bool freed = false;       // remove the batch when the last user leaves
  Condition changed;

  bool ended() const { return open == 0; }
  bool is_note(std::size_t index) const { return notifies && index == given(); }
  // Null: the request is no question.
  Check* check(std::size_t index) {
    const std::size_t first = requests.size() - checks.size();
    return index >= first ? &checks[index - first] : nullptr;
  }
  // Requests of the caller.
  std::size_t given() const { return requests.size() - checks.size() - (notifies ? 1 : 0); }
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  Range requests_of(Stage which) const;
};

// Adds the questions about the bytes of each write. Reads the bytes.
void add_checks(Batch& batch);

// Errors: MC_INVALID_ARGUMENT.
Result<std::unique_ptr<Batch>> make_batch(std::span<const mc_transfer_request> requests,
                                          const SubmitOptions& options);

}  // namespace mc::transfer
