// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/requester.h"

#include <algorithm>

namespace mc::transport::rdma {

Requester::Requester(const RdmaOptions& options, const DeviceSlots& devices,
                     const LocalRegions& regions, Edges& edges, Opener& opener, Dialer& dialer,
                     Counters& counters)
    : options_(options),
      devices_(devices),
      regions_(regions),
      edges_(edges),
      opener_(opener),
      dialer_(dialer),
      counters_(counters) {
  on_devices_changed();
}

Requester::Peer* Requester::find(PeerId id) const {
  const std::uint32_t slot = static_cast<std::uint32_t>(id) - 1;
  return slot < peers_.size() && peers_[slot] && peers_[slot]->id == id ? peers_[slot].get()
                                                                        : nullptr;
}

// ---- Operations -------------------------------------------------------------------------------

Outcome Requester::check(const Operation& operation, std::uint64_t now_ns, std::uint64_t* size) {
  const auto bytes = size_of(operation.pieces);
  if (!bytes) return Outcome::kInvalid;
  *size = *bytes;
  const Peer* peer = find(operation.peer);
  if (peer == nullptr) return Outcome::kInvalid;
  if (operation.verb == Verb::kNotify) {
    // One request carries it whole.
    if (*bytes > kMaxNotificationBytes || operation.pieces.size() > kMaxSlicePieces) {
      return Outcome::kInvalid;
    }
  } else if (const Outcome outcome = remote_regions_.admit(operation, *bytes);
             outcome != Outcome::kDone) {
    return outcome;
  }
  if (operation.deadline_ns <= now_ns) return Outcome::kTimedOut;
  return peer->lost ? Outcome::kPeerLost : Outcome::kDone;
}

std::size_t Requester::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  std::size_t taken = 0;
  for (Operation& operation : operations) {
    OperationState* state = operations_.open();
    if (state == nullptr) break;
    ++taken;
    std::uint64_t size = 0;
    Outcome outcome = check(operation, now_ns, &size);
    Operations::start(operation, *state, size);
    state->near = Rails::kAllNear;
    if (options_.near && size > kSmallBytes && operation.pieces.size() <= kMaxPieces) {
      state->near = options_.near(operation.pieces.front().data, own_names_);
    }
    Peer* peer = find(operation.peer);
    if (peer != nullptr) ++peer->open_operations;
    if (outcome == Outcome::kDone && !regions_.find(state->pieces)) outcome = Outcome::kInvalid;
    if (outcome != Outcome::kDone) {
      end(*state, outcome);
      continue;
    }
    next_deadline_ns_ = std::min(next_deadline_ns_, operation.deadline_ns);
    wake(*peer, now_ns);
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

// Lanes are opened when there is something for them.
void Requester::wake(Peer& peer, std::uint64_t now_ns) {
  peer.used_ns = now_ns;
  if (!peer.dormant) return;
  peer.dormant = false;
  peer.usable_ns = now_ns + kFirstWayNs;
  next_look_ns_ = 0;
}

void Requester::end(OperationState& operation, Outcome outcome) {
  events_.push_back(ended(operation, outcome));
  if (Peer* peer = find(operation.peer)) --peer->open_operations;
  operations_.close(operation);
}

// The device may still work on slices that are out: the event waits for the last of them.
void Requester::give_up(OperationState& operation, Outcome outcome) {
  if (operation.slices_out == 0) {
    end(operation, operation.failure == Outcome::kDone ? outcome : operation.failure);
  } else if (operation.failure == Outcome::kDone) {
    operation.failure = outcome;
  }
}

void Requester::cancel(OperationId id) {
  if (OperationState* operation = operations_.find(id)) give_up(*operation, Outcome::kCancelled);
}

void Requester::on_slices(OperationId id, std::uint32_t count, std::uint64_t bytes,
                          Outcome outcome) {
  OperationState* operation = operations_.find(id);
  if (operation == nullptr) return;
  operation->slices_out -= count;
  if (outcome == Outcome::kDone) {
    operation->done_bytes += bytes;
    if (operation->verb == Verb::kRead) counters_.read_bytes += bytes;
    if (operation->verb == Verb::kWrite) counters_.written_bytes += bytes;
  }
  if (operation->done_bytes == operation->size_bytes) {
    end(*operation, Outcome::kDone);
  } else if (outcome != Outcome::kDone) {
    give_up(*operation, outcome);
  } else if (operation->failure != Outcome::kDone && operation->slices_out == 0) {
    end(*operation, operation->failure);
  }
}

void Requester::on_completion(const ibv_wc& completion, std::uint64_t now_ns) {
  const std::uint32_t index = Lane::index_of(completion.wr_id);
  if (index >= lanes_.size() || lanes_[index].peer == nullptr) return;
  Peer& peer = *lanes_[index].peer;
  const std::size_t at = lanes_[index].place;
  Place& place = peer.places[at];
  Lane& lane = *place.lane;
  if (!lane.is_mine(completion.wr_id)) return;
  if (completion.status != IBV_WC_SUCCESS) {
    fail_lane(peer, at, "a request failed: status " + std::to_string(completion.status), now_ns,
              &completion);
    return;
  }
  const std::uint32_t count = lane.done_by(completion.wr_id);
  for (std::uint32_t i = 0; i < count;) {
    // Those of one operation together.
    const Slice& first = lane.at(i);
    const std::uint32_t begin = i;
    std::uint64_t bytes = 0;
    for (; i < count && lane.at(i).operation == first.operation; ++i) {
      bytes += lane.at(i).size_bytes;
    }
    if (first.operation == kNoOperation) continue;
    place.rails->on_done(place.rail, {bytes, first.sent_ns, first.priority}, i - begin, now_ns);
    on_slices(first.operation, i - begin, bytes, Outcome::kDone);
  }
  lane.pop(count);
  if (!waiting_for_credit_.empty()) wake_waiting_for_credit();
  place.since_ns = now_ns;
  if (place.state == LaneState::kProbing) {
    place.state = LaneState::kUp;
    place.why.clear();
    place.rails->on_up(place.rail);
    if (peer.lost) {
      peer.lost = false;
      tell(Event::Kind::kPeerBack, peer.id);
    }
  }
  pump_later(peer);
}

void Requester::expire(std::uint64_t now_ns) {
  next_deadline_ns_ = operations_.expire(now_ns, [&](OperationState& operation) {
    const OperationId id = operation.id;
    const PeerId peer = operation.peer;
    give_up(operation, Outcome::kTimedOut);
    if (operations_.find(id) != nullptr) abandon_lanes_of(id, peer, now_ns);
  });
}

// Only when its lanes are down does nothing of the operation land any more.
void Requester::abandon_lanes_of(OperationId operation, PeerId id, std::uint64_t now_ns) {
  Peer* peer = find(id);
  for (std::size_t at = 0; at < peer->places.size(); ++at) {
    const Lane* lane = peer->places[at].lane.get();
    bool carries = false;
    for (std::uint32_t i = 0; lane != nullptr && i < lane->posted(); ++i) {
      carries = carries || lane->at(i).operation == operation;
    }
    if (carries) fail_lane(*peer, at, "an operation on it did not end by its deadline", now_ns);
  }
}

}  // namespace mc::transport::rdma
