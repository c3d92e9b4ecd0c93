// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/recovery.h"

#include <algorithm>
#include <bit>

#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

shm::KeyField key_field(const shm::Entry& entry) {
  return std::bit_cast<shm::KeyField>(entry.key.load_relaxed());
}
shm::AttributeField attributes(const shm::Entry& entry) {
  return std::bit_cast<shm::AttributeField>(entry.attributes.load_relaxed());
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> ObjectStore::recover(const Config& config,
                                                          CollectPins collect_pins,
                                                          MemoryFile index, MemoryFile pool,
                                                          const SessionKnown& session_known) {
  auto store = std::unique_ptr<ObjectStore>(new ObjectStore(config, std::move(collect_pins)));
  if (!store->policy_) return fail(MC_INVALID_ARGUMENT, "no policy is named " + config.policy);
  auto adopted = ObjectIndex::adopt(std::move(index));
  if (!adopted) return fail(adopted.error());
  store->index_ = std::move(*adopted);
  auto extents = ExtentPool::adopt(&store->index_->header(), std::move(pool), config.pool_bytes,
                                   config.huge_pages);
  if (!extents) return fail(extents.error());
  store->take_pool(std::move(*extents));
  MC_FAILPOINT("recover.adopted");
  if (Status status = Recovery(*store, session_known).run(); !status.ok()) return fail(status);
  MC_FAILPOINT("recover.done");
  // The configured size may differ from the one before.
  store->resize(config.pool_bytes);
  return store;
}

Status Recovery::run() {
  undo_unfinished_publication();
  judge_entries();
  claim_extents();
  claim_records();
  if (Status status = index_.table().reset(index_.entry_count()); !status.ok()) return status;
  choose_between_duplicates();
  admit_all();
  index_.header().committing_group.store_relaxed(0);
  index_.header().publishing_entry.store_relaxed(0);
  index_.header().next_sequence.store_relaxed(last_sequence_ + 1);
  return {};
}

// Its owner will ask again for a reservation that did not become an object any more.
void Recovery::undo_unfinished_publication() {
  const std::uint64_t number = index_.header().publishing_entry.load_relaxed();
  if (number == 0 || number > index_.entry_count()) return;
  shm::Entry& entry = index_.entry(static_cast<std::uint32_t>(number - 1));
  if (shm::state_of(entry.version.load_relaxed()) != shm::EntryState::kReserved) return;
  shm::KeyField field{};
  field.extent_count = key_field(entry).extent_count;
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  entry.hash.store_relaxed(index_.header().publishing_session.load_relaxed());
}

void Recovery::judge_entries() {
  const std::uint64_t count = index_.entry_count();
  fates_.resize(count, Fate::kFree);
  admitted_.resize(count, false);
  last_sequence_ = index_.header().next_sequence.load_relaxed() & 0xffffffffffffffull;
  for (std::uint32_t id = 0; id < count; ++id) {
    const std::uint64_t version = index_.entry(id).version.load_relaxed();
    const bool was_free = version == 0 || shm::state_of(version) == shm::EntryState::kFree;
    fates_[id] = judge(id);
    if (fates_[id] != Fate::kFree) {
      last_sequence_ = std::max(last_sequence_, shm::sequence_of(version));
    } else if (!was_free && shm::state_of(version) == shm::EntryState::kLive) {
      ++store_.counters_.set_aside;
    }
  }
}

Recovery::Fate Recovery::judge(std::uint32_t id) const {
  const shm::Entry& entry = index_.entry(id);
  const shm::EntryState state = shm::state_of(entry.version.load_relaxed());
  const std::uint64_t length = entry.length.load_relaxed();
  if (state != shm::EntryState::kReserved && state != shm::EntryState::kLive &&
      state != shm::EntryState::kLimbo) {
    return Fate::kFree;
  }
  const shm::KeyField field = key_field(entry);
  std::uint64_t room = 0;
  for (const shm::ExtentRecord& extent : index_.extents_of(id)) {
    if (extent.length_bytes > store_.pool_->max_bytes()) return Fate::kFree;
    room += extent.length_bytes;
  }
  if (length == 0 || length > MC_MAX_OBJECT_BYTES || length > room) return Fate::kFree;
  if (state == shm::EntryState::kReserved) {
    return field.key_bytes == 0 && session_known_(entry.hash.load_relaxed()) ? Fate::kReserved
                                                                             : Fate::kFree;
  }
  // A fetched object that was served without being published: it has no key, and lives while a
  // reader pins it.
  const bool unpublished =
      state == shm::EntryState::kLimbo && field.key_bytes == 0 && entry.hash.load_relaxed() == 0;
  if (!unpublished && !key_is_sound(id)) return Fate::kFree;
  if (state == shm::EntryState::kLimbo) return Fate::kLimbo;
  const std::uint64_t group = index_.header().committing_group.load_relaxed();
  // A reader may hold a pin on a part of the group that was visible.
  if (group != 0 && attributes(entry).group == group) return Fate::kLimbo;
  return Fate::kLive;
}

bool Recovery::key_is_sound(std::uint32_t id) const {
  const std::string_view key = index_.key_of(id);
  return !key.empty() && key.size() <= MC_MAX_KEY_BYTES &&
         index_.hash(key) == index_.entry(id).hash.load_relaxed();
}

// Claims all extents at once, in the order of their addresses. Of two that overlap the one that
// begins first stays.
void Recovery::claim_extents() {
  struct Claim {
    shm::ExtentRecord extent;
    std::uint32_t id;
    std::uint32_t part;
  };
  std::vector<Claim> claims;
  for (std::uint32_t id = 0; id < fates_.size(); ++id) {
    if (fates_[id] == Fate::kFree) continue;
    std::uint32_t part = 0;
    for (const shm::ExtentRecord& extent : index_.extents_of(id)) {
      claims.push_back({extent, id, part++});
    }
  }
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    return a.extent.offset_bytes < b.extent.offset_bytes;
  });
  std::vector<shm::ExtentRecord> sorted;
  sorted.reserve(claims.size());
  for (const Claim& claim : claims) sorted.push_back(claim.extent);
  const std::vector<BlockId> nodes = store_.pool_->claim_all(sorted);
  store_.nodes_.resize(fates_.size(), kNoBlock);
  std::vector<std::uint32_t> damaged;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const Claim& claim = claims[i];
    const std::uint32_t count = key_field(index_.entry(claim.id)).extent_count;
    if (nodes[i] == kNoBlock) damaged.push_back(claim.id);
    if (claim.part == 0) store_.nodes_[claim.id] = nodes[i];
    // What was refused may name any place.
    if (nodes[i] != kNoBlock) {
      store_.pool_->set_owner({claim.extent.offset_bytes, claim.extent.length_bytes, nodes[i]},
                              claim.id);
    }
    if (count > 1) {
      std::vector<BlockId>& many = store_.many_nodes_[claim.id];
      many.resize(count, kNoBlock);
      many[claim.part] = nodes[i];
    }
  }
  for (const std::uint32_t id : damaged) {
    if (fates_[id] == Fate::kFree) continue;
    const PoolExtents extents = store_.extents(id);
    for (std::uint32_t i = 0; i < extents.count; ++i) {
      if (extents.at[i].node != kNoBlock) store_.pool_->free(extents.at[i]);
    }
    store_.many_nodes_.erase(id);
    fates_[id] = Fate::kFree;
    ++store_.counters_.set_aside;
  }
}

// Claims key and extent records. An entry whose records cannot be claimed loses its extents again.
void Recovery::claim_records() {
  for (std::uint32_t id = 0; id < fates_.size(); ++id) {
    if (fates_[id] == Fate::kFree) continue;
    const shm::Entry& entry = index_.entry(id);
    const shm::KeyField field = key_field(entry);
    const auto extents_bytes =
        static_cast<std::uint32_t>(field.extent_count * sizeof(shm::ExtentRecord));
    const auto extents_record = static_cast<std::uint32_t>(entry.extent.load_relaxed());
    bool sound = index_.claim_key(field);
    if (sound && field.extent_count > 1 && !index_.keys().claim(extents_record, extents_bytes)) {
      index_.free_key(field);
      sound = false;
    }
    if (sound) continue;
    const PoolExtents extents = store_.extents(id);
    for (std::uint32_t i = 0; i < extents.count; ++i) store_.pool_->free(extents.at[i]);
    store_.many_nodes_.erase(id);
    fates_[id] = Fate::kFree;
    ++store_.counters_.set_aside;
  }
}

// A crash between the publication of a replacement and the end of what it replaces leaves two live
// entries: the later one counts. The other goes to limbo, where readers may still hold it.
void Recovery::choose_between_duplicates() {
  for (std::uint32_t id = 0; id < fates_.size(); ++id) {
    if (fates_[id] != Fate::kLive) continue;
    const std::uint64_t hash = index_.entry(id).hash.load_relaxed();
    const auto other = index_.find(index_.key_of(id), hash);
    if (!other) {
      if (!index_.table().prepare_insert() || !index_.table().insert(hash, id)) discard(id);
      continue;
    }
    const bool newer =
        index_.entry(id).version.load_relaxed() > index_.entry(*other).version.load_relaxed();
    if (newer) index_.table().replace(hash, *other, id);
    fates_[newer ? *other : id] = Fate::kLimbo;
  }
}

void Recovery::discard(std::uint32_t id) {
  store_.free_entry(id);
  fates_[id] = Fate::kFree;
  ++store_.counters_.set_aside;
  admitted_[id] = true;  // its entry is released already
}

// The policy hears of objects in the order of their puts, parents before children.
void Recovery::admit_all() {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  for (std::uint32_t id = 0; id < fates_.size(); ++id) {
    shm::Entry& entry = index_.entry(id);
    const std::uint64_t sequence = shm::sequence_of(entry.version.load_relaxed());
    switch (fates_[id]) {
      case Fate::kFree:
        if (admitted_[id]) break;
        entry.version.store_release(shm::make_version(sequence, shm::EntryState::kFree));
        index_.release_entry(id);
        break;
      case Fate::kReserved:
        ++store_.reserved_count_;
        break;
      case Fate::kLimbo:
        store_.live_bytes_ += entry.length.load_relaxed();
        store_.to_limbo(id);
        break;
      case Fate::kLive:
        order.emplace_back(sequence, id);
        break;
    }
  }
  std::sort(order.begin(), order.end());
  for (const auto& [sequence, id] : order) admit_family(id);
  store_.counters_.recovered = order.size();
}

void Recovery::admit_family(std::uint32_t id) {
  std::vector<std::uint32_t> chain;
  for (OptionalId at = id; at && !admitted_[*at];) {
    admitted_[*at] = true;  // also ends a circle of parents
    chain.push_back(*at);
    at = index_.find_by_hash(index_.entry(*at).parent_hash.load_relaxed());
  }
  for (; !chain.empty(); chain.pop_back()) admit_one(chain.back());
}

void Recovery::admit_one(std::uint32_t id) {
  const shm::Entry& entry = index_.entry(id);
  const shm::KeyField field = key_field(entry);
  PutOrder order;
  order.entry = id;
  order.length = entry.length.load_relaxed();
  order.parent_hash = entry.parent_hash.load_relaxed();
  order.pin = field.pin <= MC_PIN_HARD ? static_cast<mc_pin>(field.pin) : MC_PIN_NONE;
  order.group = attributes(entry).group;
  store_.admit(id, entry.hash.load_relaxed(), order);
  --store_.counters_.puts;
  store_.counters_.put_bytes -= order.length;
}

}  // namespace mc::agent
