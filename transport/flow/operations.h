// SPDX-License-Identifier: Apache-2.0
//
// The operations in flight, which transports cut into slices.
//
//   bytes of an operation   0 ── done, in any order ──┬── on lanes (slices) ──┬── not cut yet ──►
//
//   A slice names its operation by id. When the operation has ended, the id finds no operation, and
//   later bytes of the slice are thrown away. That makes a cancel final.
// Threads: the transport's.
// Owns: copies of the pieces' addresses and sizes, never the bytes.
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
  Outcome failure = Outcome::kDone;  // decided, while slices of the operation are still on lanes
  Priority priority = Priority::kForeground;
  std::uint64_t near = ~std::uint64_t{0};  // devices near to the first piece, as bits
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
  // Null: the operation has ended.
  OperationState* find(OperationId id) {
    const std::uint32_t slot = static_cast<std::uint32_t>(id) - 1;
    return slot < kMaxOperations && slots_[slot].id == id && id != kNoOperation ? &slots_[slot]
                                                                                : nullptr;
  }
  // Copies the fields of the operation, and sets the operation's id.
  static void start(Operation& operation, OperationState& state, std::uint64_t size_bytes);
  void close(OperationState& operation);
  // Calls overdue(operation) for each operation whose deadline has come. Returns the time of the
  // next look, ~0 for never. Operations with deadlines close to each other end together.
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
  // Every slot; a free slot has no id.
  std::vector<OperationState>& slots() { return slots_; }

 private:
  std::vector<OperationState> slots_;
  std::vector<std::uint32_t> generations_;
  std::vector<std::uint32_t> free_;
  std::uint32_t in_flight_ = 0;
};

// The size of all pieces; none if the pieces are too many, too large, empty or without address.
std::optional<std::uint64_t> size_of(std::span<const Piece> pieces);
// The event that ends the operation.
Event ended(const OperationState& operation, Outcome outcome);

// Appends the next size bytes from the cursor as vectors, and moves the cursor. Stops early when
// max_vectors are in use. Returns the number of covered bytes.
std::uint64_t append_vectors(const std::vector<Piece>& pieces, Cursor& at, std::uint64_t size,
                             std::size_t max_vectors, std::vector<iovec>& vectors);
void advance(const std::vector<Piece>& pieces, Cursor& at, std::uint64_t size);

}  // namespace mc::transport
