// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/requester.h"

#include <algorithm>
#include <utility>

namespace mc::transport::fabric {

Requester::Peer* Requester::find(PeerId id) const {
  const auto at = peers_.find(id);
  return at == peers_.end() ? nullptr : at->second.get();
}

// ---- Operations -------------------------------------------------------------------------------

Outcome Requester::check(const Operation& operation, std::uint64_t now_ns, std::uint64_t* size) {
  const auto bytes = size_of(operation.pieces);
  if (!bytes) return Outcome::kInvalid;
  *size = *bytes;
  const Peer* peer = find(operation.peer);
  if (peer == nullptr) return Outcome::kInvalid;
  if (operation.verb == Verb::kNotify) {
    if (*bytes > kMaxNotificationBytes) return Outcome::kInvalid;
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
    Peer* peer = find(operation.peer);
    if (peer != nullptr) ++peer->open_operations;
    const bool is_notice = operation.verb == Verb::kNotify;
    if (outcome == Outcome::kDone && !is_notice && !regions_.find(state->pieces)) {
      outcome = Outcome::kInvalid;
    }
    if (outcome != Outcome::kDone) {
      end(*state, outcome);
      continue;
    }
    next_deadline_ns_ = std::min(next_deadline_ns_, operation.deadline_ns);
    peer->used_ns = now_ns;
    if (!is_notice) wake(*peer, now_ns);
    auto& queue = is_notice             ? peer->notices_waiting
                  : size <= kSmallBytes ? peer->small_waiting
                                        : peer->bulk_waiting;
    queue.push(state->id);
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
  if (Peer* peer = find(operation.peer)) {
    --peer->open_operations;
    peer->notices_sent.erase(operation.id);
  }
  operations_.close(operation);
}

// The provider may still work on slices that are out: the event waits for the last of them.
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

void Requester::on_slice_done(OperationState& operation, const Slice& slice) {
  --operation.slices_out;
  operation.done_bytes += slice.size_bytes;
  if (operation.verb == Verb::kRead) counters_.read_bytes += slice.size_bytes;
  if (operation.verb == Verb::kWrite) counters_.written_bytes += slice.size_bytes;
  if (operation.done_bytes == operation.size_bytes) {
    end(operation, Outcome::kDone);
  } else if (operation.failure != Outcome::kDone && operation.slices_out == 0) {
    end(operation, operation.failure);
  }
}

void Requester::take_back(Peer& peer, const Place& place, Slice slice) {
  OperationState* operation = operations_.find(slice.operation);
  if (operation == nullptr) return;
  --operation->slices_out;
  if (operation->failure != Outcome::kDone) return give_up(*operation, operation->failure);
  RemoteRegion* region = remote_regions_.find(operation->region);
  if (region == nullptr) return give_up(*operation, Outcome::kStale);
  // Then there is nothing wrong with the slice.
  const bool has_moved = peer.epochs[place.theirs] != place.remote_epoch;
  if (!has_moved && ++slice.tries >= kMostTries) return give_up(*operation, Outcome::kPeerLost);
  region->doubted = true;
  if (operation->verb == Verb::kRead || has_moved) {
    peer.resend.push(slice);
    return;
  }
  const bool is_asked = std::ranges::any_of(peer.held, [&](const HeldWrite& held) {
    return held.slot == place.theirs && held.epoch == place.remote_epoch;
  });
  peer.held.push_back({place.theirs, place.remote_epoch, slice});
  if (!is_asked && peer.link.introduced()) {
    static_cast<void>(peer.link->send(encode(MoveBody{place.remote_epoch, place.theirs, 0})));
  }
}

// The peer has told where it serves now.
void Requester::release_held(Peer& peer) {
  std::map<std::uint8_t, std::uint64_t> open;
  std::erase_if(peer.held, [&](const HeldWrite& held) {
    if (peer.epochs[held.slot] == held.epoch) {
      open[held.slot] = held.epoch;
      return false;
    }
    peer.resend.push(held.slice);
    return true;
  });
  // What it was asked on a link before this one it may not have heard.
  for (const auto& [slot, epoch] : open) {
    static_cast<void>(peer.link->send(encode(MoveBody{epoch, slot, 0})));
  }
}

void Requester::on_completion(Peer& peer, std::size_t at, const Completion& completion,
                              std::uint64_t now_ns) {
  Place& place = peer.places[at];
  const auto taken = place.lane->take(completion);
  if (!taken) return;
  const Slice slice = *taken;
  place.since_ns = now_ns;
  pump_later(peer);
  if (slice.operation == kNoOperation) {
    return on_looked(peer, at, completion.error == 0, now_ns);
  }
  peer.rails.on_done(at, slice.size_bytes);
  wake_waiting_for_credit();
  if (completion.error != 0) {
    const std::string why =
        place.lane->domain().library().error_text("a request failed", completion.error);
    place.why = why;
    take_back(peer, place, slice);
    if (++place.failures >= kMostFailures) fail_lane(peer, at, why, now_ns);
    return;
  }
  place.failures = 0;
  place.measured_bytes += slice.size_bytes;
  if (OperationState* operation = operations_.find(slice.operation)) {
    on_slice_done(*operation, slice);
  }
  measure(peer, place, at, now_ns);
}

bool Requester::poll_lane(Peer& peer, std::size_t at, std::uint64_t now_ns) {
  std::array<Completion, kLaneDepth> completions;
  Place& place = peer.places[at];
  if (place.lane == nullptr) return false;
  const std::size_t count = place.lane->endpoint().poll(completions);
  // One of them may close the lane; the others are taken back with it then.
  for (std::size_t i = 0; i < count && place.lane != nullptr; ++i) {
    on_completion(peer, at, completions[i], now_ns);
  }
  return count > 0;
}

void Requester::activate(Peer& peer) {
  if (std::exchange(peer.active, true)) return;
  active_.push_back(peer.id);
}

bool Requester::poll_lanes(std::uint64_t now_ns) {
  bool any = false;
  std::erase_if(active_, [&](PeerId id) {
    Peer* peer = find(id);
    if (peer == nullptr) return true;
    peer->active = false;
    for (std::size_t at = 0; at < peer->places.size(); ++at) {
      const Place& place = peer->places[at];
      if (place.lane == nullptr || (place.lane->posted() == 0 && !place.full)) continue;
      any = poll_lane(*peer, at, now_ns) || any;
      peer->active = peer->active || (place.lane != nullptr && place.lane->posted() > 0);
    }
    return !peer->active;
  });
  return any;
}

bool Requester::may_sleep() {
  return std::ranges::all_of(active_, [&](PeerId id) {
    Peer* peer = find(id);
    return peer == nullptr || std::ranges::all_of(peer->places, [](const Place& place) {
             if (place.lane == nullptr || place.lane->posted() == 0) return true;
             Endpoint& endpoint = place.lane->endpoint();
             return endpoint.wait_fd() >= 0 && endpoint.may_sleep(place.lane->domain().fabric());
           });
  });
}

// Bytes that came without a pause say how fast the rail is.
void Requester::measure(Peer& peer, Place& place, std::size_t rail, std::uint64_t now_ns) {
  if (place.measured_bytes < kMinSliceBytes || now_ns <= place.measured_ns) return;
  peer.rails.on_measured(rail, place.measured_bytes, now_ns - place.measured_ns);
  place.measured_bytes = 0;
  place.measured_ns = now_ns;
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
  Peer& peer = *find(id);
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    const Lane* lane = peer.places[at].lane.get();
    if (lane != nullptr && lane->carries(operation)) {
      fail_lane(peer, at, "an operation on it did not end by its deadline", now_ns);
    }
  }
}

}  // namespace mc::transport::fabric
