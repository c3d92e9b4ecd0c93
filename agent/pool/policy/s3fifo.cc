// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/policy/s3fifo.h"

#include <algorithm>

namespace mc::agent {
namespace {

// An object's mark: uses up to three, the main-queue bit, the pin.
constexpr std::uint16_t kUsesMask = 3;
constexpr std::uint16_t kInMain = 4;
constexpr unsigned kPinShift = 3;
constexpr std::uint16_t kMarkMask = 31;

constexpr std::size_t kSmallShare = 10;  // a tenth of the pool, as in the paper
// Ghosts age by stamps of 16 bits: a new stamp comes after this fraction of the table.
constexpr std::size_t kStampsPerTable = 1024;

PinLevel pin_of(std::uint16_t mark) { return static_cast<PinLevel>((mark >> kPinShift) & 3U); }

}  // namespace

void S3FifoPolicy::insert(const Arrival& arrival) {
  const EntryId id = arrival.id;
  if (family_.contains(arrival.parent)) unqueue(arrival.parent);
  family_.insert(id, arrival.parent);
  if (key_hashes_.size() <= id) key_hashes_.resize(std::size_t{id} + 1);
  if (ghosts_.capacity() < family_.resident_count()) {
    ghosts_.grow_to(std::max<std::size_t>(64, 2 * ghosts_.capacity()));
  }
  key_hashes_[id] = arrival.key_hash;
  const bool returns = ghosts_.take(arrival.key_hash).has_value();
  const unsigned pin = (static_cast<unsigned>(arrival.pin) & 3U) << kPinShift;
  family_[id].mark = (pin | (returns ? kInMain : 0U)) & kMarkMask;
  queue(id, true);
  latest_ = id;
}

void S3FifoPolicy::touch(EntryId id) {
  if (!family_.contains(id)) return;
  Family::Slot& slot = family_[id];
  if ((slot.mark & kUsesMask) != kUsesMask) ++slot.mark;
  latest_ = id;
}

void S3FifoPolicy::erase(EntryId id) {
  if (family_.contains(id)) forget(id);
}

void S3FifoPolicy::set_pin(EntryId id, PinLevel level) {
  if (!family_.contains(id)) return;
  unqueue(id);
  const unsigned others = family_[id].mark & ~(3U << kPinShift);
  family_[id].mark = (others | (static_cast<unsigned>(level) & 3U) << kPinShift) & kMarkMask;
  queue(id, true);
}

EntryId S3FifoPolicy::evict() {
  const bool small_is_full = small_count_ * kSmallShare > small_count_ + main_count_;
  EntryId victim = small_is_full ? from_small() : kNoEntry;
  if (victim == kNoEntry) victim = from_main();
  if (victim == kNoEntry) victim = from_small();
  if (victim == kNoEntry) victim = from_main();  // objects that the small queue has just promoted
  if (victim == kNoEntry) victim = soft_pinned_.oldest;
  if (victim == kNoEntry) return victim;
  if ((family_[victim].mark & kInMain) == 0) {
    const std::size_t per_stamp = std::max<std::size_t>(1, ghosts_.capacity() / kStampsPerTable);
    if (++evictions_ % per_stamp == 0) ++ghost_stamp_;
    ghosts_.add(key_hashes_[victim], ghost_stamp_, 0, ghost_stamp_);
  }
  forget(victim);
  return victim;
}

std::size_t S3FifoPolicy::memory_bytes() const {
  return family_.memory_bytes() + ghosts_.memory_bytes() +
         key_hashes_.capacity() * sizeof(key_hashes_[0]);
}

Queue& S3FifoPolicy::queue_of(EntryId id) {
  const std::uint16_t mark = family_[id].mark;
  if (pin_of(mark) == PinLevel::kSoft) return soft_pinned_;
  return (mark & kInMain) != 0 ? main_ : small_;
}

void S3FifoPolicy::queue(EntryId id, bool as_newest) {
  Family::Slot& slot = family_[id];
  if (slot.is_parent || pin_of(slot.mark) == PinLevel::kHard) return;
  slot.is_queued = 1;
  Queue& queue = queue_of(id);
  if (&queue != &soft_pinned_) ++(&queue == &small_ ? small_count_ : main_count_);
  as_newest ? queue.push_newest(links(), id) : queue.push_oldest(links(), id);
}

void S3FifoPolicy::unqueue(EntryId id) {
  if (!family_[id].is_queued) return;
  Queue& queue = queue_of(id);
  queue.remove(links(), id);
  if (&queue != &soft_pinned_) --(&queue == &small_ ? small_count_ : main_count_);
  family_[id].is_queued = 0;
}

void S3FifoPolicy::forget(EntryId id) {
  unqueue(id);
  if (latest_ == id) latest_ = kNoEntry;
  const EntryId parent = family_.erase(id);
  if (parent != kNoEntry) queue(parent, false);
}

EntryId S3FifoPolicy::from_small() {
  while (!small_.empty()) {
    const EntryId id = small_.oldest;
    Family::Slot& slot = family_[id];
    if ((slot.mark & kUsesMask) == 0) return spare_latest(id);
    unqueue(id);
    const unsigned pin = slot.mark & (3U << kPinShift);
    slot.mark = (pin | kInMain) & kMarkMask;
    queue(id, true);
  }
  return kNoEntry;
}

// Each round takes one use off, so the touches pay for the rounds.
EntryId S3FifoPolicy::from_main() {
  while (!main_.empty()) {
    const EntryId id = main_.oldest;
    Family::Slot& slot = family_[id];
    if ((slot.mark & kUsesMask) == 0) return spare_latest(id);
    unqueue(id);
    --slot.mark;
    queue(id, true);
  }
  return kNoEntry;
}

// The object used last may get a child soon: its neighbour goes first.
EntryId S3FifoPolicy::spare_latest(EntryId id) {
  if (id != latest_) return id;
  const EntryId newer = family_[id].newer;
  return newer == kNoEntry ? id : newer;
}

}  // namespace mc::agent
