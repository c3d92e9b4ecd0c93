// SPDX-License-Identifier: Apache-2.0
//
// How a ObjectStore makes room at one place. What the policy gives up lies anywhere: in a pool of small
// objects it leaves small holes, and a large object would empty half of the pool before enough of
// them touch. So as many bytes are evicted as the large object needs, and then a piece of the pool
// grows from the largest free block outwards: what lies beside it is moved into the holes.
//
//     ▒ object   · hole          ├─ held ─┤
//     ▒▒▒·▒▒▒▒▒·▒▒▒▒·▒▒▒▒▒▒▒▒▒▒▒▒├────────┤▒▒▒▒▒▒·▒▒▒▒▒▒▒▒     the side with more holes first
//        ▲                                 │
//        └───────────── move_away ─────────┘
//
// What cannot go ends the piece: reservations, objects that are being read, large ones with a hard
// pin. Up to MC_MAX_EXTENTS pieces make an object. Each step is bounded, one with each turn of the
// loop, and nothing of it is in the index: a crash leaves the held bytes free.
#include <algorithm>
#include <bit>

#include "agent/pool/object_store.h"
#include "shm/pins.h"

namespace mc::agent {

namespace {

// What one step may evict or move: well below a millisecond.
constexpr std::uint64_t kStepObjects = 128;
constexpr std::uint64_t kStepBytes = 1ull << 20;
// A larger object is not copied within a step; where it lies in the way it is evicted.
constexpr std::uint64_t kMaxMoveBytes = 4ull << 20;
constexpr unsigned kLookBlocks = 32;   // blocks that are looked at to choose a side
constexpr unsigned kHopBlocks = 4096;  // blocks passed over in search of the next free one
constexpr unsigned kMaxHops = 64;
constexpr unsigned kMaxStalledSteps = 8;  // a reader's copy may end meanwhile

std::uint64_t in_granules(std::uint64_t bytes) {
  return (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
}

mc_pin pin_of(const shm::Entry& entry) {
  return static_cast<mc_pin>(std::bit_cast<shm::KeyField>(entry.key.load_relaxed()).pin);
}

using Kind = ExtentAllocator::Neighbour::Kind;
using Side = ExtentAllocator::Side;

}  // namespace

bool ObjectStore::clears_for(std::uint64_t bytes) const {
  return clearing_.wanted_bytes != 0 && clearing_.wanted_bytes == in_granules(bytes);
}

// Continues clearing a place for this many bytes, or begins. True: here it is. Only one place is
// cleared at a time, and others wait for it.
bool ObjectStore::clear_place(std::uint64_t bytes, PoolExtents& extents) {
  const std::uint64_t wanted_bytes = in_granules(bytes);
  if (clearing_.wanted_bytes == 0) {
    if (clearing_useless_) return false;
    clearing_.wanted_bytes = wanted_bytes;
  }
  if (clearing_.wanted_bytes != wanted_bytes) return false;
  clearing_.asked = true;
  if (cleared_in_turn_ == turn_) return false;
  cleared_in_turn_ = turn_;
  clear_step();
  if (clearing_.wanted_bytes == 0) return false;
  if (clearing_.held.bytes() == wanted_bytes) {
    extents = clearing_.held;
    clearing_ = Clearing{};
    return true;
  }
  // Large neighbours leave room at once, and others may have given something back.
  if (!pool_->allocate(bytes, clearing_.held.count == 0, extents)) return false;
  give_up_clearing(false);
  return true;
}

void ObjectStore::give_up_clearing(bool until_tick) {
  for (std::uint32_t i = 0; i < clearing_.held.count; ++i) pool_->free(clearing_.held.at[i]);
  const bool asked = clearing_.asked;
  clearing_ = Clearing{};
  clearing_.asked = asked;
  clearing_useless_ = until_tick;
}

void ObjectStore::clear_step() {
  const std::uint64_t missing_bytes = clearing_.wanted_bytes - clearing_.held.bytes();
  if (pool_->free_bytes() < missing_bytes) {
    free_missing(missing_bytes - pool_->free_bytes());
    return;
  }
  if (clearing_.held.count == 0 && !begin_piece()) {
    give_up_clearing(true);
    return;
  }
  bool progress = absorb_beside();
  if (clearing_.held.bytes() < clearing_.wanted_bytes) {
    empty_beside();
    reclaim();
    progress |= absorb_beside();
  }
  clearing_.stalled = progress ? 0 : clearing_.stalled + 1;
  if (clearing_.stalled > kMaxStalledSteps) hop_over_obstacle();
}

// What the policy gives up first. The pins of readers can delay it; then more has to go.
void ObjectStore::free_missing(std::uint64_t missing_bytes) {
  const std::uint64_t start = counters_.evicted_bytes;
  const std::uint64_t wanted = std::min(missing_bytes, kStepBytes);
  std::uint64_t count = 0;
  while (count < kStepObjects && counters_.evicted_bytes - start < wanted) {
    if (evict_batch(1) == 0) break;
    ++count;
  }
  reclaim();
  // Nothing left to evict: what is there has hard pins, is reserved or being read.
  if (count == 0) give_up_clearing(true);
}

bool ObjectStore::begin_piece() {
  PoolExtent& piece = clearing_.held.at[0];
  if (!pool_->take_largest(clearing_.wanted_bytes, piece)) return false;
  clearing_.held.count = 1;
  look_at_pins();
  return true;
}

// Takes the free blocks beside the piece. True: there was one.
bool ObjectStore::absorb_beside() {
  PoolExtent& piece = clearing_.held.at[clearing_.held.count - 1];
  bool grew = false;
  for (const Side side : {Side::kBehind, Side::kBefore}) {
    for (;;) {
      const std::uint64_t missing_bytes = clearing_.wanted_bytes - clearing_.held.bytes();
      if (!pool_->grow_into(piece, side, missing_bytes)) break;
      grew = true;
    }
  }
  return grew;
}

// Whether an object can be moved or evicted now.
bool ObjectStore::can_leave(std::uint32_t entry_id) const {
  if (entry_id >= index_->entry_count()) return false;
  const shm::Entry& entry = index_->entry(entry_id);
  const std::uint64_t version = entry.version.load_relaxed();
  if (shm::state_of(version) != shm::EntryState::kLive) return false;
  if (entry.length.load_relaxed() > kMaxMoveBytes && pin_of(entry) == MC_PIN_HARD) return false;
  return !std::binary_search(clearing_.pins.begin(), clearing_.pins.end(),
                             shm::pin_value(entry_id, version));
}

// False: a hard pin keeps it, and there is no room for it elsewhere.
bool ObjectStore::make_leave(std::uint32_t entry_id) {
  const shm::Entry& entry = index_->entry(entry_id);
  if (entry.length.load_relaxed() <= kMaxMoveBytes && move_away(entry_id)) return true;
  if (pin_of(entry) == MC_PIN_HARD) return false;
  policy().erase(entry_id);
  evict_one(entry_id);
  return true;
}

// What lies beside the piece, up to what cannot leave.
ObjectStore::Outlook ObjectStore::look_beside(const PoolExtent& piece, Side side) const {
  Outlook outlook;
  BlockId at = piece.node;
  for (unsigned i = 0; i < kLookBlocks; ++i) {
    const auto beside = pool_->neighbour(piece, at, side);
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

// Moves away what lies on one side of the piece, a bounded part of it: the side with the greater
// share of holes.
void ObjectStore::empty_beside() {
  const PoolExtent piece = clearing_.held.at[clearing_.held.count - 1];
  const Outlook behind = look_beside(piece, Side::kBehind);
  const Outlook before = look_beside(piece, Side::kBefore);
  const Side side = behind.used_share() <= before.used_share() ? Side::kBehind : Side::kBefore;
  const std::uint64_t missing_bytes = clearing_.wanted_bytes - clearing_.held.bytes();
  std::uint64_t passed_bytes = 0, left_bytes = 0, count = 0;
  BlockId at = piece.node;
  while (passed_bytes < missing_bytes && left_bytes < kStepBytes && count < kStepObjects) {
    const auto beside = pool_->neighbour(piece, at, side);
    if (beside.kind == Kind::kNone) break;
    if (beside.kind == Kind::kUsed) {
      if (!can_leave(beside.owner)) break;
      const std::uint64_t length = index_->entry(beside.owner).length.load_relaxed();
      if (count > 0 && left_bytes + length > kStepBytes) break;
      if (!make_leave(beside.owner)) break;
      left_bytes += length;
      ++count;
    }
    passed_bytes += beside.granules * kGranuleBytes;
    at = beside.node;
  }
}

// The piece is kept if it is large enough to be one of those an object may have, and the next
// begins behind what ended it.
void ObjectStore::hop_over_obstacle() {
  PoolExtents& held = clearing_.held;
  const PoolExtent piece = held.at[held.count - 1];
  const std::uint64_t left_bytes = clearing_.wanted_bytes - held.bytes();
  const bool keep = held.count < MC_MAX_EXTENTS &&
                    piece.length_bytes >= left_bytes / (MC_MAX_EXTENTS - held.count);
  PoolExtent next;
  const std::uint64_t most_bytes = left_bytes + (keep ? 0 : piece.length_bytes);
  // Behind the end of its arena another may have more.
  if (++clearing_.hops > kMaxHops || (!pool_->take_behind(piece, most_bytes, kHopBlocks, next) &&
                                      !pool_->take_largest(most_bytes, next))) {
    give_up_clearing(true);
    evict_batch(kStepObjects);
    return;
  }
  if (keep) {
    held.at[held.count++] = next;
  } else {
    pool_->free(piece);
    held.at[held.count - 1] = next;
  }
  clearing_.stalled = 0;
  look_at_pins();
}

// A hint only: what is pinned after this look waits in limbo as ever.
void ObjectStore::look_at_pins() {
  clearing_.pins.clear();
  collect_pins_(clearing_.pins);
  std::sort(clearing_.pins.begin(), clearing_.pins.end());
}

}  // namespace mc::agent
