// SPDX-License-Identifier: Apache-2.0
//
// How a ObjectStore makes room: eviction, limbo, soft pins that run out, and shrinking.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "agent/pool/object_store.h"
#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "shm/pins.h"

namespace mc::agent {

namespace {

// Objects evicted at once when the pool is full: one heavy fence and one look at all pins serve
// them.
constexpr std::uint64_t kEvictBatch = 128;
// Objects in limbo that are worth a fence and a look at all pins.
constexpr std::size_t kLimboBatch = 512;
// A full pool keeps this share of itself free, so that a put finds room without waiting for an
// eviction.
constexpr std::uint64_t kHeadroomShare = 256;
constexpr std::uint64_t kMaxHeadroomBytes = 256ull << 20;
// Fewer objects are too large to be evicted on suspicion.
constexpr std::uint64_t kFewestForHeadroom = 1024;
// More is not evicted in one go, so that the loop is not held up.
constexpr std::uint64_t kEvictAtOnceBytes = 1ull << 20;
// What is evicted for while a place is being cleared for something else.
constexpr std::uint64_t kSmallBytes = 64ull << 10;
constexpr std::uint64_t kShrinkStep = 256;              // entries looked at per tick
constexpr std::uint64_t kShrinkStepBytes = 4ull << 20;  // bytes moved per tick
constexpr std::uint64_t kExpiryPeriodNs = 1000000000;

}  // namespace

bool ObjectStore::allocate(std::uint64_t bytes, bool evict, PoolExtents& extents) {
  if (pool_->allocate(bytes, false, extents)) return true;
  if (limbo_count() > 0) {
    reclaim();
    if (pool_->allocate(bytes, false, extents)) return true;
  }
  // A pool that still grows is not full: the next chunk is milliseconds away.
  if (!evict || pool_->growing()) return pool_->allocate(bytes, true, extents);
  const bool clearing = clearing_.wanted_bytes != 0;
  if (bytes <= (clearing ? kSmallBytes : kEvictAtOnceBytes) && !clears_for(bytes)) {
    // What the policy gives up first most often leaves room.
    const bool evicted = evict_some(bytes);
    if (evicted) reclaim();
    if (pool_->allocate(bytes, false, extents) || pool_->allocate(bytes, true, extents)) {
      return true;
    }
  }
  return clear_place(bytes, extents);
}

bool ObjectStore::make_room(std::uint64_t bytes) {
  if (bytes > capacity_bytes_) return false;
  while (live_bytes_ + bytes > capacity_bytes_) {
    const std::uint32_t victim = policy().evict();
    if (victim == kNoEntry) return false;
    evict_one(victim);
  }
  return true;
}

// Evicts until an object of this length under this key keeps the pool within its capacity.
bool ObjectStore::make_capacity(std::string_view key, std::uint64_t hash, std::uint64_t length) {
  for (;;) {
    // Looked up every time: eviction may take the very object that is to be replaced.
    const auto replaced = index_->find(key, hash);
    const std::uint64_t leaving = replaced ? index_->entry(*replaced).length.load_relaxed() : 0;
    if (live_bytes_ - leaving + length <= capacity_bytes_) return true;
    const std::uint32_t victim = policy().evict();
    if (victim == kNoEntry) return false;
    evict_one(victim);
  }
}

// Does what the last answers left to be done, while their clients go on. In small steps: the next
// request may be there already.
void ObjectStore::catch_up() {
  admit_pending();
  const std::uint64_t share = granted_since_ + 1;
  granted_since_ = 0;
  const std::uint64_t reserved = pool_->reserved_bytes();
  const std::uint64_t headroom = std::min(reserved / kHeadroomShare, kMaxHeadroomBytes);
  if (limbo_.size() >= kLimboBatch || (!limbo_.empty() && unchecked_bytes_ >= headroom / 2)) {
    check_limbo();
  }
  free_cleared(share);
  if (pool_->growing() || shrinking_ || live_count() < kFewestForHeadroom) return;
  if (pool_->used_bytes() > reserved - headroom + limbo_bytes_) {
    evict_batch(std::min(share, kEvictBatch));
  }
}

// Evicts until extents of this many bytes are gone, and no fewer objects than one fence should
// serve. False: nothing could be evicted.
bool ObjectStore::evict_some(std::uint64_t bytes) {
  const std::uint64_t most = std::clamp<std::uint64_t>(live_count() / 64, 1, kEvictBatch);
  const std::uint64_t start = counters_.evicted_bytes;
  std::uint64_t count = 0;
  while (count < most || counters_.evicted_bytes - start < bytes) {
    const std::uint64_t evicted = evict_batch(most);
    if (evicted == 0) break;
    count += evicted;
  }
  return count > 0;
}

// Evicts this many objects and their groups. Returns how many of them there were.
std::uint64_t ObjectStore::evict_batch(std::uint64_t most) {
  std::array<std::uint32_t, kEvictBatch> victims;
  std::size_t count = 0;
  while (count < most) {
    const std::uint32_t victim = policy().evict();
    if (victim == kNoEntry) break;
    __builtin_prefetch(&index_->entry(victim));
    victims[count++] = victim;
  }
  // Victims are cold: their entries and buckets are fetched together, not one miss after the
  // other.
  for (std::size_t i = 0; i < count; ++i) {
    index_->table().prefetch(index_->entry(victims[i]).hash.load_relaxed());
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t version = index_->entry(victims[i]).version.load_relaxed();
    // One that left with its group is gone already.
    if (shm::state_of(version) == shm::EntryState::kLive) evict_one(victims[i]);
  }
  return count;
}

// Takes an object out that the policy has forgotten, and with it the rest of its group, since a
// part of a group is of no use.
void ObjectStore::evict_one(std::uint32_t victim) {
  const auto group =
      std::bit_cast<shm::AttributeField>(index_->entry(victim).attributes.load_relaxed()).group;
  const auto evict = [this](std::uint32_t id) {
    const shm::Entry& entry = index_->entry(id);
    index_->table().erase(entry.hash.load_relaxed(), id);
    ++counters_.evictions;
    counters_.evicted_bytes += entry.length.load_relaxed();
    to_limbo(id);
    MC_FAILPOINT("evict.after_limbo");
  };
  const auto found = group == 0 ? groups_.end() : groups_.find(group);
  if (found == groups_.end()) {
    evict(victim);
    return;
  }
  const std::vector<std::uint32_t> members = found->second;
  for (const std::uint32_t id : members) {
    if (id != victim) policy().erase(id);
    evict(id);
  }
}

// REQUIRES: the object is in no table and unknown to the policy.
void ObjectStore::to_limbo(std::uint32_t entry_id) {
  shm::Entry& entry = index_->entry(entry_id);
  entry.version.store_release(
      shm::make_version(shm::sequence_of(entry.version.load_relaxed()), shm::EntryState::kLimbo));
  const std::uint64_t length = entry.length.load_relaxed();
  live_bytes_ -= length;
  limbo_bytes_ += length;
  unchecked_bytes_ += length;
  limbo_.push_back(entry_id);
  if (!soft_pins_.empty()) soft_pins_.erase(entry_id);
  if (!groups_.empty()) forget_group_member(entry_id);
  if (listener_ != nullptr) listener_->on_gone(entry_id);
}

void ObjectStore::forget_group_member(std::uint32_t entry_id) {
  const auto group =
      std::bit_cast<shm::AttributeField>(index_->entry(entry_id).attributes.load_relaxed()).group;
  const auto found = groups_.find(group);
  if (group == 0 || found == groups_.end()) return;
  std::erase(found->second, entry_id);
  if (found->second.empty()) groups_.erase(found);
}

void ObjectStore::reclaim() {
  if (!limbo_.empty()) check_limbo();
  free_cleared(cleared_.size());
}

// Readers wrote a pin and then checked the version; we changed the version and now read the pins:
// what has none now will never have one.
void ObjectStore::check_limbo() {
  shm::heavy_fence();
  std::vector<std::uint64_t> pins;
  collect_pins_(pins);
  std::sort(pins.begin(), pins.end());
  const auto pinned = [&](std::uint32_t id) {
    const std::uint64_t pin = shm::pin_value(id, index_->entry(id).version.load_relaxed());
    return std::binary_search(pins.begin(), pins.end(), pin);
  };
  const auto kept =
      pins.empty() ? limbo_.begin() : std::partition(limbo_.begin(), limbo_.end(), pinned);
  cleared_.insert(cleared_.end(), kept, limbo_.end());
  limbo_.erase(kept, limbo_.end());
  unchecked_bytes_ = 0;
}

// Starts loading what freeing the objects after the next will need. Each step needs what the one
// before it loads.
void ObjectStore::prefetch_frees() const {
  const auto after = [this](std::size_t distance) {
    return cleared_.size() > distance ? cleared_[cleared_.size() - 1 - distance] : kNoEntry;
  };
  const auto extent_of = [this](std::uint32_t id) {
    return PoolExtent{index_->entry(id).extent.load_relaxed(), 0, nodes_[id]};
  };
  const auto has_one = [this](std::uint32_t id) {
    return std::bit_cast<shm::KeyField>(index_->entry(id).key.load_relaxed()).extent_count == 1;
  };
  if (const std::uint32_t id = after(12); id != kNoEntry) {
    __builtin_prefetch(&index_->entry(id));
    __builtin_prefetch(&nodes_[id]);
  }
  if (const std::uint32_t id = after(8); id != kNoEntry && has_one(id)) {
    pool_->prefetch(extent_of(id));
  }
  if (const std::uint32_t id = after(4); id != kNoEntry && has_one(id)) {
    pool_->prefetch_neighbours(extent_of(id));
  }
}

void ObjectStore::free_cleared(std::uint64_t most) {
  for (; most > 0 && !cleared_.empty(); --most) {
    prefetch_frees();
    const std::uint32_t id = cleared_.back();
    cleared_.pop_back();
    limbo_bytes_ -= index_->entry(id).length.load_relaxed();
    free_entry(id);
    MC_FAILPOINT("reclaim.after_free");
  }
}

void ObjectStore::tick(std::uint64_t now_ns) {
  if (!soft_pins_.empty() && now_ns >= next_expiry_ns_) expire_soft_pins(now_ns);
  reclaim();
  if (clearing_.wanted_bytes != 0 && !clearing_.asked) give_up_clearing(false);
  clearing_.asked = false;
  clearing_useless_ = false;
  pool_->retry_growth();
  if (shrinking_) continue_shrink();
}

void ObjectStore::expire_soft_pins(std::uint64_t now_ns) {
  const auto now_s = static_cast<std::uint32_t>(now_ns / 1000000000u);
  std::erase_if(soft_pins_, [&](const auto& pin) {
    if (pin.second > now_s) return false;
    shm::Entry& entry = index_->entry(pin.first);
    auto field = std::bit_cast<shm::KeyField>(entry.key.load_relaxed());
    field.pin = MC_PIN_NONE;
    entry.key.store_release(std::bit_cast<std::uint64_t>(field));
    policy().set_pin(pin.first, PinLevel::kNone);
    return true;
  });
  next_expiry_ns_ = now_ns + kExpiryPeriodNs;
}

// ---- Shrinking ----------------------------------------------------------------------------------

void ObjectStore::resize(std::uint64_t pool_bytes) {
  give_up_clearing(false);
  pool_->resize(pool_bytes);
  capacity_bytes_ = capacity_option_ != 0 ? capacity_option_ : ~std::uint64_t{0};
  shrinking_ = pool_->shrinking();
  shrink_cursor_ = 0;
}

// Empties the tails a little at a time: what lies there is moved to the front, or evicted when
// there is no room. Reservations are waited for, pinned objects too.
void ObjectStore::continue_shrink() {
  std::uint64_t moved_bytes = 0;
  for (std::uint64_t i = 0; i < kShrinkStep * 16 && moved_bytes < kShrinkStepBytes; ++i) {
    if (shrink_cursor_ >= index_->entry_count()) {
      shrink_cursor_ = 0;
      break;
    }
    const auto id = static_cast<std::uint32_t>(shrink_cursor_++);
    const shm::Entry& entry = index_->entry(id);
    if (shm::state_of(entry.version.load_relaxed()) != shm::EntryState::kLive) continue;
    if (tail_bytes(id) == 0) continue;
    moved_bytes += extents(id).bytes();
    if (!move_away(id)) {
      // Hard pins are never evicted: the shrink waits until there is room for them.
      if (std::bit_cast<shm::KeyField>(entry.key.load_relaxed()).pin == MC_PIN_HARD) continue;
      policy().erase(id);
      evict_one(id);
    }
    MC_FAILPOINT("resize.after_move");
  }
  reclaim();
  if (pool_->finish_shrinking()) shrinking_ = false;
}

std::uint64_t ObjectStore::tail_bytes(std::uint32_t entry_id) const {
  const PoolExtents lies = extents(entry_id);
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < lies.count; ++i) {
    const PoolExtent& extent = lies.at[i];
    if (pool_->must_leave(extent.offset_bytes, extent.length_bytes)) bytes += extent.length_bytes;
  }
  return bytes;
}

std::uint64_t ObjectStore::limbo_tail_bytes() const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t id : limbo_) bytes += tail_bytes(id);
  return bytes;
}

// Copies an object to new extents under a new entry, replaces the old one in one store, and leaves
// the old bytes to their readers. False: no room.
bool ObjectStore::move_away(std::uint32_t old_id) {
  const shm::Entry& old_entry = index_->entry(old_id);
  const std::uint64_t length = old_entry.length.load_relaxed();
  PoolExtents to;
  if (!pool_->allocate(length, true, to)) return false;
  const auto id = index_->acquire_entry();
  OptionalId record;
  if (id) record = index_->store_key(*id, index_->key_of(old_id));
  if (!id || !record || !write_extents(*id, to, length)) {
    for (std::uint32_t i = 0; i < to.count; ++i) pool_->free(to.at[i]);
    if (id) index_->release_entry(*id);
    if (record) {
      auto field = std::bit_cast<shm::KeyField>(old_entry.key.load_relaxed());
      field.record = *record;
      index_->free_key(field);
    }
    return false;
  }
  const PoolExtents from = extents(old_id);
  std::uint64_t done = 0;
  std::uint32_t in = 0, out = 0;
  std::uint64_t in_at = 0, out_at = 0;
  while (done < length) {
    const std::uint64_t step = std::min(
        {length - done, from.at[in].length_bytes - in_at, to.at[out].length_bytes - out_at});
    std::memcpy(pool_->data() + to.at[out].offset_bytes + out_at,
                pool_->data() + from.at[in].offset_bytes + in_at, step);
    done += step;
    if ((in_at += step) == from.at[in].length_bytes) in_at = 0, ++in;
    if ((out_at += step) == to.at[out].length_bytes) out_at = 0, ++out;
  }
  shm::Entry& entry = index_->entry(*id);
  auto field = std::bit_cast<shm::KeyField>(old_entry.key.load_relaxed());
  const auto attribute = std::bit_cast<shm::AttributeField>(old_entry.attributes.load_relaxed());
  field.record = *record;
  field.extent_count = static_cast<std::uint8_t>(to.count);
  const std::uint64_t hash = old_entry.hash.load_relaxed();
  entry.checksum.store_relaxed(old_entry.checksum.load_relaxed());
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  entry.parent_hash.store_relaxed(old_entry.parent_hash.load_relaxed());
  entry.attributes.store_relaxed(old_entry.attributes.load_relaxed());
  entry.hash.store_relaxed(hash);
  MC_FAILPOINT("move.before_publish");
  entry.version.store_release(shm::make_version(index_->next_sequence(), shm::EntryState::kLive));
  MC_FAILPOINT("move.after_publish");
  index_->table().replace(hash, old_id, *id);
  policy().erase(old_id);
  pending_.push_back(
      {*id, entry.parent_hash.load_relaxed(), hash, length, static_cast<PinLevel>(field.pin)});
  live_bytes_ += length;
  if (attribute.group != 0) groups_[attribute.group].push_back(*id);
  if (field.pin == MC_PIN_SOFT) soft_pins_[*id] = attribute.soft_pin_until_s;
  ++counters_.moves;
  StoreListener* const listener = std::exchange(listener_, nullptr);
  to_limbo(old_id);
  listener_ = listener;
  if (listener_ != nullptr) listener_->on_moved(old_id, *id);
  return true;
}

}  // namespace mc::agent
