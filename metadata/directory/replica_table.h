// SPDX-License-Identifier: Apache-2.0
//
// The directory's table of slots (slot.h). Replicas of a key are slots with the same
//   hash, near each other; there is no chain.
//
// A key's home is floor(lo * buckets / 2^64), so a table of any size keeps the same order. To grow,
// a table that is a quarter larger is filled from the front with slots from the front of the old
// table, a few buckets with every batch. Memory before the border returns to the system:
//
//      current  │ given back │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│        keys at or after the border
//      next     │▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│ never touched     │    keys before the border
//
// So memory per slot is between 43 bytes (full) and 56 bytes (just grown), and no insertion does
// more than a few buckets of work. Shrinking is the same step towards a smaller table.
// Threads: the directory's.
// Owns: the memory.
// Trusts: keys to spread the hashes. Otherwise a search ends after kMaxProbe buckets and insert()
//   refuses.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "metadata/directory/page_array.h"
#include "metadata/directory/sessions.h"
#include "metadata/directory/slot.h"

namespace mc::metadata {

class ReplicaTable {
 public:
  // The table erases slots of closed sessions whenever it meets such a slot.
  ReplicaTable(std::uint64_t max_slots, Sessions* sessions);

  // Call this before a batch of at most `count` insertions (far fewer than 60,000). Does the
  // batch's part of a resize. False: no memory for a larger table; insertions may be refused.
  bool prepare(std::uint64_t count);

  // Calls use(slot) for each slot of this key, including dead slots. use may erase the slot.
  template <typename Use>
  void for_key(KeyHash hash, Use use) const {
    Bucket* bucket = home_of(hash);
    const std::uint16_t tag = tag_of(hash);
    for (unsigned probe = 0; probe <= kMaxProbe; ++probe, ++bucket) {
      for (unsigned found = bucket->match(tag); found != 0; found &= found - 1) {
        Slot& slot = bucket->slots[static_cast<unsigned>(std::countr_zero(found))];
        if (slot.hash == hash) use(slot);
      }
      if (bucket->passed == 0) return;
    }
  }

  // nullptr: no room within kMaxInsertProbe.
  Slot* insert(const Slot& slot);
  void erase(Slot& slot);

  // For batches: prefetch all homes, then all slots, then search.
  void prefetch_home(KeyHash hash) const { __builtin_prefetch(home_of(hash)); }
  void prefetch_slot(KeyHash hash) const {
    const Bucket* bucket = home_of(hash);
    const unsigned found = bucket->match(tag_of(hash));
    if (found != 0)
      __builtin_prefetch(&bucket->slots[static_cast<unsigned>(std::countr_zero(found))]);
  }
  void prefetch_slot_for_write(KeyHash hash) const {
    const Bucket* bucket = home_of(hash);
    unsigned found = bucket->match(tag_of(hash));
    if (found == 0) found = bucket->empty();
    if (found != 0) {
      __builtin_prefetch(&bucket->slots[static_cast<unsigned>(std::countr_zero(found))], 1);
    }
  }

  // Erases dead slots in the next buckets, or moves as many buckets of a resize.
  void sweep(std::uint64_t buckets);

  // Visits the slots of one home bucket. The slots' keys have lo in [position, returned). A whole
  // walk from 0 visits each slot once, even if the table is resized meanwhile. nullopt: this was
  // the last bucket. use must not change the table.
  template <typename Use>
  std::optional<std::uint64_t> visit(std::uint64_t position, Use use) const;

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t bucket_count() const { return current_.bucket_count; }
  [[nodiscard]] bool resizing() const { return static_cast<bool>(next_.memory); }
  // Slots that a resize found no room for. Happens only if hashes are not spread.
  [[nodiscard]] std::uint64_t lost() const { return lost_; }
  // Upper bound of resident memory, without returned and untouched pages.
  [[nodiscard]] std::uint64_t memory_bytes() const;

  static constexpr unsigned kMaxProbe = 128;  // limit of a search, and of insertions by a resize
  static constexpr unsigned kMaxInsertProbe = 96;

 private:
  struct Side {
    PageArray memory;
    Bucket* buckets = nullptr;
    std::uint64_t bucket_count = 0;  // homes; kMaxProbe more buckets lie behind, so nothing wraps

    [[nodiscard]] std::uint64_t home(std::uint64_t lo) const {
      return static_cast<std::uint64_t>((static_cast<unsigned __int128>(lo) * bucket_count) >> 64);
    }
    // The least lo whose home is at least `bucket`. REQUIRES: bucket < bucket_count.
    [[nodiscard]] std::uint64_t first_lo(std::uint64_t bucket) const {
      const auto shifted = static_cast<unsigned __int128>(bucket) << 64;
      return static_cast<std::uint64_t>((shifted + bucket_count - 1) / bucket_count);
    }
  };

  static Side make_side(std::uint64_t bucket_count);
  [[nodiscard]] const Side& side_of(std::uint64_t lo) const {
    return current_.home(lo) < moved_ ? next_ : current_;
  }
  [[nodiscard]] Bucket* home_of(KeyHash hash) const {
    const Side& side = side_of(hash.lo);
    return side.buckets + side.home(hash.lo);
  }
  static Slot* insert_into(const Side& side, const Slot& slot, unsigned max_probe);
  void erase_at(const Side& side, Bucket* bucket, unsigned index);

  bool start_resize(std::uint64_t bucket_count);
  void move(std::uint64_t buckets);
  void move_home(std::uint64_t home);
  void maybe_shrink();

  Sessions* sessions_;
  std::uint64_t max_buckets_;
  Side current_;
  Side next_;                // empty: no resize is running
  std::uint64_t moved_ = 0;  // homes of current_ before this bucket are in next_
  std::uint64_t sweep_at_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t lost_ = 0;
};

template <typename Use>
std::optional<std::uint64_t> ReplicaTable::visit(std::uint64_t position, Use use) const {
  const Side& side = side_of(position);
  const std::uint64_t home = side.home(position);
  const Bucket* bucket = side.buckets + home;
  for (unsigned probe = 0; probe <= kMaxProbe; ++probe, ++bucket) {
    for (unsigned used = bucket->used(); used != 0; used &= used - 1) {
      const Slot& slot = bucket->slots[static_cast<unsigned>(std::countr_zero(used))];
      if (slot.hash.lo >= position && side.home(slot.hash.lo) == home) use(slot);
    }
    if (bucket->passed == 0) break;
  }
  // Keys of next_ end where keys of current_ begin, perhaps in the middle of a bucket.
  if (&side == &next_) {
    const std::uint64_t border = current_.first_lo(moved_);
    if (home + 1 >= next_.bucket_count) return border;
    return std::min(next_.first_lo(home + 1), border);
  }
  if (home + 1 >= side.bucket_count) return std::nullopt;
  return side.first_lo(home + 1);
}

}  // namespace mc::metadata
