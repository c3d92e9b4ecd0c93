// SPDX-License-Identifier: Apache-2.0
//
// What it is: the operations in flight, which transports cut into slices.
//
//   bytes of an operation   0 ── done, in any order ──┬── on lanes (slices) ──┬── not cut yet ──►
//
//   A slice names its operation by id: when the operation has ended, the id finds nothing, and
//   what still arrives for the slice is thrown away. That makes a cancel final.
// Threads: the transport's. Owns copies of the pieces' places, never their bytes.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace mc::transport {

// A place within the pieces of an operation.
struct Cursor {
  std::uint32_t piece = 0;
  std::uint64_t offset_bytes = 0;
};

struct OperationState {
  OperationId id = kNoOperation;  // kNoOperation: the slot is free
  Verb verb = Verb::kRead;
  Outcome failure = Outcome::kDone;  // decided, but slices of a write are still on lanes
  Priority priority = Priority::kForeground;
  std::uint64_t near = ~std::uint64_t{0};  // what is near to its first piece, as rails want it
  bool queued = false;                     // in its peer's queue of what is not cut yet
  PeerId peer = kNoPeer;
  std::uint64_t cookie = 0;
  std::uint64_t deadline_ns = 0;
  RemoteRegionId region = 0;
  std::uint64_t generation = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t cut_bytes = 0;
  std::uint64_t done_bytes = 0;
  std::uint32_t slices_out = 0;
  Cursor cut_at;
  std::vector<Piece> pieces;
};

class Operations {
 public:
  Operations();
  // Null: kMaxOperations are in flight.
  OperationState* open();
  // Null: it has ended.
  OperationState* find(OperationId id) {
    const std::uint32_t slot = static_cast<std::uint32_t>(id) - 1;
    return slot < kMaxOperations && slots_[slot].id == id && id != kNoOperation ? &slots_[slot]
                                                                                : nullptr;
  }
  // Takes over what the operation says, and tells it its id.
  static void start(Operation& operation, OperationState& state, std::uint64_t size_bytes);
  void close(OperationState& operation);
  // Calls overdue(operation) for each whose deadline has come; returns when to look again, ~0 for
  // never. Operations with deadlines close to each other end together.
  template <typename Overdue>
  std::uint64_t expire(std::uint64_t now_ns, Overdue overdue) {
    constexpr std::uint64_t kGrainNs = 500'000;
    constexpr std::uint64_t kNever = ~std::uint64_t{0};
    std::uint64_t next = kNever;
    for (OperationState& operation : slots_) {
      if (operation.id == kNoOperation) continue;
      if (operation.deadline_ns > now_ns) {
        next = std::min(next, operation.deadline_ns);
      } else {
        overdue(operation);
      }
    }
    return next == kNever ? kNever : std::max(next, now_ns + kGrainNs);
  }
  std::uint32_t in_flight() const { return in_flight_; }
  // Every slot; free ones have no id.
  std::vector<OperationState>& slots() { return slots_; }

 private:
  std::vector<OperationState> slots_;
  std::vector<std::uint32_t> generations_;
  std::vector<std::uint32_t> free_;
  std::uint32_t in_flight_ = 0;
};

// Of all pieces together; none: they are too many, too large, empty or nowhere.
std::optional<std::uint64_t> size_of(std::span<const Piece> pieces);
// The event that ends it.
Event ended(const OperationState& operation, Outcome outcome);

// The next size bytes from the cursor, as vectors; moves the cursor. Stops early when max_vectors
// are in use; returns the bytes covered.
std::uint64_t append_vectors(const std::vector<Piece>& pieces, Cursor& at, std::uint64_t size,
                             std::size_t max_vectors, std::vector<iovec>& vectors);
void advance(const std::vector<Piece>& pieces, Cursor& at, std::uint64_t size);

}  // namespace mc::transport
