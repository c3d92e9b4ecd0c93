// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/queues.h"

#include <algorithm>

namespace mc::transport::rdma {

namespace {
// The bytes that an operation posts before other operations have a turn.
constexpr std::uint64_t kTurnBytes = kMaxSliceBytes;
}  // namespace

Outcome Queues::add(RdmaPeer& peer, OperationState& operation, std::uint64_t now_ns) {
  // A single request carries the whole notification.
  if (operation.verb == Verb::kNotify && operation.pieces.size() > kMaxSlicePieces) {
    return Outcome::kInvalid;
  }
  if (!regions_.find(operation.pieces)) return Outcome::kInvalid;
  const bool is_small = operation.size_bytes <= one_sided::kSmallBytes;
  operation.near = Rails::kAllNear;
  if (options_.near && !is_small) {
    operation.near = options_.near(operation.pieces.front().data, lanes_.device_names());
  }
  requester_.wake(peer, now_ns);
  if (is_small) {
    peer.small_waiting.push(operation.id);
    return Outcome::kDone;
  }
  auto& waiting = peer.bulk_waiting[static_cast<std::size_t>(operation.priority)];
  if (waiting.empty()) peer.turns.arrived(operation.priority);
  waiting.push(operation.id);
  return Outcome::kDone;
}

void Queues::pump(RdmaPeer& peer, std::uint64_t now_ns) {
  if (!peer.is_up()) return;
  if (!peer.small_waiting.empty()) pump_small(peer, now_ns);
  if (peer.resend.empty() || resend(peer, now_ns)) pump_bulk(peer, now_ns);
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    LaneRecord& place = peer.places[at];
    if (!place.must_flush) continue;
    place.must_flush = false;
    ++requester_.counters().send_calls;
    if (!place.lane->flush()) lanes_.fail(peer, at, "the device takes no more requests", now_ns);
  }
}

std::uint64_t Queues::near_rails(const RdmaPeer& peer, const OperationState& operation) const {
  if (operation.near == Rails::kAllNear) return Rails::kAllNear;
  std::uint64_t rails = 0;
  const std::size_t count = peer.paths.size() * options_.bulk_pairs;
  for (std::size_t rail = 0; rail < std::min<std::size_t>(count, 64); ++rail) {
    const std::uint8_t device = peer.paths[rail % peer.paths.size()].ours;
    rails |= (operation.near >> device & 1) << rail;
  }
  return rails;
}

bool Queues::choose(RdmaPeer& peer, std::uint64_t bytes, bool small,
                    const OperationState& operation, Run& run) {
  const bool on_small = peer.small.up_count() > 0 && (small || peer.bulk.up_count() == 0);
  const Rails& rails = on_small ? peer.small : peer.bulk;
  const auto chosen = rails.choose_run(bytes, near_rails(peer, operation), operation.priority);
  if (!chosen) {
    if (rails.lacks_credit(bytes, operation.priority)) requester_.wait_for_credit(peer);
    return false;
  }
  run = {on_small ? chosen->rail : chosen->rail + peer.paths.size(), chosen->bytes,
         // At most a quarter of the window is done without the requester's knowledge.
         rails.window_bytes(chosen->rail) / 4, operation.priority, chosen->is_only};
  return peer.places[run.at].lane->room() > 0;
}

// False: the operation waits for keys, or has been given up.
bool Queues::is_ready(RdmaPeer& peer, OperationState& operation) {
  return operation.verb == Verb::kNotify || requester_.is_ready(peer, operation);
}

Outcome Queues::find_stretch(const Path& path, const OperationState& operation, const Part& part,
                             Stretch& stretch) {
  const Piece& piece = operation.pieces[part.at.piece];
  const std::byte* const data = piece.data + part.at.offset_bytes;
  const LocalRegions::Key local = regions_.key_of(piece.region, path.ours, data);
  if (local.bytes == 0) return Outcome::kInvalid;
  stretch.local = reinterpret_cast<std::uintptr_t>(data);
  stretch.local_key = static_cast<std::uint32_t>(local.key);
  stretch.bytes = std::min(local.bytes, piece.size_bytes - part.at.offset_bytes);
  if (operation.verb == Verb::kNotify) return Outcome::kDone;
  const RemoteRegion& region = *requester_.remote_regions().find(operation.region);
  const RegionKeys* keys = region.keys[path.theirs];
  const std::uint64_t offset = operation.offset_bytes + part.offset_bytes;
  const std::uint64_t chunk = offset >> region.described.chunk_shift;
  if (keys == nullptr || keys->keys[chunk] == 0) return Outcome::kStale;
  stretch.remote = region.described.base + offset;
  stretch.remote_key = static_cast<std::uint32_t>(keys->keys[chunk]);
  const std::uint64_t border = (chunk + 1) << region.described.chunk_shift;
  stretch.bytes = std::min(stretch.bytes, border - offset);
  return Outcome::kDone;
}

// Posts slices of a stretch that end by limit_bytes; returns the count. The slices differ only by
// the offset in the operation.
std::uint32_t Queues::post_straight(Lane& lane, const Run& run, const OperationState& operation,
                                    Part& part, Stretch& stretch, std::uint64_t limit_bytes,
                                    std::uint64_t now_ns) {
  const std::uint32_t room = lane.room();
  const std::uint64_t begin_bytes = part.offset_bytes;
  const std::uint64_t last_bytes = std::min(limit_bytes, begin_bytes + stretch.bytes);
  std::uint64_t offset_bytes = begin_bytes;
  std::uint32_t count = 0;
  for (; offset_bytes < last_bytes && count < room; ++count) {
    const std::uint64_t bytes = part.bytes_from(offset_bytes);
    if (offset_bytes + bytes > last_bytes) break;
    const std::uint64_t ahead_bytes = offset_bytes - begin_bytes;
    const auto size = static_cast<std::uint32_t>(bytes);
    const Lane::Next next = lane.next();
    next.slice = {operation.id, offset_bytes, size, operation.priority, part.at, now_ns};
    next.slice.start.offset_bytes += ahead_bytes;
    next.pieces[0] = {stretch.local + ahead_bytes, size, stretch.local_key};
    next.request.num_sge = 1;
    next.request.wr.rdma.remote_addr = stretch.remote + ahead_bytes;
    next.request.wr.rdma.rkey = stretch.remote_key;
    lane.add(next, operation.verb, run.signal_bytes);
    offset_bytes += bytes;
  }
  part.advance(operation, stretch, offset_bytes - begin_bytes);
  return count;
}

// Posts a slice of several stretches, as much of the slice as a request can carry. In the peer's
// memory a request does not cross the border between two registrations.
Outcome Queues::post_gathered(Lane& lane, const Run& run, const OperationState& operation,
                              Part& part, Stretch& stretch, const Path& path,
                              std::uint64_t now_ns) {
  const std::uint64_t begin_bytes = part.offset_bytes;
  const std::uint64_t end_bytes = begin_bytes + part.bytes_from(begin_bytes);
  const std::uint32_t remote_key = stretch.remote_key;
  const Lane::Next next = lane.next();
  next.slice = {operation.id, begin_bytes, 0, operation.priority, part.at, now_ns};
  next.request.wr.rdma.remote_addr = stretch.remote;
  next.request.wr.rdma.rkey = remote_key;
  std::uint32_t count = 0;
  for (;;) {
    const std::uint64_t size = std::min(end_bytes - part.offset_bytes, stretch.bytes);
    next.pieces[count++] = {stretch.local, static_cast<std::uint32_t>(size), stretch.local_key};
    part.advance(operation, stretch, size);
    if (part.offset_bytes == end_bytes || count == next.most_pieces) break;
    const Outcome outcome = find_stretch(path, operation, part, stretch);
    if (outcome != Outcome::kDone) return outcome;
    if (stretch.remote_key != remote_key) break;
  }
  const bool is_whole = part.offset_bytes == end_bytes;
  if (operation.verb == Verb::kNotify && !is_whole) return Outcome::kUnsupported;
  next.slice.size_bytes = static_cast<std::uint32_t>(part.offset_bytes - begin_bytes);
  next.request.num_sge = static_cast<int>(count);
  lane.add(next, operation.verb, run.signal_bytes);
  return Outcome::kDone;
}

bool Queues::post(RdmaPeer& peer, Run& run, OperationState& operation, Part& part,
                  std::uint64_t now_ns) {
  LaneRecord& place = peer.places[run.at];
  Lane& lane = *place.lane;
  if (lane.posted() == 0) place.since_ns = now_ns;
  const std::uint64_t begin_bytes = part.offset_bytes;
  const std::uint64_t limit_bytes = begin_bytes + run.bytes;
  std::uint32_t count = 0;
  Outcome outcome = Outcome::kDone;
  while (part.offset_bytes < part.end_bytes && lane.room() > 0) {
    const std::uint64_t bytes = part.bytes_from(part.offset_bytes);
    if (part.offset_bytes + bytes > limit_bytes) break;
    Stretch stretch;
    outcome = find_stretch(place.path, operation, part, stretch);
    if (outcome != Outcome::kDone) break;
    if (stretch.bytes >= bytes) {
      count += post_straight(lane, run, operation, part, stretch, limit_bytes, now_ns);
      continue;
    }
    outcome = post_gathered(lane, run, operation, part, stretch, place.path, now_ns);
    if (outcome != Outcome::kDone) break;
    ++count;
  }
  if (count > 0) {
    const Slice& newest = lane.newest();
    const std::uint64_t sent_bytes = newest.offset_bytes + newest.size_bytes - begin_bytes;
    place.must_flush = true;
    operation.slices_out += count;
    run.bytes -= sent_bytes;
    place.rails->on_sent(place.rail, {sent_bytes, now_ns, operation.priority}, count);
  }
  if (outcome != Outcome::kDone) requester_.operations().give_up(operation, outcome);
  return outcome == Outcome::kDone;
}

// Posts the rest of the part as far as there is room, and removes the posted bytes from the part.
Queues::Posted Queues::post_all(RdmaPeer& peer, OperationState& operation, Part& part, bool small,
                                Run& run, std::uint64_t now_ns) {
  while (part.offset_bytes < part.end_bytes) {
    const std::uint64_t bytes = part.bytes_from(part.offset_bytes);
    const bool goes_on = bytes <= run.bytes && operation.priority == run.priority &&
                         peer.places[run.at].lane->room() > 0;
    const bool is_full = run.is_only && operation.priority == run.priority;
    if (!goes_on && (is_full || !choose(peer, bytes, small, operation, run))) {
      return Posted::kNoRoom;
    }
    if (!post(peer, run, operation, part, now_ns)) return Posted::kGivenUp;
  }
  return Posted::kAll;
}

void Queues::pump_small(RdmaPeer& peer, std::uint64_t now_ns) {
  Run run;
  for (; !peer.small_waiting.empty(); peer.small_waiting.pop()) {
    const OperationId id = peer.small_waiting.front();
    OperationState* operation = requester_.operations().find(id);
    if (operation == nullptr || operation->failure != Outcome::kDone) continue;
    if (!is_ready(peer, *operation)) {
      if (requester_.operations().find(id) == nullptr) continue;
      return;
    }
    Part part{operation->cut_bytes, operation->size_bytes, operation->size_bytes,
              operation->cut_at};
    const Posted posted = post_all(peer, *operation, part, true, run, now_ns);
    if (posted == Posted::kGivenUp) continue;
    operation->cut_bytes = part.offset_bytes;
    operation->cut_at = part.at;
    if (posted == Posted::kNoRoom) return;
  }
}

// False: a slice must wait for room or keys.
bool Queues::resend(RdmaPeer& peer, std::uint64_t now_ns) {
  while (!peer.resend.empty()) {
    Slice& slice = peer.resend.front();
    OperationState* operation = requester_.operations().find(slice.operation);
    if (operation == nullptr || operation->failure != Outcome::kDone) {
      peer.resend.pop();
      continue;
    }
    if (!is_ready(peer, *operation)) {
      if (requester_.operations().find(slice.operation) == nullptr) continue;
      return false;
    }
    const std::uint64_t end_bytes = slice.offset_bytes + slice.size_bytes;
    Part part{slice.offset_bytes, end_bytes, slice.size_bytes, slice.start};
    Run run;
    const bool is_small = operation->size_bytes <= one_sided::kSmallBytes;
    if (post_all(peer, *operation, part, is_small, run, now_ns) == Posted::kNoRoom) {
      // The other device may take fewer pieces at once, so a part of the slice may be posted.
      slice.size_bytes = static_cast<std::uint32_t>(end_bytes - part.offset_bytes);
      slice.offset_bytes = part.offset_bytes;
      slice.start = part.at;
      return false;
    }
    ++requester_.counters().resent_slices;
    peer.resend.pop();
  }
  return true;
}

void Queues::pump_bulk(RdmaPeer& peer, std::uint64_t now_ns) {
  std::uint32_t waiting = 0;
  for (std::uint32_t i = 0; i < kPriorityCount; ++i) {
    if (!peer.bulk_waiting[i].empty()) waiting |= 1u << i;
  }
  while (const auto priority = peer.turns.next(waiting)) {
    const auto i = static_cast<std::size_t>(*priority);
    const bool alone = peer.bulk_waiting[i].size() == 1 && waiting == 1u << i;
    const std::uint64_t most_bytes = alone ? kMaxOperationBytes : kTurnBytes;
    // A rail that is full for one class may have room for a higher class.
    if (!take_turn(peer, *priority, most_bytes, now_ns) || peer.bulk_waiting[i].empty()) {
      waiting &= ~(1u << i);
    }
  }
}

// Posts slices of the class's first operation, which then goes to the end. False: no room, or no
// key yet.
bool Queues::take_turn(RdmaPeer& peer, Priority priority, std::uint64_t most_bytes,
                       std::uint64_t now_ns) {
  Queue<OperationId>& queue = peer.bulk_waiting[static_cast<std::size_t>(priority)];
  const OperationId id = queue.front();
  OperationState* operation = requester_.operations().find(id);
  if (operation == nullptr || operation->failure != Outcome::kDone) {
    queue.pop();
    return true;
  }
  if (!is_ready(peer, *operation)) return requester_.operations().find(id) == nullptr;
  const Rails& rails = peer.bulk.up_count() > 0 ? peer.bulk : peer.small;
  const std::uint64_t before_bytes = operation->cut_bytes;
  Part part{before_bytes, operation->size_bytes, rails.slice_bytes(operation->size_bytes),
            operation->cut_at};
  part.end_bytes = part.turn_end(most_bytes);
  Run run;
  const Posted posted = post_all(peer, *operation, part, false, run, now_ns);
  peer.turns.took(priority, part.offset_bytes - before_bytes);
  if (posted == Posted::kGivenUp) {
    queue.pop();
    return true;
  }
  operation->cut_bytes = part.offset_bytes;
  operation->cut_at = part.at;
  if (operation->cut_bytes == operation->size_bytes) {
    queue.pop();
  } else if (operation->cut_bytes > before_bytes && queue.size() > 1) {
    queue.pop();
    queue.push(id);
  }
  return posted == Posted::kAll;
}

}  // namespace mc::transport::rdma
