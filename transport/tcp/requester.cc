// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/requester.h"

#include <algorithm>

#include "transport/tcp/socket.h"

namespace mc::transport::tcp {

Requester::Requester(LaneLoop& loop, Dialer& dialer, Counters& counters,
                     std::uint64_t max_asked_bytes)
    : loop_(loop), dialer_(dialer), counters_(counters), credits_(1, max_asked_bytes) {}

Requester::~Requester() {
  peers_.each([&](Peer& peer) {
    for (auto& lane : peer.lanes) {
      if (lane) loop_.forget(lane.get());
    }
  });
}

// ---- Operations -------------------------------------------------------------------------------

Outcome Requester::check(const Operation& operation, std::uint64_t now_ns,
                         std::uint64_t* size) const {
  const auto bytes = size_of(operation.pieces);
  if (!bytes) return Outcome::kInvalid;
  if (operation.verb == Verb::kNotify && *bytes > kMaxNotificationBytes) return Outcome::kInvalid;
  if (operation.verb != Verb::kNotify && operation.offset_bytes > ~std::uint64_t{0} - *bytes) {
    return Outcome::kInvalid;
  }
  *size = *bytes;
  return operation.deadline_ns <= now_ns ? Outcome::kTimedOut : Outcome::kDone;
}

std::size_t Requester::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  std::size_t taken = 0;
  for (Operation& operation : operations) {
    std::uint64_t size = 0;
    Outcome outcome = check(operation, now_ns, &size);
    Peer* peer = peers_.find(operation.peer);
    if (outcome == Outcome::kDone && peer == nullptr) outcome = Outcome::kInvalid;
    if (outcome == Outcome::kDone && peer->lost) outcome = Outcome::kPeerLost;
    OperationState* state = operations_.open();
    if (state == nullptr) break;
    ++taken;
    Operations::start(operation, *state, size);
    if (outcome != Outcome::kDone) {
      end(*state, outcome);
      continue;
    }
    next_deadline_ns_ = std::min(next_deadline_ns_, operation.deadline_ns);
    if (size <= kSmallBytes) {
      peer->small_waiting.push(state->id);
    } else {
      auto& waiting = peer->bulk_waiting[static_cast<std::size_t>(state->priority)];
      if (waiting.empty()) peer->turns.arrived(state->priority);
      waiting.push(state->id);
    }
    pump_later(*peer);
  }
  pump_all(now_ns);
  return taken;
}

void Requester::end(OperationState& operation, Outcome outcome) {
  events_.push_back(ended(operation, outcome));
  operations_.close(operation);
}

void Requester::give_up(OperationState& operation, Outcome outcome) {
  if (operation.verb == Verb::kRead || operation.slices_out == 0) {
    end(operation, outcome);
  } else if (operation.failure == Outcome::kDone) {
    operation.failure = outcome;
  }
}

void Requester::cancel(OperationId id) {
  if (OperationState* operation = operations_.find(id)) give_up(*operation, Outcome::kCancelled);
}

void Requester::on_slice(AskingLane& lane, const Slice& slice, Outcome outcome,
                         std::uint64_t now_ns) {
  Peer* peer = peers_.find(lane.peer());
  const RailSlice done{slice.size_bytes, slice.asked_ns, slice.priority};
  rails_of(*peer, lane.index()).on_done(rail_of(lane.index()), done, now_ns);
  wake_waiting_for_credit();
  pump_later(*peer);
  OperationState* operation = operations_.find(slice.operation);
  if (operation == nullptr) return;
  --operation->slices_out;
  if (outcome == Outcome::kDone) {
    operation->done_bytes += slice.size_bytes;
    if (operation->verb == Verb::kRead) counters_.read_bytes += slice.size_bytes;
    if (operation->verb == Verb::kWrite) counters_.written_bytes += slice.size_bytes;
  }
  if (operation->done_bytes == operation->size_bytes) {
    end(*operation, Outcome::kDone);
  } else if (outcome != Outcome::kDone) {
    give_up(*operation, outcome);
  } else if (operation->failure != Outcome::kDone && operation->slices_out == 0) {
    end(*operation, operation->failure);
  }
}

// ---- From queues to lanes ---------------------------------------------------------------------

void Requester::pump_all(std::uint64_t now_ns) {
  due_.take([&](PeerId id) { return peers_.find(id); }, [&](Peer& peer) { pump(peer, now_ns); });
}

void Requester::pump(Peer& peer, std::uint64_t now_ns) {
  if (!is_up(peer)) return;
  if (!peer.cuts.empty()) ask_cuts(peer, now_ns);
  pump_small(peer, now_ns);
  if (resend(peer, now_ns)) pump_bulk(peer, now_ns);
  for (auto& lane : peer.lanes) {
    // The next turn of the lane finds a failed flush.
    if (lane && (!lane->flush() || lane->can_send())) loop_.wake(lane.get());
  }
}

AskingLane* Requester::choose(Peer& peer, std::uint64_t bytes, bool small, Priority priority) {
  const bool small_up = peer.small.is_up(0);
  if (small_up && (small || peer.bulk.up_count() == 0)) {
    AskingLane* lane = peer.lanes[0].get();
    const std::uint64_t outstanding = peer.small.outstanding_bytes(0);
    const bool fits = outstanding == 0 || outstanding + bytes <= kSmallLaneBytes;
    return fits && lane->open_requests() + 2 < kMaxLaneRequests ? lane : nullptr;
  }
  const auto rail = peer.bulk.choose(bytes, Rails::kAllNear, priority);
  if (!rail) {
    if (peer.bulk.lacks_credit(bytes, priority)) waiting_for_credit_.add(peer);
    return nullptr;
  }
  AskingLane* lane = peer.lanes[*rail + 1].get();
  return lane->open_requests() + 2 < kMaxLaneRequests ? lane : nullptr;
}

void Requester::ask(Peer& peer, AskingLane& lane, OperationState& operation, const Slice& slice,
                    std::uint64_t now_ns) {
  ++operation.slices_out;
  const RailSlice sent{slice.size_bytes, now_ns, slice.priority};
  rails_of(peer, lane.index()).on_sent(rail_of(lane.index()), sent);
  lane.ask(operation, slice, now_ns);
}

Slice Requester::cut(OperationState& operation, std::uint64_t bytes) {
  Slice slice;
  slice.operation = operation.id;
  slice.offset_bytes = operation.cut_bytes;
  slice.size_bytes = static_cast<std::uint32_t>(bytes);
  slice.start = operation.cut_at;
  slice.priority = operation.priority;
  advance(operation.pieces, operation.cut_at, bytes);
  operation.cut_bytes += bytes;
  return slice;
}

void Requester::pump_small(Peer& peer, std::uint64_t now_ns) {
  for (; !peer.small_waiting.empty(); peer.small_waiting.pop()) {
    OperationState* operation = operations_.find(peer.small_waiting.front());
    if (operation == nullptr) continue;
    AskingLane* lane = choose(peer, operation->size_bytes, true, operation->priority);
    if (lane == nullptr) return;
    ask(peer, *lane, *operation, cut(*operation, operation->size_bytes), now_ns);
  }
}

// False: a slice must wait for room.
bool Requester::resend(Peer& peer, std::uint64_t now_ns) {
  for (; !peer.resend.empty(); peer.resend.pop()) {
    const Slice& slice = peer.resend.front();
    OperationState* operation = operations_.find(slice.operation);
    if (operation == nullptr || operation->failure != Outcome::kDone) continue;
    AskingLane* lane =
        choose(peer, slice.size_bytes, operation->size_bytes <= kSmallBytes, slice.priority);
    if (lane == nullptr) return false;
    ++counters_.resent_slices;
    ask(peer, *lane, *operation, slice, now_ns);
  }
  return true;
}

void Requester::pump_bulk(Peer& peer, std::uint64_t now_ns) {
  std::uint32_t waiting = 0;
  for (std::uint32_t i = 0; i < kPriorityCount; ++i) {
    if (!peer.bulk_waiting[i].empty()) waiting |= 1u << i;
  }
  while (const auto priority = peer.turns.next(waiting)) {
    const auto i = static_cast<std::size_t>(*priority);
    // A rail that is full for one class may have room for a higher class.
    if (!ask_next(peer, *priority, now_ns) || peer.bulk_waiting[i].empty()) waiting &= ~(1u << i);
  }
}

// Asks for a slice of the class's first operation, which then goes to the end. False: no room.
bool Requester::ask_next(Peer& peer, Priority priority, std::uint64_t now_ns) {
  Queue<OperationId>& queue = peer.bulk_waiting[static_cast<std::size_t>(priority)];
  const OperationId id = queue.front();
  OperationState* operation = operations_.find(id);
  if (operation == nullptr || operation->failure != Outcome::kDone) {
    queue.pop();
    return true;
  }
  const std::uint64_t left = operation->size_bytes - operation->cut_bytes;
  std::uint64_t bytes = std::min<std::uint64_t>(left, peer.bulk.slice_bytes(operation->size_bytes));
  // A tail below a quarter of a slice joins the slice before it.
  if (left - bytes < bytes / 4 && left <= kMaxSliceBytes) bytes = left;
  AskingLane* lane = choose(peer, bytes, false, priority);
  if (lane == nullptr) return false;
  ask(peer, *lane, *operation, cut(*operation, bytes), now_ns);
  peer.turns.took(priority, bytes);
  queue.pop();
  if (operation->cut_bytes < operation->size_bytes) queue.push(id);
  return true;
}

// Freed credit goes first to the waiting peers.
void Requester::wake_waiting_for_credit() {
  waiting_for_credit_.take([&](PeerId id) { return peers_.find(id); },
                           [&](Peer& peer) { pump_later(peer); });
}

}  // namespace mc::transport::tcp
