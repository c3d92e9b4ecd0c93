// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/clearing.h"

#include <algorithm>

#include "shm/pins.h"

namespace mc::agent {

namespace {

// A step evicts or moves at most this much, which takes well below a millisecond.
constexpr std::uint64_t kStepObjects = 128;
constexpr std::uint64_t kStepBytes = 1ull << 20;
// A larger object cannot be copied within a step; in the way it is evicted.
constexpr std::uint64_t kMaxMoveBytes = 4ull << 20;
constexpr unsigned kLookBlocks = 32;   // blocks examined to choose a side
constexpr unsigned kHopBlocks = 4096;  // blocks passed over in search of the next free block
constexpr unsigned kMaxHops = 64;
constexpr unsigned kMaxStalledSteps = 8;  // a reader's copy may end meanwhile

std::uint64_t in_granules(std::uint64_t bytes) {
  return (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
}

using Kind = ExtentAllocator::Neighbour::Kind;

}  // namespace

bool Clearing::is_for(std::uint64_t bytes) const {
  return active() && place_.wanted_bytes == in_granules(bytes);
}

bool Clearing::clear(std::uint64_t bytes, PoolExtents& extents) {
  const std::uint64_t wanted_bytes = in_granules(bytes);
  if (!active()) {
    if (useless_) return false;
    place_.wanted_bytes = wanted_bytes;
  }
  if (place_.wanted_bytes != wanted_bytes) return false;
  place_.asked = true;
  if (step_turn_ == turn_) return false;
  step_turn_ = turn_;
  step();
  if (!active()) return false;
  if (place_.held.bytes() == wanted_bytes) {
    extents = place_.held;
    place_ = ClearedMemory{};
    return true;
  }
  // Large neighbours leave room at once, and other clients may have given something back.
  if (!pool_.allocate(bytes, place_.held.count == 0, extents)) return false;
  give_up();
  return true;
}

void Clearing::tick() {
  if (active() && !place_.asked) give_up();
  place_.asked = false;
  useless_ = false;
}

void Clearing::give_up(bool until_tick) {
  for (std::uint32_t i = 0; i < place_.held.count; ++i) pool_.free(place_.held.at[i]);
  const bool asked = place_.asked;
  place_ = ClearedMemory{};
  place_.asked = asked;
  useless_ = until_tick;
}

void Clearing::step() {
  if (pool_.free_bytes() < missing_bytes()) {
    free_missing(missing_bytes() - pool_.free_bytes());
    return;
  }
  if (place_.held.count == 0 && !begin_piece()) {
    give_up(true);
    return;
  }
  bool progress = absorb_beside();
  if (missing_bytes() > 0) {
    empty_beside();
    limbo_.reclaim();
    progress |= absorb_beside();
  }
  place_.stalled_steps = progress ? 0 : place_.stalled_steps + 1;
  if (place_.stalled_steps > kMaxStalledSteps) hop_over_obstacle();
}

// Evicts the policy's first victims. Pins of readers can delay the room; then more objects must go.
void Clearing::free_missing(std::uint64_t missing) {
  const std::uint64_t start = counters_.evicted_bytes;
  const std::uint64_t wanted = std::min(missing, kStepBytes);
  std::uint64_t count = 0;
  while (count < kStepObjects && counters_.evicted_bytes - start < wanted) {
    if (evictor_.evict_batch(1) == 0) break;
    ++count;
  }
  limbo_.reclaim();
  // No object can be evicted: all bytes are hard pinned, reserved or being read.
  if (count == 0) give_up(true);
}

bool Clearing::begin_piece() {
  if (!pool_.take_largest(place_.wanted_bytes, place_.held.at[0])) return false;
  place_.held.count = 1;
  place_.pins = limbo_.sorted_pins();
  return true;
}

// Takes the free blocks beside the piece. Returns false if there were none.
bool Clearing::absorb_beside() {
  bool grew = false;
  for (const Side side : {Side::kBehind, Side::kBefore}) {
    while (pool_.grow_into(piece(), side, missing_bytes())) grew = true;
  }
  return grew;
}

// True if the object can be moved or evicted now. The pins are only a hint: an object that was
// pinned since then waits in limbo.
bool Clearing::can_leave(std::uint32_t id) const {
  if (id >= index_.entry_count()) return false;
  const shm::Entry& entry = index_.entry(id);
  const std::uint64_t version = entry.version.load_relaxed();
  if (shm::state_of(version) != shm::EntryState::kLive) return false;
  const bool hard = key_field(entry).pin == MC_PIN_HARD;
  if (hard && entry.length.load_relaxed() > kMaxMoveBytes) return false;
  return !std::binary_search(place_.pins.begin(), place_.pins.end(), shm::pin_value(id, version));
}

// Returns false for a hard-pinned object without room elsewhere.
bool Clearing::make_leave(std::uint32_t id) {
  const shm::Entry& entry = index_.entry(id);
  if (entry.length.load_relaxed() <= kMaxMoveBytes && mover_.move(id)) return true;
  if (key_field(entry).pin == MC_PIN_HARD) return false;
  evictor_.evict(id, EvictionReason::kRoom, Evictor::Bytes::kGoNow);
  return true;
}

Clearing::Outlook Clearing::look_beside(const PoolExtent& piece, Side side) const {
  Outlook outlook;
  BlockId at = piece.node;
  for (unsigned i = 0; i < kLookBlocks; ++i) {
    const auto beside = pool_.neighbour(piece, at, side);
    if (beside.kind == Kind::kNone) break;
    if (beside.kind == Kind::kUsed) {
      if (!can_leave(beside.owner)) break;
      outlook.used_bytes += beside.granules * kGranuleBytes;
    }
    outlook.bytes += beside.granules * kGranuleBytes;
    at = beside.node;
  }
  return outlook;
}

// Moves objects away from the side with the larger fraction of holes, at most a step's worth.
void Clearing::empty_beside() {
  const PoolExtent from = piece();
  const Outlook behind = look_beside(from, Side::kBehind);
  const Outlook before = look_beside(from, Side::kBefore);
  const Side side = behind.used_share() <= before.used_share() ? Side::kBehind : Side::kBefore;
  const std::uint64_t wanted_bytes = missing_bytes();
  std::uint64_t passed_bytes = 0, left_bytes = 0, count = 0;
  BlockId at = from.node;
  while (passed_bytes < wanted_bytes && left_bytes < kStepBytes && count < kStepObjects) {
    const auto beside = pool_.neighbour(from, at, side);
    if (beside.kind == Kind::kNone) break;
    if (beside.kind == Kind::kUsed) {
      if (!can_leave(beside.owner)) break;
      const std::uint64_t length = index_.entry(beside.owner).length.load_relaxed();
      if (count > 0 && left_bytes + length > kStepBytes) break;
      if (!make_leave(beside.owner)) break;
      left_bytes += length;
      ++count;
    }
    passed_bytes += beside.granules * kGranuleBytes;
    at = beside.node;
  }
}

// Starts the next piece behind the obstacle. The old piece is kept if it is large enough to be one
// of the object's pieces.
void Clearing::hop_over_obstacle() {
  PoolExtents& held = place_.held;
  const PoolExtent last = piece();
  const std::uint64_t left_bytes = missing_bytes();
  const bool keep = held.count < MC_MAX_EXTENTS &&
                    last.length_bytes >= left_bytes / (MC_MAX_EXTENTS - held.count);
  PoolExtent next;
  const std::uint64_t most_bytes = left_bytes + (keep ? 0 : last.length_bytes);
  // If the arena has nothing behind the piece, another arena may have more.
  if (++place_.hops > kMaxHops || (!pool_.take_behind(last, most_bytes, kHopBlocks, next) &&
                                   !pool_.take_largest(most_bytes, next))) {
    give_up(true);
    evictor_.evict_batch(kStepObjects);
    return;
  }
  if (keep) {
    held.at[held.count++] = next;
  } else {
    pool_.free(last);
    held.at[held.count - 1] = next;
  }
  place_.stalled_steps = 0;
  place_.pins = limbo_.sorted_pins();
}

}  // namespace mc::agent
