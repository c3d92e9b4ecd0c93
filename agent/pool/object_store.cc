// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/object_store.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "shm/pins.h"

namespace mc::agent {

namespace {

shm::KeyField key_field(const shm::Entry& entry) {
  return std::bit_cast<shm::KeyField>(entry.key.load_relaxed());
}

shm::AttributeField attributes(const shm::Entry& entry) {
  return std::bit_cast<shm::AttributeField>(entry.attributes.load_relaxed());
}

constexpr std::uint64_t kRepeatableSeed = 0x6d632d7265706561;

std::uint32_t steady_seconds() { return static_cast<std::uint32_t>(now_ns() / 1000000000u); }

}  // namespace

ObjectStore::ObjectStore(const Config& config, CollectPins collect_pins)
    : policy_(make_policy(config.policy.empty() ? policy_names().front() : config.policy)),
      collect_pins_(std::move(collect_pins)),
      capacity_option_(config.capacity_bytes),
      capacity_bytes_(config.capacity_bytes != 0 ? config.capacity_bytes : ~std::uint64_t{0}) {}

Result<std::unique_ptr<ObjectStore>> ObjectStore::create(const Config& config,
                                                         CollectPins collect_pins) {
  auto store = std::unique_ptr<ObjectStore>(new ObjectStore(config, std::move(collect_pins)));
  if (!store->policy_) return fail(MC_INVALID_ARGUMENT, "no policy is named " + config.policy);
  const std::uint64_t max_bytes = std::max(config.pool_bytes, config.max_pool_bytes);
  auto index = ObjectIndex::create(max_bytes / kGranuleBytes, config.node_id, config.incarnation);
  if (!index) return fail(index.error());
  store->index_ = std::move(*index);
  auto pool = ExtentPool::create(&store->index_->header(), config.pool_bytes, max_bytes,
                                 config.arenas, config.huge_pages);
  if (!pool) return fail(pool.error());
  store->take_pool(std::move(*pool));
  shm::IndexHeader& header = store->index_->header();
  if (config.repeatable) header.hash_seed = kRepeatableSeed;
  if (config.hash_seed) header.hash_seed = *config.hash_seed;
  header.capacity_bytes = config.capacity_bytes;
  header.isolated = config.isolated ? 1 : 0;
  header.clustered = config.hash_seed ? 1 : 0;
  const std::string_view policy = store->policy_->name();
  policy.copy(header.policy, sizeof header.policy - 1);
  return store;
}

void ObjectStore::take_pool(std::unique_ptr<ExtentPool> pool) {
  pool_ = std::move(pool);
  pool_->collapse_first([this]() -> std::optional<ExtentPool::Elsewhere> {
    const auto range = index_->next_huge_range();
    if (!range) return std::nullopt;
    return ExtentPool::Elsewhere{&index_->mapping(), range->offset_bytes, range->bytes};
  });
}

// ---- Reservations -------------------------------------------------------------------------------

[[gnu::hot]] ObjectStore::Reserve ObjectStore::reserve(std::uint64_t session_id, GrantedTo to,
                                                       std::uint64_t bytes, bool evict,
                                                       std::uint32_t& entry_id) {
  if (bytes > pool_->target_bytes() || bytes > capacity_bytes_) return Reserve::kTooLarge;
  PoolExtents extents;
  if (!allocate(bytes, evict, extents)) {
    const bool goes_on = evict && clearing_.wanted_bytes != 0 && clearing_.stalled == 0;
    return goes_on ? Reserve::kAgain : Reserve::kWait;
  }
  const auto acquired = index_->acquire_entry();
  if (!acquired || !write_extents(*acquired, extents, bytes)) {
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
  entry.version.store_release(shm::make_version(shm::sequence_of(entry.version.load_relaxed()),
                                                shm::EntryState::kReserved));
  ++reserved_count_;
  ++granted_since_;
  MC_FAILPOINT("reserve.after_publish");
  return Reserve::kOk;
}

// Writes length and extents of an entry that nobody can see yet.
[[gnu::hot]] bool ObjectStore::write_extents(std::uint32_t entry_id, const PoolExtents& extents,
                                             std::uint64_t length) {
  shm::Entry& entry = index_->entry(entry_id);
  std::uint64_t extent = extents.at[0].offset_bytes;
  if (extents.count > 1) {
    shm::ExtentRecord records[MC_MAX_EXTENTS];
    for (std::uint32_t i = 0; i < extents.count; ++i) {
      records[i] = {extents.at[i].offset_bytes, extents.at[i].length_bytes};
    }
    const auto record = index_->store_extents({records, extents.count});
    if (!record) return false;
    extent = *record;
  }
  shm::KeyField field{};
  field.extent_count = static_cast<std::uint8_t>(extents.count);
  entry.extent.store_relaxed(extent);
  entry.length.store_relaxed(length);
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  remember_nodes(entry_id, extents);
  return true;
}

[[gnu::hot]] void ObjectStore::remember_nodes(std::uint32_t entry_id, const PoolExtents& extents) {
  if (entry_id >= nodes_.size()) nodes_.resize(entry_id + 1, kNoBlock);
  nodes_[entry_id] = extents.at[0].node;
  many_nodes_.erase(entry_id);
  for (std::uint32_t i = 0; i < extents.count; ++i) pool_->set_owner(extents.at[i], entry_id);
  if (extents.count == 1) return;
  std::vector<BlockId>& nodes = many_nodes_[entry_id];
  for (std::uint32_t i = 0; i < extents.count; ++i) nodes.push_back(extents.at[i].node);
}

void ObjectStore::read(std::uint32_t entry_id, std::uint64_t offset,
                       std::span<std::byte> to) const {
  const PoolExtents lies = extents(entry_id);
  for (std::uint32_t i = 0; i < lies.count && !to.empty(); ++i) {
    const PoolExtent& extent = lies.at[i];
    if (offset < extent.length_bytes) {
      const auto step = std::min<std::uint64_t>(to.size(), extent.length_bytes - offset);
      std::memcpy(to.data(), pool_->data() + extent.offset_bytes + offset, step);
      to = to.subspan(step);
      offset = 0;
    } else {
      offset -= extent.length_bytes;
    }
  }
}

void ObjectStore::write(std::uint32_t entry_id, std::uint64_t offset,
                        std::span<const std::byte> from) {
  const PoolExtents lies = extents(entry_id);
  for (std::uint32_t i = 0; i < lies.count && !from.empty(); ++i) {
    const PoolExtent& extent = lies.at[i];
    if (offset < extent.length_bytes) {
      const auto step = std::min<std::uint64_t>(from.size(), extent.length_bytes - offset);
      std::memcpy(pool_->data() + extent.offset_bytes + offset, from.data(), step);
      from = from.subspan(step);
      offset = 0;
    } else {
      offset -= extent.length_bytes;
    }
  }
}

[[gnu::hot]] PoolExtents ObjectStore::extents(std::uint32_t entry_id) const {
  PoolExtents result;
  const shm::Entry& entry = index_->entry(entry_id);
  if (key_field(entry).extent_count == 1) {
    const std::uint64_t length = entry.length.load_relaxed();
    result.count = 1;
    result.at[0] = {entry.extent.load_relaxed(),
                    (length + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes, nodes_[entry_id]};
    return result;
  }
  const std::vector<shm::ExtentRecord> records = index_->extents_of(entry_id);
  const auto many = many_nodes_.find(entry_id);
  result.count = static_cast<std::uint32_t>(records.size());
  for (std::uint32_t i = 0; i < result.count; ++i) {
    const BlockId node = many == many_nodes_.end() ? nodes_[entry_id] : many->second[i];
    result.at[i] = {records[i].offset_bytes, records[i].length_bytes, node};
  }
  return result;
}

[[gnu::hot]] bool ObjectStore::is_reserved_by(std::uint64_t session_id,
                                              std::uint32_t entry_id) const {
  if (entry_id >= index_->entry_count()) return false;
  const shm::Entry& entry = index_->entry(entry_id);
  return shm::state_of(entry.version.load_relaxed()) == shm::EntryState::kReserved &&
         entry.hash.load_relaxed() == session_id;
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
  free_entry(entry_id);
  return true;
}

std::vector<std::uint32_t> ObjectStore::reservations_of(std::uint64_t session_id) const {
  std::vector<std::uint32_t> entries;
  for (std::uint32_t id = 0; id < index_->entry_count(); ++id) {
    if (is_reserved_by(session_id, id)) entries.push_back(id);
  }
  return entries;
}

// Extents, key record and entry go back; REQUIRES that no reader can hold a pin on it.
void ObjectStore::free_entry(std::uint32_t entry_id) {
  shm::Entry& entry = index_->entry(entry_id);
  const PoolExtents gone = extents(entry_id);
  const shm::KeyField field = key_field(entry);
  const std::uint64_t extent = entry.extent.load_relaxed();
  // First the word that recovery believes, then what it guards.
  entry.version.store_release(
      shm::make_version(shm::sequence_of(entry.version.load_relaxed()), shm::EntryState::kFree));
  MC_FAILPOINT("free.after_publish");
  for (std::uint32_t i = 0; i < gone.count; ++i) pool_->free(gone.at[i]);
  if (field.extent_count > 1) {
    const std::uint64_t bytes = field.extent_count * sizeof(shm::ExtentRecord);
    index_->keys().free(static_cast<std::uint32_t>(extent), static_cast<std::uint32_t>(bytes));
    many_nodes_.erase(entry_id);
  }
  index_->free_key(field);
  index_->release_entry(entry_id);
}

// ---- Put ----------------------------------------------------------------------------------------

ObjectStore::Put ObjectStore::check_order(std::uint64_t session_id, const PutOrder& order) const {
  if (!is_reserved_by(session_id, order.entry) || order.length == 0 ||
      order.length > reserved_length(order.entry) || order.key.empty()) {
    return Put::kBadReservation;
  }
  return order.length > capacity_bytes_ ? Put::kTooLarge : Put::kStored;
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
    // Asked again after a restart: the agent before published it and could not say so. An object
    // that was there before an upsert does not answer for it.
    const auto there = index_->find(order.key, hash);
    const bool done = !is_reserved_by(session_id, order.entry) && there &&
                      (!order.upsert || *there == order.entry);
    abandon(session_id, order.entry);
    return done ? Put::kExisted : bad;
  }
  const auto existing = index_->find(order.key, hash);
  if (existing && !order.upsert) {
    policy().touch(*existing);
    ++counters_.put_existing;
    return Put::kExisted;
  }
  Put result = Put::kNoSpace;
  if (live_bytes_ + order.length <= capacity_bytes_) {
    result = publish_new(session_id, order, hash, existing);
  } else if (make_capacity(order.key, hash, order.length)) {
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
  shm::KeyField field = key_field(entry);
  if (order.length < entry.length.load_relaxed()) {
    PoolExtents kept = extents(order.entry);
    const std::uint32_t had = kept.count;
    const std::uint64_t old_record = entry.extent.load_relaxed();
    pool_->trim(kept, order.length);
    if (had > 1) {
      index_->keys().free(static_cast<std::uint32_t>(old_record),
                          static_cast<std::uint32_t>(had * sizeof(shm::ExtentRecord)));
    }
    if (!write_extents(order.entry, kept, order.length)) return Put::kNoMemory;
    field = key_field(entry);
  }
  field.record = *record;
  field.key_bytes = static_cast<std::uint16_t>(order.key.size());
  field.pin = static_cast<std::uint8_t>(order.pin);
  // A crash from here on leaves either the object or the reservation.
  index_->header().publishing_session.store_relaxed(session_id);
  index_->header().publishing_entry.store_release(order.entry + std::uint64_t{1});
  shm::light_fence();
  const bool soft = order.pin == MC_PIN_SOFT;
  const shm::AttributeField attribute{soft ? steady_seconds() + order.pin_ttl_s : 0, order.group};
  entry.checksum.store_relaxed(order.checksum);
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  entry.parent_hash.store_relaxed(order.parent_hash);
  entry.attributes.store_relaxed(std::bit_cast<std::uint64_t>(attribute));
  entry.hash.store_relaxed(hash);
  MC_FAILPOINT("put.before_publish");
  // From here on the object outlives a crash of the agent.
  entry.version.store_release(shm::make_version(index_->next_sequence(), shm::EntryState::kLive));
  MC_FAILPOINT("put.after_publish");
  index_->header().publishing_entry.store_release(0);
  if (existing) {
    index_->table().replace(hash, *existing, order.entry);
    MC_FAILPOINT("put.after_replace");
    policy().erase(*existing);
    to_limbo(*existing);
  } else if (!index_->table().insert(hash, order.entry)) {
    entry.hash.store_relaxed(session_id);
    entry.version.store_release(shm::make_version(shm::sequence_of(entry.version.load_relaxed()),
                                                  shm::EntryState::kReserved));
    return Put::kNoMemory;
  }
  --reserved_count_;
  admit(order.entry, hash, order);
  return Put::kStored;
}

// Notes a new object in counters and lists, and what the policy is to hear of it.
[[gnu::hot]] void ObjectStore::admit(std::uint32_t entry_id, std::uint64_t hash,
                                     const PutOrder& order) {
  pending_.push_back(
      {entry_id, order.parent_hash, hash, order.length, static_cast<PinLevel>(order.pin)});
  if (order.group != 0) groups_[order.group].push_back(entry_id);
  if (order.pin == MC_PIN_SOFT) {
    const std::uint32_t until = attributes(index_->entry(entry_id)).soft_pin_until_s;
    soft_pins_[entry_id] = until;
    next_expiry_ns_ = std::min(next_expiry_ns_, until * std::uint64_t{1000000000});
  }
  live_bytes_ += order.length;
  ++counters_.puts;
  counters_.put_bytes += order.length;
  if (listener_ != nullptr) listener_->on_live(entry_id, order);
}

// The policy hears of new objects when it is asked something, or when the agent has time.
void ObjectStore::admit_pending() {
  for (const Pending& pending : pending_) {
    Arrival arrival;
    arrival.id = pending.entry;
    arrival.parent = index_->find_by_hash(pending.parent_hash).value_or(kNoEntry);
    if (arrival.parent == pending.entry) arrival.parent = kNoEntry;
    arrival.key_hash = pending.hash;
    arrival.bytes = pending.length;
    arrival.pin = pending.pin;
    policy_->insert(arrival);
  }
  pending_.clear();
}

ObjectStore::Put ObjectStore::publish_group(std::uint64_t session_id, std::vector<PutOrder>& orders,
                                            std::size_t& failed) {
  Put result = Put::kStored;
  const std::uint32_t group = orders.empty() ? 0 : orders.front().group;
  std::size_t members = 0;
  // Room for all of it first: a group that fails half-way would have replaced objects for nothing.
  std::uint64_t bytes = 0;
  for (const PutOrder& order : orders) bytes += order.length;
  failed = 0;
  if (!make_room(bytes)) {
    for (const PutOrder& order : orders) abandon(session_id, order.entry);
    ++counters_.no_space;
    return Put::kNoSpace;
  }
  // What a crash leaves of this group is dropped at the next start.
  index_->header().committing_group.store_release(group);
  for (failed = 0; failed < orders.size(); ++failed) {
    const auto there = index_->find(orders[failed].key, index_->hash(orders[failed].key));
    const bool own = there && attributes(index_->entry(*there)).group == group;
    result = publish(session_id, orders[failed]);
    MC_FAILPOINT("group.after_member");
    if (result == Put::kExisted) {
      abandon(session_id, orders[failed].entry);
      result = Put::kStored;
      continue;
    }
    if (result != Put::kStored) break;
    members += own ? 0 : 1;
  }
  if (result == Put::kStored && members > 0) {
    // A group beyond the capacity evicts its own beginning.
    const auto found = groups_.find(group);
    if (found == groups_.end() || found->second.size() != members) result = Put::kNoSpace;
  }
  if (result != Put::kStored) {
    for (std::size_t i = failed; i < orders.size(); ++i) abandon(session_id, orders[i].entry);
    // Eviction may have been here already, and taken members with it.
    while (groups_.contains(group)) {
      const std::uint32_t member = groups_[group].front();
      policy().erase(member);
      evict_one(member);
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
  const std::uint64_t bytes = entry.length.load_relaxed();
  limbo_bytes_ += bytes;
  unchecked_bytes_ += bytes;
  limbo_.push_back(entry_id);
  return true;
}

// ---- Other verbs --------------------------------------------------------------------------------

bool ObjectStore::remove(std::string_view key) {
  const auto found = index_->find(key, index_->hash(key));
  if (!found) return false;
  policy().erase(*found);
  index_->table().erase(index_->entry(*found).hash.load_relaxed(), *found);
  to_limbo(*found);
  ++counters_.removes;
  return true;
}

bool ObjectStore::set_pin(std::string_view key, mc_pin pin, std::uint32_t ttl_s) {
  const auto found = index_->find(key, index_->hash(key));
  if (!found) return false;
  shm::Entry& entry = index_->entry(*found);
  shm::KeyField field = key_field(entry);
  shm::AttributeField attribute = attributes(entry);
  field.pin = static_cast<std::uint8_t>(pin);
  attribute.soft_pin_until_s = pin == MC_PIN_SOFT ? steady_seconds() + ttl_s : 0;
  entry.attributes.store_relaxed(std::bit_cast<std::uint64_t>(attribute));
  entry.key.store_release(std::bit_cast<std::uint64_t>(field));
  policy().set_pin(*found, static_cast<PinLevel>(pin));
  soft_pins_.erase(*found);
  if (pin == MC_PIN_SOFT) {
    soft_pins_[*found] = attribute.soft_pin_until_s;
    next_expiry_ns_ =
        std::min(next_expiry_ns_, attribute.soft_pin_until_s * std::uint64_t{1000000000});
  }
  return true;
}

void ObjectStore::touch(std::uint32_t entry_id) {
  if (entry_id >= index_->entry_count()) return;
  if (shm::state_of(index_->entry(entry_id).version.load_relaxed()) != shm::EntryState::kLive)
    return;
  ++counters_.touches;
  policy().touch(entry_id);
}

bool ObjectStore::drop_corrupt(std::uint32_t entry_id, std::uint64_t version) {
  shm::Entry& entry = index_->entry(entry_id);
  if (entry.version.load_relaxed() != version) return false;
  policy().erase(entry_id);
  index_->table().erase(entry.hash.load_relaxed(), entry_id);
  to_limbo(entry_id);
  ++counters_.corrupt;
  return true;
}

std::vector<ListedObject> ObjectStore::list(std::string_view prefix, std::size_t limit,
                                            std::uint64_t& cursor) {
  std::vector<ListedObject> objects;
  // Looks at a bounded number of entries, so that the loop is not held up by a huge pool.
  const std::uint64_t end = std::min(index_->entry_count(), cursor + 65536);
  for (; cursor < end && objects.size() < limit; ++cursor) {
    const auto id = static_cast<std::uint32_t>(cursor);
    const shm::Entry& entry = index_->entry(id);
    const std::uint64_t version = entry.version.load_relaxed();
    if (shm::state_of(version) != shm::EntryState::kLive) continue;
    const std::string_view key = index_->key_of(id);
    if (!key.starts_with(prefix)) continue;
    const shm::KeyField field = key_field(entry);
    objects.push_back({std::string(key), entry.length.load_relaxed(), shm::sequence_of(version),
                       field.extent_count, attributes(entry).group,
                       static_cast<mc_pin>(field.pin)});
  }
  if (cursor >= index_->entry_count()) cursor = 0;
  return objects;
}

std::uint64_t ObjectStore::bookkeeping_bytes() const {
  return index_->memory_bytes() + policy_->memory_bytes() + pool_->memory_bytes() +
         nodes_.capacity() * sizeof(BlockId) + limbo_.capacity() * sizeof(std::uint32_t);
}

}  // namespace mc::agent
