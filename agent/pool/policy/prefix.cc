// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/policy/prefix.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace mc::agent {
namespace {

// An object's mark: class in the low bits, then the pin.
constexpr std::uint16_t kUsesMask = 3;  // uses after the first epoch; 3 means three or more
constexpr std::uint16_t kHadChild = 4;
constexpr std::uint16_t kClassMask = Reuse::kClasses - 1;
constexpr unsigned kPinShift = 3;
constexpr std::uint16_t kIsSampled = 32;  // the key is in the map of sampled objects
constexpr std::uint16_t kMarkMask = 63;

constexpr std::uint32_t kEpochsPerPool = 32;     // epochs until the accesses equal the slots
constexpr std::uint32_t kShortestEpoch = 128;    // accesses; keeps the work per epoch small
constexpr std::uint32_t kHalfLifeEpochs = 1024;  // of the counts: 32 pools' worth
// One ghost for eight slots, and one key in 64 is sampled: ghosts reach eight pools' worth of
// evictions back.
constexpr std::size_t kSlotsPerGhost = 8;
constexpr std::size_t kFewestGhosts = 128;
constexpr std::uint64_t kSampleOneIn = 64;

std::size_t class_of(std::uint16_t mark) { return mark & kClassMask; }

PinLevel pin_of(std::uint16_t mark) { return static_cast<PinLevel>((mark >> kPinShift) & 3U); }

std::uint16_t with_pin(std::uint16_t mark, PinLevel pin) {
  return static_cast<std::uint16_t>((mark & ~(3U << kPinShift)) | (static_cast<unsigned>(pin) & 3U)
                                                                      << kPinShift);
}

std::uint16_t with_one_use_more(std::uint16_t mark) {
  return static_cast<std::uint16_t>((mark & kUsesMask) == kUsesMask ? mark : mark + 1);
}

// The ghosts' table uses other bits of the hash.
bool is_sampled(std::uint64_t key_hash) {
  return (key_hash * 0x9e3779b97f4a7c15) >> 32 < (std::uint64_t{1} << 32) / kSampleOneIn;
}

}  // namespace

PrefixPolicy::PrefixPolicy()
    : groups_(Reuse::kClasses), epoch_accesses_(kShortestEpoch), accesses_left_(kShortestEpoch) {
  ghosts_.grow_to(kFewestGhosts);
  ranks_are_stale_ = true;
}

void PrefixPolicy::insert(const Arrival& arrival) {
  tick();
  if (family_.contains(arrival.parent)) unqueue(arrival.parent);
  family_.insert(arrival.id, arrival.parent);
  family_[arrival.id].mark = with_pin(0, arrival.pin) & kMarkMask;
  family_[arrival.id].stamp = ages_.now();
  const EntryId parent = family_.parent_of(arrival.id);
  if (parent != kNoEntry) mark_parent(parent);
  if (is_sampled(arrival.key_hash)) recall(arrival.id, arrival.key_hash);
  ++group(class_of(family_[arrival.id].mark), 0).watched;
  queue(arrival.id, true);
  latest_ = arrival.id;
  if (family_.slot_count() / kSlotsPerGhost >= ghosts_.capacity() * 2) {
    ghosts_.grow_to(ghosts_.capacity() * 2);
  }
  if (family_.slot_count() / kEpochsPerPool >= std::size_t{epoch_accesses_} * 2) lengthen_epoch();
}

void PrefixPolicy::touch(EntryId id) {
  if (!family_.contains(id)) return;
  tick();
  Family::Slot& slot = family_[id];
  const std::size_t bucket = ages_.bucket_of(slot.stamp);
  unqueue(id);
  if (bucket == 0) {
    queue(id, true);
  } else {
    reuse_.reused(class_of(slot.mark), ages_.band_of_bucket(bucket));
    restamp(id, with_one_use_more(slot.mark));
    queue(id, true);
  }
  latest_ = id;
}

void PrefixPolicy::erase(EntryId id) {
  if (!family_.contains(id)) return;
  if ((family_[id].mark & kIsSampled) != 0) sampled_.erase(id);
  unwatch(family_[id].mark, family_[id].stamp);
  forget(id);
}

void PrefixPolicy::set_pin(EntryId id, PinLevel level) {
  if (!family_.contains(id)) return;
  unqueue(id);
  family_[id].mark = with_pin(family_[id].mark, level) & kMarkMask;
  queue(id, true);
}

EntryId PrefixPolicy::evict() {
  // Ranking costs microseconds, and a pool that only reads never needs a ranking.
  if (ranks_are_stale_) rank_groups();
  const EntryId victim = choose();
  if (victim == kNoEntry) return victim;
  remember(victim);
  forget(victim);
  return victim;
}

std::size_t PrefixPolicy::memory_bytes() const {
  constexpr std::size_t kMapNodeBytes = 32;  // next, key, value and the allocator's header
  return sizeof(*this) + family_.memory_bytes() + ghosts_.memory_bytes() +
         sampled_.size() * kMapNodeBytes + sampled_.bucket_count() * sizeof(void*) +
         groups_.capacity() * sizeof(Group) +
         (rank_.capacity() + order_.capacity()) * sizeof(std::uint16_t);
}

void PrefixPolicy::queue(EntryId id, bool as_newest) {
  Family::Slot& slot = family_[id];
  const PinLevel pin = pin_of(slot.mark);
  if (slot.is_parent || pin == PinLevel::kHard) return;
  slot.is_queued = 1;
  if (pin == PinLevel::kSoft) {
    as_newest ? soft_pinned_.push_newest(links(), id) : soft_pinned_.push_oldest(links(), id);
    return;
  }
  const std::size_t bucket = ages_.bucket_of(slot.stamp);
  Queue& childless = group(class_of(slot.mark), bucket).childless;
  as_newest ? childless.push_newest(links(), id) : childless.push_oldest(links(), id);
  if (!ranks_are_stale_) occupied_.set(rank_[bucket * Reuse::kClasses + class_of(slot.mark)]);
}

void PrefixPolicy::unqueue(EntryId id) {
  Family::Slot& slot = family_[id];
  if (!slot.is_queued) return;
  slot.is_queued = 0;
  if (pin_of(slot.mark) == PinLevel::kSoft) return soft_pinned_.remove(links(), id);
  const std::size_t bucket = ages_.bucket_of(slot.stamp);
  Queue& childless = group(class_of(slot.mark), bucket).childless;
  childless.remove(links(), id);
  if (childless.empty() && !ranks_are_stale_) {
    occupied_.reset(rank_[bucket * Reuse::kClasses + class_of(slot.mark)]);
  }
}

// REQUIRES: id is in no queue.
void PrefixPolicy::restamp(EntryId id, std::uint16_t mark) {
  Family::Slot& slot = family_[id];
  --group(class_of(slot.mark), ages_.bucket_of(slot.stamp)).watched;
  slot.mark = mark & kMarkMask;
  slot.stamp = ages_.now();
  ++group(class_of(slot.mark), 0).watched;
}

void PrefixPolicy::mark_parent(EntryId id) {
  Family::Slot& slot = family_[id];
  if ((slot.mark & kHadChild) != 0) return;
  const std::size_t bucket = ages_.bucket_of(slot.stamp);
  --group(class_of(slot.mark), bucket).watched;
  slot.mark = (slot.mark | kHadChild) & kMarkMask;
  ++group(class_of(slot.mark), bucket).watched;
}

// Sampled objects stay watched after their eviction. A use after the pool's own reach tells whether
// keeping longer would pay.
void PrefixPolicy::remember(EntryId id) {
  const Family::Slot& slot = family_[id];
  if ((slot.mark & kIsSampled) == 0) return unwatch(slot.mark, slot.stamp);
  const auto sampled = sampled_.find(id);
  const auto displaced = ghosts_.add(sampled->second, slot.stamp, slot.mark, ages_.now());
  sampled_.erase(sampled);
  if (displaced) unwatch(displaced->mark, displaced->stamp);
}

void PrefixPolicy::recall(EntryId id, std::uint64_t key_hash) {
  sampled_.emplace(id, key_hash);
  Family::Slot& slot = family_[id];
  slot.mark = (slot.mark | kIsSampled) & kMarkMask;
  const auto ghost = ghosts_.take(key_hash);
  if (!ghost) return;
  const std::size_t bucket = ages_.bucket_of(ghost->stamp);
  --group(class_of(ghost->mark), bucket).watched;
  reuse_.reused(class_of(ghost->mark), ages_.band_of_bucket(bucket));
  const auto uses = static_cast<std::uint16_t>(with_one_use_more(ghost->mark) & kUsesMask);
  slot.mark = (slot.mark | uses) & kMarkMask;
}

void PrefixPolicy::unwatch(std::uint16_t mark, std::uint16_t stamp) {
  const std::size_t bucket = ages_.bucket_of(stamp);
  --group(class_of(mark), bucket).watched;
  reuse_.lost(class_of(mark), ages_.band_of_bucket(bucket));
}

void PrefixPolicy::forget(EntryId id) {
  unqueue(id);
  if (latest_ == id) latest_ = kNoEntry;
  const EntryId parent = family_.erase(id);
  if (parent != kNoEntry) queue(parent, false);
}

EntryId PrefixPolicy::choose() const {
  EntryId spared = kNoEntry;
  for (std::size_t rank = occupied_._Find_first(); rank < kGroups;
       rank = occupied_._Find_next(rank)) {
    const EntryId id = groups_[order_[rank]].childless.oldest;
    if (id != latest_) return id;
    spared = id;
    if (const EntryId newer = family_.at(id).newer; newer != kNoEntry) return newer;
  }
  if (spared != kNoEntry) return spared;
  return soft_pinned_.oldest;
}

void PrefixPolicy::tick() {
  if (--accesses_left_ > 0) return;
  accesses_left_ = epoch_accesses_;
  start_epoch();
}

void PrefixPolicy::start_epoch() {
  ++epoch_number_;
  const std::size_t before = ages_.bucket_count();
  std::array<std::size_t, Ages::kMaxBuckets> band_before{};
  for (std::size_t i = 0; i < before; ++i) band_before[i] = ages_.band_of_bucket(i);
  ages_.advance();
  groups_.insert(groups_.begin(), Reuse::kClasses, Group{});
  for (std::size_t i = 0; i < before; ++i) {
    const std::size_t band = ages_.band_of_bucket(i + 1);
    if (band == band_before[i]) continue;
    for (std::size_t c = 0; c < Reuse::kClasses; ++c) {
      reuse_.reached(c, band, group(c, i + 1).watched);
    }
  }
  std::size_t younger = 0;
  while (ages_.merge_next(younger)) merge_groups(younger);
  if (epoch_number_ % kHalfLifeEpochs == 0) reuse_.halve();
  if (epoch_number_ % Ages::kMaxAge == 0) clamp_stamps();
  ranks_are_stale_ = true;
}

void PrefixPolicy::merge_groups(std::size_t younger) {
  for (std::size_t c = 0; c < Reuse::kClasses; ++c) {
    Group& from = group(c, younger + 1);
    group(c, younger).childless.take_as_oldest(links(), from.childless);
    group(c, younger).watched += from.watched;
  }
  const auto gone = groups_.begin() + static_cast<std::ptrdiff_t>((younger + 1) * Reuse::kClasses);
  groups_.erase(gone, gone + Reuse::kClasses);
}

// Objects of the current epoch go last, whatever their worth: a chain that is being put is among
// these objects.
void PrefixPolicy::rank_groups() {
  ranks_are_stale_ = false;
  reuse_.compute_worth(worth_);
  order_.resize(groups_.size());
  rank_.resize(groups_.size());
  std::iota(order_.begin(), order_.end(), std::uint16_t{0});
  const auto key = [this](std::uint16_t at) {
    const std::size_t bucket = at / Reuse::kClasses;
    return std::tuple(bucket == 0, worth_[at % Reuse::kClasses][ages_.band_of_bucket(bucket)],
                      -static_cast<int>(at));
  };
  std::sort(order_.begin(), order_.end(),
            [&](std::uint16_t a, std::uint16_t b) { return key(a) < key(b); });
  occupied_.reset();
  for (std::size_t rank = 0; rank < order_.size(); ++rank) {
    rank_[order_[rank]] = static_cast<std::uint16_t>(rank);
    if (!groups_[order_[rank]].childless.empty()) occupied_.set(rank);
  }
}

void PrefixPolicy::lengthen_epoch() {
  epoch_accesses_ *= 2;
  accesses_left_ = epoch_accesses_;
  // By bucket, so that all objects of a bucket stay together.
  const auto halved = [this](std::uint16_t stamp) {
    return static_cast<std::uint16_t>(ages_.now() - ages_.bucket_start(ages_.bucket_of(stamp)) / 2);
  };
  for (EntryId id = 0; id < family_.slot_count(); ++id) {
    family_[id].stamp = halved(family_[id].stamp);
  }
  for (Ghosts::Ghost& ghost : ghosts_.all()) ghost.stamp = halved(ghost.stamp);
  ages_.halve();
  reuse_.shift_octave();
  std::size_t younger = 0;
  while (ages_.merge_next(younger)) merge_groups(younger);
  ranks_are_stale_ = true;
}

void PrefixPolicy::clamp_stamps() {
  const auto clamped = [this](std::uint16_t stamp) {
    const std::uint16_t age = static_cast<std::uint16_t>(ages_.now() - stamp);
    return age <= Ages::kMaxAge ? stamp : static_cast<std::uint16_t>(ages_.now() - Ages::kMaxAge);
  };
  for (EntryId id = 0; id < family_.slot_count(); ++id) {
    family_[id].stamp = clamped(family_[id].stamp);
  }
  for (Ghosts::Ghost& ghost : ghosts_.all()) ghost.stamp = clamped(ghost.stamp);
}

}  // namespace mc::agent
