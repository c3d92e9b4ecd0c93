// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/object_store.h"

#include <algorithm>
#include <bit>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "shm/pins.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kRepeatableSeed = 0x6d632d7265706561;
// A larger request is not served by evicting the policy's victims, so that the loop is not held up.
constexpr std::uint64_t kEvictAtOnceBytes = 1ull << 20;
// The same limit while a place is being cleared for another request.
constexpr std::uint64_t kSmallBytes = 64ull << 10;
// list() examines this many entries, so that a huge pool does not hold up the loop.
constexpr std::uint64_t kListEntries = 65536;
// Objects of an earlier agent that the policy learns of with every tick: about 0.3 ms.
constexpr std::uint64_t kAdoptedInTick = 1024;
// Objects beyond a lowered capacity that a tick evicts.
constexpr std::uint64_t kEvictedInTick = 1024;
// Objects that a step of evict_towards() evicts, and the rest of the last group.
constexpr std::uint64_t kEvictedInStep = 1024;

}  // namespace

ObjectStore::ObjectStore(const Config& config, std::unique_ptr<ObjectIndex> index,
                         std::unique_ptr<ExtentPool> pool, std::unique_ptr<EvictionPolicy> policy,
                         CollectPins collect_pins)
    : index_(std::move(index)),
      pool_(std::move(pool)),
      extents_(*index_, *pool_),
      limbo_(*index_, extents_, std::move(collect_pins)),
      live_(*index_, limbo_, counters_, std::move(policy)),
      departures_(now_ns()),
      evictor_(*index_, *pool_, live_, limbo_, departures_, counters_,
               config.capacity_bytes != 0 ? config.capacity_bytes : Evictor::kUnlimited),
      mover_(*index_, *pool_, extents_, live_),
      clearing_(*index_, *pool_, limbo_, evictor_, mover_, counters_),
      shrinker_(*index_, *pool_, limbo_, evictor_, mover_) {
  pool_->collapse_first([this]() -> std::optional<ExtentPool::Elsewhere> {
    const auto range = index_->next_huge_range();
    if (!range) return std::nullopt;
    return ExtentPool::Elsewhere{&index_->mapping(), range->offset_bytes, range->bytes};
  });
}

Result<std::unique_ptr<EvictionPolicy>> ObjectStore::make_policy(const Config& config) {
  auto policy = agent::make_policy(config.policy.empty() ? policy_names().front() : config.policy);
  if (policy) return policy;
  return fail(MC_INVALID_ARGUMENT,
              "no policy is named " + config.policy + "; use prefix, lru or s3fifo");
}

Result<std::unique_ptr<ObjectStore>> ObjectStore::create(const Config& config,
                                                         CollectPins collect_pins) {
  auto policy = make_policy(config);
  if (!policy) return fail(policy.error());
  const std::uint64_t max_bytes = std::max(config.pool_bytes, config.max_pool_bytes);
  auto index = ObjectIndex::create(max_bytes / kGranuleBytes, config.node_id, config.incarnation);
  if (!index) return fail(index.error());
  shm::IndexHeader& header = (*index)->header();
  auto pool =
      ExtentPool::create(&header, config.pool_bytes, max_bytes, config.arenas, config.huge_pages);
  if (!pool) return fail(pool.error());
  if (config.repeatable) header.hash_seed = kRepeatableSeed;
  if (config.hash_seed) header.hash_seed = *config.hash_seed;
  header.capacity_bytes = config.capacity_bytes;
  header.isolated = config.isolated ? 1 : 0;
  header.clustered = config.hash_seed ? 1 : 0;
  (*policy)->name().copy(header.policy, sizeof header.policy - 1);
  return std::unique_ptr<ObjectStore>(new ObjectStore(config, std::move(*index), std::move(*pool),
                                                      std::move(*policy), std::move(collect_pins)));
}

bool ObjectStore::allocate(std::uint64_t bytes, bool evict, PoolExtents& extents) {
  if (pool_->allocate(bytes, false, extents)) return true;
  if (limbo_.count() > 0) {
    limbo_.reclaim();
    if (pool_->allocate(bytes, false, extents)) return true;
  }
  // A growing pool is not full: the next chunk is milliseconds away.
  if (!evict || pool_->growing()) return pool_->allocate(bytes, true, extents);
  const std::uint64_t at_once = clearing_.active() ? kSmallBytes : kEvictAtOnceBytes;
  if (bytes <= at_once && !clearing_.is_for(bytes)) {
    // The policy's first victims leave enough room in most cases.
    if (evictor_.evict_some(bytes)) limbo_.reclaim();
    if (pool_->allocate(bytes, false, extents) || pool_->allocate(bytes, true, extents)) {
      return true;
    }
  }
  return clearing_.clear(bytes, extents);
}

// ---- Reservations -------------------------------------------------------------------------------

[[gnu::hot]] ObjectStore::Reserve ObjectStore::reserve(std::uint64_t session_id, GrantedTo to,
                                                       std::uint64_t bytes, bool evict,
                                                       std::uint32_t& entry_id) {
  if (bytes > pool_->target_bytes()) return Reserve::kTooLarge;
  PoolExtents extents;
  if (!allocate(bytes, evict, extents)) {
    return evict && clearing_.progressing() ? Reserve::kAgain : Reserve::kWait;
  }
  const auto acquired = index_->acquire_entry();
  if (!acquired || !extents_.assign(*acquired, extents, bytes)) {
    for (std::uint32_t i = 0; i < extents.count; ++i) pool_->free(extents.at[i]);
    if (acquired) index_->release_entry(*acquired);
    return Reserve::kNoMemory;
  }
  entry_id = *acquired;
  MC_FAILPOINT("reserve.before_publish");
  shm::Entry& entry = index_->entry(entry_id);
  entry.hash.store_relaxed(session_id);
  entry.parent_hash.store_relaxed(to.channel);
  entry.checksum.store_relaxed(to.request_id);
  entry.version.store_release(
      shm::make_version(index_->next_sequence(), shm::EntryState::kReserved));
  ++reserved_count_;
  evictor_.note_reservation();
  MC_FAILPOINT("reserve.after_publish");
  return Reserve::kOk;
}

[[gnu::hot]] bool ObjectStore::is_reserved_by(std::uint64_t session_id,
                                              std::uint32_t entry_id) const {
  if (entry_id >= index_->entry_count()) return false;
  const shm::Entry& entry = index_->entry(entry_id);
  return state_of(entry) == shm::EntryState::kReserved && entry.hash.load_relaxed() == session_id;
}

[[gnu::hot]] std::uint64_t ObjectStore::generation_of(std::uint32_t entry_id) const {
  return shm::sequence_of(index_->entry(entry_id).version.load_relaxed());
}

[[gnu::hot]] std::uint64_t ObjectStore::reserved_length(std::uint32_t entry_id) const {
  return index_->entry(entry_id).length.load_relaxed();
}

GrantedTo ObjectStore::granted_to(std::uint32_t entry_id) const {
  const shm::Entry& entry = index_->entry(entry_id);
  return {entry.parent_hash.load_relaxed(), entry.checksum.load_relaxed()};
}

bool ObjectStore::abandon(std::uint64_t session_id, std::uint32_t entry_id) {
  if (!is_reserved_by(session_id, entry_id)) return false;
  --reserved_count_;
  extents_.free(entry_id);
  return true;
}

// ---- Put ----------------------------------------------------------------------------------------

ObjectStore::Put ObjectStore::check_order(std::uint64_t session_id, const PutOrder& order) const {
  if (!is_reserved_by(session_id, order.entry) || order.length == 0 ||
      order.length > reserved_length(order.entry) || order.key.empty()) {
    return Put::kBadReservation;
  }
  return order.length > capacity_bytes() ? Put::kTooLarge : Put::kStored;
}

void ObjectStore::prefetch(std::string_view key, std::uint32_t entry_id) const {
  index_->table().prefetch(index_->hash(key));
  if (entry_id >= index_->entry_count()) return;
  __builtin_prefetch(&index_->entry(entry_id), 1);
  __builtin_prefetch(index_->entry(entry_id).short_key, 1);
}

[[gnu::hot]] ObjectStore::Put ObjectStore::publish(std::uint64_t session_id,
                                                   const PutOrder& order) {
  const std::uint64_t hash = index_->hash(order.key);
  if (const Put bad = check_order(session_id, order); bad != Put::kStored) {
    // A client repeats a put after a restart if the previous agent published the object without
    // an answer. For an upsert, an older object under the key does not count.
    const auto there = index_->find(order.key, hash);
    const bool done = !is_reserved_by(session_id, order.entry) && there &&
                      (!order.upsert || *there == order.entry);
    abandon(session_id, order.entry);
    return done ? Put::kExisted : bad;
  }
  const auto existing = index_->find(order.key, hash);
  if (existing && !order.upsert) {
    live_.touch(*existing);
    ++counters_.put_existing;
    return Put::kExisted;
  }
  Put result = Put::kNoSpace;
  if (evictor_.fits(order.length)) {
    result = publish_new(session_id, order, hash, existing);
  } else if (evictor_.make_capacity_for(order.key, hash, order.length)) {
    // Eviction may have taken the object that was to be replaced.
    result = publish_new(session_id, order, hash, index_->find(order.key, hash));
  } else {
    ++counters_.no_space;
  }
  if (result != Put::kStored && result != Put::kNoSpace) abandon(session_id, order.entry);
  return result;
}

[[gnu::hot]] ObjectStore::Put ObjectStore::publish_new(std::uint64_t session_id,
                                                       const PutOrder& order, std::uint64_t hash,
                                                       OptionalId existing) {
  if (!existing && !index_->table().prepare_insert()) return Put::kNoMemory;
  const auto record = index_->store_key(order.entry, order.key);
  if (!record) return Put::kNoMemory;
  shm::Entry& entry = index_->entry(order.entry);
  if (order.length < entry.length.load_relaxed() && !extents_.trim(order.entry, order.length)) {
    return Put::kNoMemory;
  }
  shm::KeyField field = key_field(entry);
  field.record = *record;
  field.key_bytes = static_cast<std::uint16_t>(order.key.size());
  field.pin = static_cast<std::uint8_t>(order.pin);
  // From here on a crash leaves either the object or the reservation.
  index_->header().publishing_session.store_relaxed(session_id);
  index_->header().publishing_entry.store_release(order.entry + std::uint64_t{1});
  shm::crash_fence();
  const bool soft = order.pin == MC_PIN_SOFT;
  const shm::AttributeField attribute{soft ? steady_seconds() + order.pin_ttl_s : 0, order.group};
  entry.checksum.store_relaxed(order.checksum);
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  entry.parent_hash.store_relaxed(order.parent_hash);
  entry.attributes.store_relaxed(std::bit_cast<std::uint64_t>(attribute));
  entry.hash.store_relaxed(hash);
  MC_FAILPOINT("put.before_publish");
  // From here on the object survives a crash of the agent.
  entry.version.store_release(shm::make_version(index_->next_sequence(), shm::EntryState::kLive));
  MC_FAILPOINT("put.after_publish");
  index_->header().publishing_entry.store_release(0);
  if (existing) {
    index_->table().replace(hash, *existing, order.entry);
    MC_FAILPOINT("put.after_replace");
    live_.forget(*existing);
    live_.retire(*existing);
  } else if (!index_->table().insert(hash, order.entry)) {
    entry.hash.store_relaxed(session_id);
    index_->set_state(order.entry, shm::EntryState::kReserved);
    return Put::kNoMemory;
  }
  --reserved_count_;
  live_.admit(order.entry, hash, order);
  return Put::kStored;
}

// The pool's sequence gives the number, so that a restart rarely repeats a number. Numbers repeat
// after 2^32 steps of the sequence, and a group may live longer.
std::uint32_t ObjectStore::unused_group() {
  std::uint32_t group = 0;  // no group
  while (group == 0 || !live_.group(group).empty()) {
    group = static_cast<std::uint32_t>(index_->next_sequence() % 0xffffffff + 1);
  }
  return group;
}

ObjectStore::Put ObjectStore::publish_group(std::uint64_t session_id, std::vector<PutOrder>& orders,
                                            std::size_t& failed) {
  Put result = Put::kStored;
  const std::uint32_t group = unused_group();
  std::size_t members = 0;
  // Make room for all members first: a group that fails later would have replaced objects in vain.
  std::uint64_t bytes = 0;
  for (PutOrder& order : orders) {
    order.group = group;
    bytes += order.length;
  }
  failed = 0;
  if (!make_room(bytes)) {
    for (const PutOrder& order : orders) abandon(session_id, order.entry);
    ++counters_.no_space;
    return Put::kNoSpace;
  }
  // After a crash, the next start drops the published members of this group.
  index_->header().committing_group.store_release(group);
  for (failed = 0; failed < orders.size(); ++failed) {
    const auto there = index_->find(orders[failed].key, index_->hash(orders[failed].key));
    const bool own = there && attribute_field(index_->entry(*there)).group == group;
    result = publish(session_id, orders[failed]);
    MC_FAILPOINT("group.after_member");
    if (result == Put::kExisted) {
      abandon(session_id, orders[failed].entry);
      orders[failed].entry = kNoEntry;
      result = Put::kStored;
      continue;
    }
    if (result != Put::kStored) break;
    members += own ? 0 : 1;
  }
  // A group larger than the capacity evicts its own first members.
  if (result == Put::kStored && members > 0 && live_.group(group).size() != members) {
    result = Put::kNoSpace;
  }
  if (result != Put::kStored) {
    for (std::size_t i = failed; i < orders.size(); ++i) abandon(session_id, orders[i].entry);
    // An eviction may already have taken some members.
    while (!live_.group(group).empty()) {
      evictor_.evict(live_.group(group).front(), EvictionReason::kGroup);
    }
  }
  index_->header().committing_group.store_release(0);
  return result;
}

bool ObjectStore::serve_unpublished(std::uint64_t session_id, std::uint32_t entry_id,
                                    std::uint64_t length, std::uint64_t sum,
                                    std::span<shm::Word64* const> pins) {
  if (!is_reserved_by(session_id, entry_id) || length == 0 || length > reserved_length(entry_id)) {
    return false;
  }
  shm::Entry& entry = index_->entry(entry_id);
  const std::uint64_t version = shm::make_version(index_->next_sequence(), shm::EntryState::kLimbo);
  entry.checksum.store_relaxed(sum);
  entry.parent_hash.store_relaxed(0);
  entry.attributes.store_relaxed(0);
  entry.hash.store_relaxed(0);
  entry.version.store_release(version);
  for (shm::Word64* pin : pins) pin->store_release(shm::pin_value(entry_id, version));
  MC_FAILPOINT("serve_unpublished.after_pins");
  --reserved_count_;
  limbo_.add(entry_id);
  return true;
}

// ---- Other verbs --------------------------------------------------------------------------------

bool ObjectStore::remove(std::string_view key, Removal why) {
  const auto found = index_->find(key, index_->hash(key));
  if (!found) return false;
  const std::uint64_t hash = index_->entry(*found).hash.load_relaxed();
  why == Removal::kByClient ? departures_.note_removal(hash) : departures_.note_drop(hash);
  live_.remove(*found);
  ++counters_.removes;
  return true;
}

bool ObjectStore::set_pin(std::string_view key, mc_pin pin, std::uint32_t ttl_s) {
  const auto found = index_->find(key, index_->hash(key));
  if (found) live_.set_pin(*found, pin, ttl_s);
  return found.has_value();
}

void ObjectStore::touch(std::uint32_t entry_id) {
  if (entry_id >= index_->entry_count()) return;
  if (state_of(index_->entry(entry_id)) != shm::EntryState::kLive) return;
  ++counters_.touches;
  live_.touch(entry_id);
}

bool ObjectStore::drop_corrupt(std::uint32_t entry_id, std::uint64_t version) {
  if (index_->entry(entry_id).version.load_relaxed() != version) return false;
  departures_.note_damage(index_->entry(entry_id).hash.load_relaxed());
  live_.remove(entry_id);
  ++counters_.corrupt;
  return true;
}

std::vector<ListedObject> ObjectStore::list(std::string_view prefix, std::size_t limit,
                                            std::uint64_t& cursor) {
  std::vector<ListedObject> objects;
  const std::uint64_t end = std::min(index_->entry_count(), cursor + kListEntries);
  for (; cursor < end && objects.size() < limit; ++cursor) {
    const auto id = static_cast<std::uint32_t>(cursor);
    const shm::Entry& entry = index_->entry(id);
    const std::uint64_t version = entry.version.load_relaxed();
    if (shm::state_of(version) != shm::EntryState::kLive) continue;
    const std::string_view key = index_->key_of(id);
    if (!key.starts_with(prefix)) continue;
    const shm::KeyField field = key_field(entry);
    objects.push_back({std::string(key), entry.length.load_relaxed(), shm::sequence_of(version),
                       field.extent_count, attribute_field(entry).group,
                       static_cast<mc_pin>(field.pin)});
  }
  if (cursor >= index_->entry_count()) cursor = 0;
  return objects;
}

std::uint64_t ObjectStore::free_bytes() const {
  const std::uint64_t used = pool_->used_bytes();
  const std::uint64_t reserved = pool_->reserved_bytes();
  return reserved > used ? reserved - used : 0;
}

ObjectStore::Evicting ObjectStore::evict_towards(std::uint64_t wanted_bytes) {
  const auto have = [&] { return free_bytes() + limbo_bytes() >= wanted_bytes; };
  const std::uint64_t start = counters_.evictions;
  Evicting state = have() ? Evicting::kDone : Evicting::kMore;
  while (state == Evicting::kMore && counters_.evictions - start < kEvictedInStep &&
         evictor_.demotion_keeps_up()) {
    // One victim at a time: a victim may have a group of many objects.
    if (evictor_.evict_batch(1, EvictionReason::kOperator, Evictor::Bytes::kPaced) == 0) {
      state = Evicting::kExhausted;
    }
    if (have()) state = Evicting::kDone;
  }
  limbo_.reclaim();
  return state;
}

// ---- Time ---------------------------------------------------------------------------------------

void ObjectStore::tick(std::uint64_t now_ns) {
  departures_.tick(now_ns);
  live_.expire_soft_pins(now_ns);
  live_.catch_up(kAdoptedInTick);
  evictor_.fit_capacity(kEvictedInTick);
  limbo_.reclaim();
  clearing_.tick();
  pool_->retry_growth();
  shrinker_.step();
}

void ObjectStore::resize(std::uint64_t pool_bytes) {
  clearing_.give_up();
  shrinker_.resize(pool_bytes);
}

std::uint64_t ObjectStore::bookkeeping_bytes() const {
  return index_->memory_bytes() + live_.memory_bytes() + pool_->memory_bytes() +
         extents_.memory_bytes() + limbo_.memory_bytes() + departures_.memory_bytes();
}

}  // namespace mc::agent
