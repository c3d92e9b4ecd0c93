// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/evictor.h"

#include <algorithm>
#include <array>

#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

// Between requests a full pool keeps this fraction of itself free.
constexpr std::uint64_t kHeadroomShare = 256;
// The same for a pool with a tier: this fraction is free or on the way to a disk.
constexpr std::uint64_t kTierHeadroomShare = 32;
// Objects that are evicted together when a first batch has not left enough room.
constexpr std::uint64_t kFurther = 16;
constexpr std::uint64_t kMaxHeadroomBytes = 256ull << 20;
// A pool with fewer objects has objects too large to be evicted ahead of demand.
constexpr std::uint64_t kFewestForHeadroom = 1024;
// Objects of an earlier agent that the policy learns of between requests.
constexpr std::uint64_t kAdoptedAtOnce = 32;

}  // namespace

bool Evictor::make_capacity(std::uint64_t bytes) {
  if (bytes > capacity_bytes_) return false;
  while (live_.bytes() + bytes > limit_bytes_) {
    const std::uint32_t victim = live_.choose_victim();
    if (victim == kNoEntry) return false;
    evict_forgotten(victim, EvictionReason::kCapacity);
  }
  return true;
}

void Evictor::set_capacity(std::uint64_t bytes) {
  capacity_bytes_ = bytes;
  limit_bytes_ = demotion_ == nullptr ? bytes : std::max(bytes, live_.bytes());
}

void Evictor::fit_capacity(std::uint64_t most) {
  for (; most > 0 && !fits(0) && demotion_keeps_up(); --most) {
    const std::uint32_t victim = live_.choose_victim();
    if (victim == kNoEntry) break;
    evict_forgotten(victim, EvictionReason::kCapacity, Bytes::kPaced);
  }
  limit_bytes_ = std::max(capacity_bytes_, std::min(limit_bytes_, live_.bytes()));
}

bool Evictor::make_capacity_for(std::string_view key, std::uint64_t hash, std::uint64_t length) {
  for (;;) {
    // Looked up every time: eviction may take the object that is about to be replaced.
    const auto replaced = index_.find(key, hash);
    const std::uint64_t leaving = replaced ? index_.entry(*replaced).length.load_relaxed() : 0;
    if (live_.bytes() - leaving + length <= limit_bytes_) return true;
    const std::uint32_t victim = live_.choose_victim();
    if (victim == kNoEntry) return false;
    evict_forgotten(victim, EvictionReason::kCapacity);
  }
}

void Evictor::keep_headroom(bool shrinking) {
  live_.catch_up(kAdoptedAtOnce);
  const std::uint64_t most = reservations_ + 1;
  reservations_ = 0;
  const std::uint64_t headroom = headroom_bytes();
  if (limbo_.check_is_due(headroom / 2)) limbo_.check();
  limbo_.free_some(most);
  if (pool_.growing() || shrinking || !keeps_headroom()) return;
  const auto is_short = [&] {
    const std::uint64_t leaving = limbo_.bytes() + limbo_.held_bytes();
    return pool_.used_bytes() > pool_.reserved_bytes() - headroom + leaving;
  };
  if (demotion_ == nullptr) {
    if (is_short()) evict_batch(std::min(most, kBatch));
    return;
  }
  // A demotion holds no more than the headroom: further objects would be lost.
  for (std::uint64_t left = std::min(most, kBatch); left > 0 && is_short(); --left) {
    if (evict_batch(1) == 0) return;
  }
}

bool Evictor::evict_held() {
  if (demotion_ == nullptr || !demotion_->takes_objects()) return false;
  if (pool_.growing()) return true;
  const std::uint64_t headroom = headroom_bytes();
  for (std::uint64_t left = kFurther; left > 0; --left) {
    if (limbo_.bytes() + limbo_.held_bytes() >= headroom || !demotion_->keeps_up()) return true;
    if (evict_batch(1, EvictionReason::kRoom, Bytes::kPaced) == 0) return left < kFurther;
  }
  return true;
}

// Objects that are larger than the headroom are evicted when a put needs their room.
bool Evictor::keeps_headroom() const {
  const std::uint64_t count = live_.count();
  if (count >= kFewestForHeadroom) return true;
  return demotion_ != nullptr && demotion_->takes_objects() &&
         live_.bytes() <= count * headroom_bytes();
}

std::uint64_t Evictor::headroom_bytes() const {
  const std::uint64_t share =
      demotion_ != nullptr && demotion_->takes_objects() ? kTierHeadroomShare : kHeadroomShare;
  return std::min(pool_.reserved_bytes() / share, kMaxHeadroomBytes);
}

bool Evictor::evict_some(std::uint64_t bytes) {
  const std::uint64_t most = std::clamp<std::uint64_t>(live_.count() / 64, 1, kBatch);
  const std::uint64_t start = gone_bytes_;
  std::uint64_t count = 0;
  while (count < most || gone_bytes_ - start < bytes) {
    const std::uint64_t evicted =
        count == 0 ? evict_batch(most)
                   : evict_batch(std::min(most, kFurther), EvictionReason::kRoom, Bytes::kGoNow);
    if (evicted == 0) break;
    count += evicted;
  }
  return count > 0;
}

std::uint64_t Evictor::evict_batch(std::uint64_t most, EvictionReason reason, Bytes bytes) {
  std::array<std::uint32_t, kBatch> victims;
  std::size_t count = 0;
  while (count < std::min(most, kBatch)) {
    const std::uint32_t victim = live_.choose_victim();
    if (victim == kNoEntry) break;
    __builtin_prefetch(&index_.entry(victim));
    victims[count++] = victim;
  }
  // Victims are cold: fetch their entries and buckets together, so that the misses overlap.
  for (std::size_t i = 0; i < count; ++i) {
    index_.table().prefetch(index_.entry(victims[i]).hash.load_relaxed());
  }
  for (std::size_t i = 0; i < count; ++i) {
    // A victim may have left already, with its group.
    if (state_of(index_.entry(victims[i])) == shm::EntryState::kLive) {
      evict_forgotten(victims[i], reason, bytes);
    }
  }
  return count;
}

void Evictor::evict(std::uint32_t id, EvictionReason reason, Bytes bytes) {
  live_.forget(id);
  evict_forgotten(id, reason, bytes);
}

// REQUIRES: the policy has forgotten the victim.
void Evictor::evict_forgotten(std::uint32_t victim, EvictionReason reason, Bytes bytes) {
  const auto evict_entry = [this, reason, bytes](std::uint32_t id) {
    const shm::Entry& entry = index_.entry(id);
    index_.table().erase(entry.hash.load_relaxed(), id);
    ++counters_.evictions;
    ++counters_.evictions_for[static_cast<std::size_t>(reason)];
    counters_.evicted_bytes += entry.length.load_relaxed();
    departures_.note_eviction(entry.hash.load_relaxed(), reason);
    // Members of a group that was not published go nowhere else.
    const bool held = demotion_ != nullptr && reason != EvictionReason::kGroup &&
                      demotion_->begin({.entry = id,
                                        .used = live_.was_used(id),
                                        .may_stay = bytes != Bytes::kGoNow,
                                        .paced = bytes == Bytes::kPaced});
    if (!held) gone_bytes_ += entry.length.load_relaxed();
    live_.retire(id, held ? LiveObjects::Bytes::kHeld : LiveObjects::Bytes::kFree);
    MC_FAILPOINT("evict.after_limbo");
  };
  const auto group = live_.group(attribute_field(index_.entry(victim)).group);
  if (group.empty()) {
    evict_entry(victim);
    return;
  }
  const std::vector<std::uint32_t> members(group.begin(), group.end());
  for (const std::uint32_t id : members) {
    if (id != victim) live_.forget(id);
    evict_entry(id);
  }
}

}  // namespace mc::agent
