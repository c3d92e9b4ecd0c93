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

Requester::~Requester() {
  for (auto& peer : peers_) {
    if (peer && peer->link) edges_.forget(peer->link->socket(), peer.get());
  }
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
  } else {
    const RemoteRegion* region = remote_regions_.find(operation.region);
    if (region == nullptr || region->gone || !region->known) return Outcome::kStale;
    if (region->peer != operation.peer || *bytes > region->described.size_bytes ||
        operation.offset_bytes > region->described.size_bytes - *bytes) {
      return Outcome::kInvalid;
    }
    const std::uint32_t needed = operation.verb == Verb::kRead ? kRemoteRead : kRemoteWrite;
    if ((region->described.rights & needed) == 0) return Outcome::kRefused;
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
    if (outcome == Outcome::kDone && !find_regions(*state)) outcome = Outcome::kInvalid;
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

bool Requester::find_regions(OperationState& state) const {
  for (Piece& piece : state.pieces) {
    piece.region = regions_.find(piece);
    if (piece.region == kNoRegion) return false;
  }
  return true;
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

void Requester::on_slice(Peer& peer, std::size_t place, const Slice& slice, Outcome outcome,
                         std::uint64_t) {
  rails_of(peer, place).on_done(rail_of(peer, place), slice.size_bytes, slice.priority);
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

void Requester::on_completion(const ibv_wc& completion, std::uint64_t now_ns) {
  const std::uint32_t index = Lane::index_of(completion.wr_id);
  if (index >= lanes_.size() || lanes_[index].peer == nullptr) return;
  Peer& peer = *lanes_[index].peer;
  const std::size_t at = lanes_[index].place;
  Place& place = peer.places[at];
  if (!place.lane->is_mine(completion.wr_id)) return;
  if (completion.status != IBV_WC_SUCCESS) {
    fail_lane(peer, at, "a request failed: status " + std::to_string(completion.status), now_ns,
              &completion);
    return;
  }
  for (std::uint32_t count = place.lane->done_by(completion.wr_id); count > 0; --count) {
    const Slice slice = place.lane->at(0);
    place.lane->pop();
    place.measured_bytes += slice.size_bytes;
    if (slice.operation != kNoOperation) on_slice(peer, at, slice, Outcome::kDone, now_ns);
  }
  place.since_ns = now_ns;
  if (place.state == LaneState::kProbing) {
    place.state = LaneState::kUp;
    place.why.clear();
    rails_of(peer, at).on_up(rail_of(peer, at));
    if (peer.lost) {
      peer.lost = false;
      tell(Event::Kind::kPeerBack, peer.id);
    }
  }
  measure(peer, at, now_ns);
  pump_later(peer);
}

// Bytes that came without a pause say how fast the rail is.
void Requester::measure(Peer& peer, std::size_t at, std::uint64_t now_ns) {
  Place& place = peer.places[at];
  if (place.measured_bytes >= kMinSliceBytes && now_ns > place.measured_ns) {
    rails_of(peer, at).on_measured(rail_of(peer, at), place.measured_bytes,
                                   now_ns - place.measured_ns);
    place.measured_bytes = 0;
    place.measured_ns = now_ns;
  }
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

// ---- From queues to lanes ---------------------------------------------------------------------

void Requester::pump_later(Peer& peer) {
  if (peer.listed) return;
  peer.listed = true;
  pump_.push_back(peer.id);
}

void Requester::pump_all(std::uint64_t now_ns) {
  for (std::size_t i = 0; i < pump_.size(); ++i) {
    Peer* peer = find(pump_[i]);
    if (peer == nullptr) continue;
    peer->listed = false;
    pump(*peer, now_ns);
  }
  pump_.clear();
}

void Requester::pump(Peer& peer, std::uint64_t now_ns) {
  if (!is_up(peer)) return;
  static_cast<void>(pump_small(peer, now_ns));
  if (resend(peer, now_ns)) pump_bulk(peer, now_ns);
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    Place& place = peer.places[at];
    if (!place.must_flush) continue;
    place.must_flush = false;
    ++counters_.send_calls;
    if (!place.lane->flush()) fail_lane(peer, at, "the device takes no more requests", now_ns);
  }
}

std::uint64_t Requester::near_rails(const Peer& peer, const OperationState& operation) const {
  if (operation.near == Rails::kAllNear) return Rails::kAllNear;
  std::uint64_t rails = 0;
  const std::size_t count = peer.paths.size() * options_.bulk_pairs;
  for (std::size_t rail = 0; rail < std::min<std::size_t>(count, 64); ++rail) {
    const std::uint8_t device = peer.paths[rail % peer.paths.size()].ours;
    rails |= (operation.near >> device & 1) << rail;
  }
  return rails;
}

std::optional<std::size_t> Requester::choose(const Peer& peer, std::uint64_t bytes, bool small,
                                             const OperationState& operation) const {
  const bool on_small = peer.small.up_count() > 0 && (small || peer.bulk.up_count() == 0);
  const auto rail = (on_small ? peer.small : peer.bulk)
                        .choose(bytes, near_rails(peer, operation), operation.priority);
  if (!rail) return std::nullopt;
  const std::size_t place = on_small ? *rail : *rail + peer.paths.size();
  return peer.places[place].lane->has_room() ? std::optional(place) : std::nullopt;
}

// False: it waits for keys, or has been given up.
bool Requester::is_ready(Peer& peer, OperationState& operation) {
  if (operation.verb == Verb::kNotify) return true;
  RemoteRegion* region = remote_regions_.find(operation.region);
  const auto state = region == nullptr ? RemoteRegions::State::kGone
                                       : RemoteRegions::check(*region, peer.epochs, peer.version);
  if (state == RemoteRegions::State::kMustAsk) {
    static_cast<void>(peer.link->send(encode(RegionBody{region->asked_as})));
  }
  if (state == RemoteRegions::State::kGone) give_up(operation, Outcome::kStale);
  return state == RemoteRegions::State::kReady;
}

std::uint32_t Requester::post(Peer& peer, std::size_t at, OperationState& operation, Slice slice,
                              Cursor* after, std::uint64_t now_ns) {
  Place& place = peer.places[at];
  Device& device = place.lane->device();
  std::uint64_t limit = slice.size_bytes;
  RemotePlace remote;
  if (operation.verb != Verb::kNotify) {
    const RemoteRegion& region = *remote_regions_.find(operation.region);
    const RegionKeys* keys = region.keys[place.path.theirs];
    const std::uint64_t offset = operation.offset_bytes + slice.offset_bytes;
    const std::uint64_t chunk = offset >> region.described.chunk_shift;
    if (keys == nullptr || keys->keys[chunk] == 0) {
      give_up(operation, Outcome::kStale);
      return 0;
    }
    // A request may not cross the border between two registrations.
    limit = std::min(limit, ((chunk + 1) << region.described.chunk_shift) - offset);
    remote = {region.described.base + offset, keys->keys[chunk]};
  }
  std::array<ibv_sge, kMaxSlicePieces> places;
  std::uint32_t count = 0;
  std::uint64_t covered = 0;
  Cursor cursor = slice.start;
  while (covered < limit && count < device.max_pieces()) {
    const Piece& piece = operation.pieces[cursor.piece];
    std::byte* data = piece.data + cursor.offset_bytes;
    const LocalRegions::Key key = regions_.key_of(piece.region, place.path.ours, data);
    if (key.bytes == 0) {
      give_up(operation, Outcome::kInvalid);
      return 0;
    }
    const std::uint64_t part =
        std::min({limit - covered, piece.size_bytes - cursor.offset_bytes, key.bytes});
    places[count++] = {reinterpret_cast<std::uint64_t>(data), static_cast<std::uint32_t>(part),
                       key.key};
    covered += part;
    cursor.offset_bytes += part;
    if (cursor.offset_bytes == piece.size_bytes) cursor = {cursor.piece + 1, 0};
  }
  if (operation.verb == Verb::kNotify && covered < limit) {
    give_up(operation, Outcome::kUnsupported);
    return 0;
  }
  slice.size_bytes = static_cast<std::uint32_t>(covered);
  *after = cursor;
  if (place.lane->posted() == 0) {
    place.since_ns = now_ns;
    place.measured_ns = now_ns;
    place.measured_bytes = 0;
  }
  place.lane->add(slice, operation.verb, std::span(places).first(count), remote);
  place.must_flush = true;
  ++operation.slices_out;
  rails_of(peer, at).on_sent(rail_of(peer, at), covered, slice.priority);
  return slice.size_bytes;
}

bool Requester::pump_small(Peer& peer, std::uint64_t now_ns) {
  for (; !peer.small_waiting.empty(); peer.small_waiting.pop()) {
    OperationState* operation = operations_.find(peer.small_waiting.front());
    if (operation == nullptr || operation->failure != Outcome::kDone) continue;
    const OperationId id = operation->id;
    if (!is_ready(peer, *operation)) {
      if (operations_.find(id) == nullptr) continue;
      return false;
    }
    while (operation->cut_bytes < operation->size_bytes) {
      const std::uint64_t left = operation->size_bytes - operation->cut_bytes;
      const auto place = choose(peer, left, true, *operation);
      if (!place) return false;
      const Slice slice{id, operation->cut_bytes, static_cast<std::uint32_t>(left),
                        operation->cut_at, operation->priority};
      const std::uint32_t bytes = post(peer, *place, *operation, slice, &operation->cut_at, now_ns);
      if (bytes == 0) break;
      operation->cut_bytes += bytes;
    }
  }
  return true;
}

// False: some must wait for room.
bool Requester::resend(Peer& peer, std::uint64_t now_ns) {
  while (!peer.resend.empty()) {
    Slice& slice = peer.resend.front();
    OperationState* operation = operations_.find(slice.operation);
    if (operation == nullptr || operation->failure != Outcome::kDone) {
      peer.resend.pop();
      continue;
    }
    if (!is_ready(peer, *operation)) {
      if (operations_.find(slice.operation) == nullptr) continue;
      return false;
    }
    const auto place =
        choose(peer, slice.size_bytes, operation->size_bytes <= kSmallBytes, *operation);
    if (!place) return false;
    ++counters_.resent_slices;
    Cursor after;
    const std::uint32_t bytes = post(peer, *place, *operation, slice, &after, now_ns);
    if (bytes == 0 || bytes == slice.size_bytes) {
      peer.resend.pop();
      continue;
    }
    // The other device takes fewer pieces at once.
    slice.offset_bytes += bytes;
    slice.size_bytes -= bytes;
    slice.start = after;
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
    // Full for one class is not full for a higher one.
    if (!post_next(peer, *priority, now_ns) || peer.bulk_waiting[i].empty()) waiting &= ~(1u << i);
  }
}

// A slice of the first operation of that class, which then goes to the end. False: no room, or no
// key yet.
bool Requester::post_next(Peer& peer, Priority priority, std::uint64_t now_ns) {
  Queue<OperationId>& queue = peer.bulk_waiting[static_cast<std::size_t>(priority)];
  const OperationId id = queue.front();
  OperationState* operation = operations_.find(id);
  if (operation == nullptr || operation->failure != Outcome::kDone) {
    queue.pop();
    return true;
  }
  if (!is_ready(peer, *operation)) return operations_.find(id) == nullptr;
  const std::uint64_t left = operation->size_bytes - operation->cut_bytes;
  const Rails& rails = peer.bulk.up_count() > 0 ? peer.bulk : peer.small;
  std::uint64_t bytes = std::min<std::uint64_t>(left, rails.slice_bytes(operation->size_bytes));
  // A tail that is not worth a slice goes with the one before.
  if (left - bytes < bytes / 4 && left <= kMaxSliceBytes) bytes = left;
  const auto place = choose(peer, bytes, false, *operation);
  if (!place) return false;
  const Slice slice{id, operation->cut_bytes, static_cast<std::uint32_t>(bytes), operation->cut_at,
                    priority};
  const std::uint32_t posted = post(peer, *place, *operation, slice, &operation->cut_at, now_ns);
  if (posted > 0) {
    peer.turns.took(priority, posted);
    operation->cut_bytes += posted;
    if (operation->cut_bytes < operation->size_bytes) {
      if (queue.size() == 1) return true;
      queue.push(id);
    }
  }
  queue.pop();
  return true;
}

}  // namespace mc::transport::rdma
