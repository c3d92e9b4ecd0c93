// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/replica_table.h"

#include <algorithm>

namespace mc::metadata {

namespace {

constexpr std::uint64_t kLeastBuckets = 4096;  // one step of memory
// A resize starts above this percentage. The resize takes half as many insertions as there are
// buckets, and at the end the last buckets of the old table hold 4 % more. At 81 %, an insertion
// that starts at a full bucket finds room within kMaxInsertProbe except once in about 10^13; at 90
// % it would not.
constexpr std::uint64_t kFullPercent = 77;
constexpr std::uint64_t kMovesPerInsertion = 2;
constexpr std::uint64_t kUrgentPercent = 83;  // reached only by batches as large as the table
constexpr std::uint64_t grown(std::uint64_t buckets) { return buckets * 5 / 4 + 1; }
constexpr std::uint64_t kSparsePercent = 25;
constexpr std::uint64_t kShrunkPercent = 60;

constexpr std::uint64_t slots_at(std::uint64_t buckets, std::uint64_t percent) {
  return buckets * Bucket::kSlots * percent / 100;
}
constexpr std::uint64_t buckets_at(std::uint64_t slots, std::uint64_t percent) {
  return std::max(kLeastBuckets, slots * 100 / (Bucket::kSlots * percent) + 1);
}

}  // namespace

ReplicaTable::ReplicaTable(std::uint64_t max_slots, Sessions* sessions)
    : sessions_(sessions),
      max_buckets_(buckets_at(max_slots, kFullPercent)),
      current_(make_side(kLeastBuckets)) {}

ReplicaTable::Side ReplicaTable::make_side(std::uint64_t bucket_count) {
  Side side;
  side.memory = PageArray::reserve((bucket_count + kMaxProbe) * sizeof(Bucket));
  side.buckets = reinterpret_cast<Bucket*>(side.memory.data());
  side.bucket_count = side.memory ? bucket_count : 0;
  return side;
}

bool ReplicaTable::prepare(std::uint64_t count) {
  if (resizing()) {
    move(count * kMovesPerInsertion);
  } else if (count_ + count > slots_at(current_.bucket_count, kFullPercent) &&
             current_.bucket_count < max_buckets_) {
    if (!start_resize(std::min(max_buckets_, grown(current_.bucket_count)))) return false;
    move(count * kMovesPerInsertion);
  }
  while (resizing() &&
         count_ + count >
             slots_at(std::min(current_.bucket_count, next_.bucket_count), kUrgentPercent)) {
    move(current_.bucket_count);
    if (current_.bucket_count >= max_buckets_) break;
    if (!start_resize(std::min(max_buckets_, grown(current_.bucket_count)))) return false;
  }
  return true;
}

bool ReplicaTable::start_resize(std::uint64_t bucket_count) {
  next_ = make_side(bucket_count);
  moved_ = 0;
  return resizing();
}

void ReplicaTable::move(std::uint64_t buckets) {
  for (; buckets > 0 && moved_ < current_.bucket_count; --buckets) move_home(moved_++);
  current_.memory.release_until(moved_ * sizeof(Bucket));
  if (moved_ < current_.bucket_count) return;
  current_ = std::move(next_);
  next_ = Side();
  moved_ = 0;
  sweep_at_ = 0;
}

// All earlier homes have moved, so the first bucket holds only slots of this home. Slots that did
// not fit there are in later buckets.
void ReplicaTable::move_home(std::uint64_t home) {
  Bucket* const first = current_.buckets + home;
  __builtin_prefetch(first + 4);
  const auto take = [this](const Slot& slot) {
    if (sessions_->dead(slot.session())) {
      sessions_->dropped(slot);
      --count_;
    } else if (insert_into(next_, slot, kMaxProbe) == nullptr) {
      sessions_->dropped(slot);
      --count_;
      ++lost_;
    }
  };
  for (unsigned used = first->used(); used != 0; used &= used - 1) {
    const auto index = static_cast<unsigned>(std::countr_zero(used));
    take(first->slots[index]);
    first->tags[index] = 0;
  }
  for (Bucket* bucket = first + 1; first->passed != 0; ++bucket) {
    for (unsigned used = bucket->used(); used != 0; used &= used - 1) {
      const auto index = static_cast<unsigned>(std::countr_zero(used));
      if (current_.home(bucket->slots[index].hash.lo) != home) continue;
      take(bucket->slots[index]);
      bucket->tags[index] = 0;
      for (Bucket* on_the_way = first; on_the_way != bucket; ++on_the_way) --on_the_way->passed;
    }
  }
}

Slot* ReplicaTable::insert_into(const Side& side, const Slot& slot, unsigned max_probe) {
  Bucket* const home = side.buckets + side.home(slot.hash.lo);
  Bucket* bucket = home;
  for (unsigned probe = 0; probe < max_probe; ++probe, ++bucket) {
    const unsigned empty = bucket->empty();
    if (empty == 0) continue;
    const auto index = static_cast<unsigned>(std::countr_zero(empty));
    bucket->tags[index] = tag_of(slot.hash);
    bucket->slots[index] = slot;
    for (Bucket* on_the_way = home; on_the_way != bucket; ++on_the_way) ++on_the_way->passed;
    return &bucket->slots[index];
  }
  return nullptr;
}

Slot* ReplicaTable::insert(const Slot& slot) {
  Slot* place = insert_into(side_of(slot.hash.lo), slot, kMaxInsertProbe);
  if (place == nullptr) return nullptr;
  ++count_;
  sessions_->added(slot);
  return place;
}

void ReplicaTable::erase(Slot& slot) {
  auto* bucket = reinterpret_cast<Bucket*>(reinterpret_cast<std::uintptr_t>(&slot) &
                                           ~static_cast<std::uintptr_t>(sizeof(Bucket) - 1));
  erase_at(side_of(slot.hash.lo), bucket, static_cast<unsigned>(&slot - bucket->slots.data()));
}

void ReplicaTable::erase_at(const Side& side, Bucket* bucket, unsigned index) {
  const Slot& slot = bucket->slots[index];
  Bucket* on_the_way = side.buckets + side.home(slot.hash.lo);
  for (; on_the_way != bucket; ++on_the_way) --on_the_way->passed;
  bucket->tags[index] = 0;
  sessions_->dropped(slot);
  --count_;
}

void ReplicaTable::maybe_shrink() {
  const std::uint64_t wanted = buckets_at(count_, kShrunkPercent);
  if (count_ < slots_at(current_.bucket_count, kSparsePercent) && wanted < current_.bucket_count) {
    start_resize(wanted);
  }
}

void ReplicaTable::sweep(std::uint64_t buckets) {
  // A resize visits every slot of the old table anyway, and restarts the sweep.
  if (!resizing()) maybe_shrink();
  if (resizing()) return move(buckets);
  const std::uint64_t all = current_.bucket_count + kMaxProbe;
  for (; buckets > 0 && sessions_->dead_slots() != 0; --buckets) {
    Bucket* bucket = current_.buckets + sweep_at_;
    for (unsigned used = bucket->used(); used != 0; used &= used - 1) {
      const auto index = static_cast<unsigned>(std::countr_zero(used));
      if (sessions_->dead(bucket->slots[index].session())) erase_at(current_, bucket, index);
    }
    if (++sweep_at_ == all) sweep_at_ = 0;
  }
}

std::uint64_t ReplicaTable::memory_bytes() const {
  std::uint64_t bytes = current_.memory.size_bytes() - current_.memory.released_bytes();
  if (resizing()) {
    const std::uint64_t share = static_cast<std::uint64_t>(
        static_cast<unsigned __int128>(next_.memory.size_bytes()) * moved_ / current_.bucket_count);
    bytes += std::min(share + PageArray::kStepBytes, next_.memory.size_bytes());
  }
  return bytes;
}

}  // namespace mc::metadata
