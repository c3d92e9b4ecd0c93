// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/queues.h"

#include <algorithm>

namespace mc::transport::fabric {

namespace {
// Notifications of a peer that were sent and not answered.
constexpr std::size_t kMaxUnanswered = 64;
// A link with so many unsent bytes takes no further notification.
constexpr std::size_t kMaxUnsentBytes = 128 * 1024;
}  // namespace

Outcome Queues::add(FabricPeer& peer, OperationState& operation, std::uint64_t now_ns) {
  peer.used_ns = now_ns;
  if (operation.verb == Verb::kNotify) {
    peer.notices_waiting.push(operation.id);
    return Outcome::kDone;
  }
  if (!regions_.find(operation.pieces)) return Outcome::kInvalid;
  requester_.wake(peer, now_ns);
  const bool is_small = operation.size_bytes <= one_sided::kSmallBytes;
  (is_small ? peer.small_waiting : peer.bulk_waiting).push(operation.id);
  return Outcome::kDone;
}

void Queues::pump(FabricPeer& peer, std::uint64_t now_ns) {
  pump_notices(peer);
  if (!peer.is_up()) return;
  pump_small(peer, now_ns);
  if (resend(peer, now_ns)) pump_bulk(peer, now_ns);
}

// Notifications are short and rare. The link carries them, and authenticates the sender.
void Queues::pump_notices(FabricPeer& peer) {
  while (peer.link.introduced() && !peer.notices_waiting.empty() &&
         peer.notices_sent.size() < kMaxUnanswered && peer.link->unsent_bytes() < kMaxUnsentBytes) {
    const OperationState* operation = requester_.operations().find(peer.notices_waiting.front());
    peer.notices_waiting.pop();
    if (operation == nullptr) continue;
    std::vector<std::byte> payload;
    for (const Piece& piece : operation->pieces) {
      payload.insert(payload.end(), piece.data, piece.data + piece.size_bytes);
    }
    peer.notices_sent.insert(operation->id);
    if (!peer.link->send(encode(NotifyBody{operation->id}, payload))) return;
  }
}

std::optional<std::size_t> Queues::choose(FabricPeer& peer, std::uint64_t bytes) {
  const auto rail = peer.rails.choose(bytes);
  if (!rail) {
    if (peer.rails.lacks_credit(bytes)) requester_.wait_for_credit(peer);
    return std::nullopt;
  }
  const LaneRecord& place = peer.places[*rail];
  return place.lane->has_room() && !place.full ? rail : std::nullopt;
}

// False: the operation waits for keys, or has been given up.
bool Queues::is_ready(FabricPeer& peer, OperationState& operation) {
  if (!requester_.is_ready(peer, operation)) return false;
  // The peer may allow less now than when the region was imported.
  const bool is_allowed =
      requester_.remote_regions().find(operation.region)->allows(operation.verb);
  if (!is_allowed) requester_.operations().give_up(operation, Outcome::kRefused);
  return is_allowed;
}

std::uint32_t Queues::post(FabricPeer& peer, std::size_t at, OperationState& operation, Slice slice,
                           Cursor* after, std::uint64_t now_ns) {
  LaneRecord& place = peer.places[at];
  const Domain& domain = place.lane->domain();
  const RemoteRegion& region = *requester_.remote_regions().find(operation.region);
  const std::uint64_t offset_bytes = operation.offset_bytes + slice.offset_bytes;
  const std::uint64_t chunk = offset_bytes >> region.described.chunk_shift;
  // A request does not cross the border between two registrations.
  const std::uint64_t border_bytes = (chunk + 1) << region.described.chunk_shift;
  const std::uint64_t limit = std::min<std::uint64_t>(
      {slice.size_bytes, domain.max_request_bytes(), border_bytes - offset_bytes});
  if (!region.described.covers_all(offset_bytes, limit) ||
      !region.has_keys(place.theirs, offset_bytes, limit)) {
    requester_.operations().give_up(operation, Outcome::kStale);
    return 0;
  }
  std::array<iovec, kMaxRequestPieces> places;
  std::array<void*, kMaxRequestPieces> descriptors;
  std::size_t count = 0;
  std::uint64_t covered = 0;
  Cursor cursor = slice.start;
  while (covered < limit && count < domain.max_pieces()) {
    const Piece& piece = operation.pieces[cursor.piece];
    std::byte* const data = piece.data + cursor.offset_bytes;
    const LocalRegions::Key local = regions_.key_of(piece.region, place.ours, data);
    if (local.bytes == 0) {
      // The region was closed meanwhile, or the memory is not registered now.
      requester_.operations().give_up(operation, Outcome::kInvalid);
      return 0;
    }
    const std::uint64_t part =
        std::min({limit - covered, piece.size_bytes - cursor.offset_bytes, local.bytes});
    places[count] = {data, part};
    descriptors[count++] = reinterpret_cast<void*>(local.key);
    covered += part;
    cursor.offset_bytes += part;
    if (cursor.offset_bytes == piece.size_bytes) cursor = {cursor.piece + 1, 0};
  }
  slice.size_bytes = static_cast<std::uint32_t>(covered);
  lanes_.attend(peer, domain, now_ns);
  const bool was_idle = place.lane->posted() == 0;
  const RemotePlace remote{region.described.address_of(offset_bytes),
                           region.keys[place.theirs]->keys[chunk]};
  ++requester_.counters().send_calls;
  const Lane::Posted posted =
      place.lane->post(slice, operation.verb, std::span(places).first(count),
                       std::span<void* const>(descriptors).first(count), remote);
  if (posted == Lane::Posted::kLater) {
    lanes_.on_full(peer, place);
    return 0;
  }
  if (posted == Lane::Posted::kFailed) {
    lanes_.fail(peer, at, "the provider takes no request", now_ns);
    return 0;
  }
  *after = cursor;
  if (was_idle) {
    place.since_ns = now_ns;
    place.measured_ns = now_ns;
    place.measured_bytes = 0;
  }
  lanes_.activate(peer);
  ++operation.slices_out;
  peer.rails.on_sent(at, covered);
  return slice.size_bytes;
}

void Queues::pump_small(FabricPeer& peer, std::uint64_t now_ns) {
  for (; !peer.small_waiting.empty(); peer.small_waiting.pop()) {
    const OperationId id = peer.small_waiting.front();
    if (!requester_.operations().goes_on(id)) continue;
    OperationState* operation = requester_.operations().find(id);
    if (!is_ready(peer, *operation)) {
      if (!requester_.operations().goes_on(id)) continue;
      return;
    }
    while (operation->cut_bytes < operation->size_bytes) {
      const std::uint64_t left = operation->size_bytes - operation->cut_bytes;
      const auto place = choose(peer, left);
      if (!place) return;
      const Slice slice{id, operation->cut_bytes, static_cast<std::uint32_t>(left), 0,
                        operation->cut_at};
      const std::uint32_t bytes = post(peer, *place, *operation, slice, &operation->cut_at, now_ns);
      if (!requester_.operations().goes_on(id)) break;
      if (bytes == 0) return;
      operation->cut_bytes += bytes;
    }
  }
}

// False: a slice must wait for room or keys.
bool Queues::resend(FabricPeer& peer, std::uint64_t now_ns) {
  while (!peer.resend.empty()) {
    Slice& slice = peer.resend.front();
    const OperationId id = slice.operation;
    if (!requester_.operations().goes_on(id)) {
      peer.resend.pop();
      continue;
    }
    OperationState* operation = requester_.operations().find(id);
    if (!is_ready(peer, *operation)) {
      if (!requester_.operations().goes_on(id)) continue;
      return false;
    }
    const auto place = choose(peer, slice.size_bytes);
    if (!place) return false;
    Cursor after;
    const std::uint32_t bytes = post(peer, *place, *operation, slice, &after, now_ns);
    if (bytes == 0 && requester_.operations().goes_on(id)) return false;
    if (bytes > 0) ++requester_.counters().resent_slices;
    if (bytes == 0 || bytes == slice.size_bytes) {
      peer.resend.pop();
      continue;
    }
    // The domain takes fewer pieces at once than the slice's former domain.
    slice.offset_bytes += bytes;
    slice.size_bytes -= bytes;
    slice.start = after;
  }
  return true;
}

void Queues::pump_bulk(FabricPeer& peer, std::uint64_t now_ns) {
  while (!peer.bulk_waiting.empty()) {
    const OperationId id = peer.bulk_waiting.front();
    if (!requester_.operations().goes_on(id)) {
      peer.bulk_waiting.pop();
      continue;
    }
    OperationState* operation = requester_.operations().find(id);
    if (!is_ready(peer, *operation)) {
      if (!requester_.operations().goes_on(id)) continue;
      return;
    }
    const std::uint64_t left = operation->size_bytes - operation->cut_bytes;
    std::uint64_t bytes =
        std::min<std::uint64_t>(left, peer.rails.slice_bytes(operation->size_bytes));
    // A tail below a quarter of a slice joins the slice before it.
    if (left - bytes < bytes / 4 && left <= kMaxSliceBytes) bytes = left;
    const auto place = choose(peer, bytes);
    if (!place) return;
    const Slice slice{id, operation->cut_bytes, static_cast<std::uint32_t>(bytes), 0,
                      operation->cut_at};
    const std::uint32_t posted = post(peer, *place, *operation, slice, &operation->cut_at, now_ns);
    if (posted == 0 && requester_.operations().goes_on(id)) return;
    peer.bulk_waiting.pop();
    if (posted == 0) continue;
    operation->cut_bytes += posted;
    if (operation->cut_bytes < operation->size_bytes) peer.bulk_waiting.push(id);
  }
}

}  // namespace mc::transport::fabric
