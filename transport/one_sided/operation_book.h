// SPDX-License-Identifier: Apache-2.0
//
// The operations of a one-sided requester until the end, and the events at the end.
//
//     open ─► slices on lanes ─► all bytes done ───────────────────────► event
//               └─► give_up(): cancelled, failed, too late ─► last slice back ─► event
//
//   The network may still work on slices of an operation that was given up. The event waits for
//   the last of these slices, since the caller reuses the memory after the event.
// Threads: the transport's. Owns operations and events.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/flow/operations.h"
#include "transport/one_sided/backend.h"
#include "transport/one_sided/one_sided_peer.h"

namespace mc::transport::one_sided {

class OperationBook {
 public:
  OperationBook(const PeerTable& peers, Backend& backend, Counters& counters)
      : peers_(peers), backend_(backend), counters_(counters) {}

  // Null: kMaxOperations are open.
  OperationState* open() { return operations_.open(); }
  // Null: the operation has ended.
  OperationState* find(OperationId id) { return operations_.find(id); }
  // Whether the operation has neither ended nor been given up.
  bool goes_on(OperationId id) {
    const OperationState* operation = find(id);
    return operation != nullptr && operation->failure == Outcome::kDone;
  }
  void end(OperationState& operation, Outcome outcome);
  void give_up(OperationState& operation, Outcome outcome);
  void end_all_of(PeerId peer, Outcome outcome);
  // Slices of an operation have ended: the count, and the sum of bytes.
  void on_slices(OperationId id, std::uint32_t count, std::uint64_t bytes, Outcome outcome);

  void await(std::uint64_t deadline_ns) {
    next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
  }
  std::uint64_t next_deadline_ns() const { return next_deadline_ns_; }
  // Gives up the operations whose deadline has come.
  void expire(std::uint64_t now_ns);

  void tell(Event::Kind kind, PeerId peer);
  std::vector<Event>& events() { return events_; }
  const std::vector<Event>& events() const { return events_; }

 private:
  const PeerTable& peers_;
  Backend& backend_;
  Counters& counters_;
  Operations operations_;
  std::vector<Event> events_;
  std::uint64_t next_deadline_ns_ = ~std::uint64_t{0};
};

}  // namespace mc::transport::one_sided
