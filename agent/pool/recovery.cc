// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/recovery.h"

#include <algorithm>
#include <bit>

#include "libmc/base/failpoint.h"

namespace mc::agent {

Result<std::unique_ptr<ObjectStore>> ObjectStore::recover(const Config& config,
                                                          CollectPins collect_pins,
                                                          MemoryFile index_file,
                                                          MemoryFile pool_file,
                                                          const SessionKnown& session_known) {
  auto policy = make_policy(config);
  if (!policy) return fail(policy.error());
  auto index = ObjectIndex::adopt(std::move(index_file));
  if (!index) return fail(index.error());
  auto pool = ExtentPool::adopt(&(*index)->header(), std::move(pool_file), config.pool_bytes,
                                config.huge_pages);
  if (!pool) return fail(pool.error());
  auto store = std::unique_ptr<ObjectStore>(new ObjectStore(
      config, std::move(*index), std::move(*pool), std::move(*policy), std::move(collect_pins)));
  MC_FAILPOINT("recover.adopted");
  Recovery recovery({*store->index_, *store->pool_, store->extents_, store->live_, store->limbo_,
                     store->counters_},
                    session_known);
  if (Status status = recovery.run(); !status.ok()) return fail(status);
  store->reserved_count_ = recovery.reserved_count();
  MC_FAILPOINT("recover.done");
  // The configured size may differ from the previous size.
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

// A put was under way: the entry becomes a reservation again, and its owner repeats the put.
void Recovery::undo_unfinished_publication() {
  const std::uint64_t number = index_.header().publishing_entry.load_relaxed();
  if (number == 0 || number > index_.entry_count()) return;
  shm::Entry& entry = index_.entry(static_cast<std::uint32_t>(number - 1));
  if (state_of(entry) != shm::EntryState::kReserved) return;
  shm::KeyField field{};
  field.extent_count = key_field(entry).extent_count;
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  entry.hash.store_relaxed(index_.header().publishing_session.load_relaxed());
}

void Recovery::judge_entries() {
  const std::uint64_t count = index_.entry_count();
  fates_.resize(count, Fate::kFree);
  settled_.resize(count, false);
  last_sequence_ = index_.header().next_sequence.load_relaxed() & 0xffffffffffffffull;
  for (std::uint32_t id = 0; id < count; ++id) {
    const std::uint64_t version = index_.entry(id).version.load_relaxed();
    const bool was_free = version == 0 || shm::state_of(version) == shm::EntryState::kFree;
    fates_[id] = judge(id);
    if (fates_[id] != Fate::kFree) {
      last_sequence_ = std::max(last_sequence_, shm::sequence_of(version));
    } else if (!was_free && shm::state_of(version) == shm::EntryState::kLive) {
      ++parts_.counters.set_aside;
    }
  }
}

Recovery::Fate Recovery::judge(std::uint32_t id) const {
  const shm::Entry& entry = index_.entry(id);
  const shm::EntryState state = state_of(entry);
  const std::uint64_t length = entry.length.load_relaxed();
  if (state != shm::EntryState::kReserved && state != shm::EntryState::kLive &&
      state != shm::EntryState::kLimbo) {
    return Fate::kFree;
  }
  const shm::KeyField field = key_field(entry);
  std::uint64_t room = 0;
  for (const shm::ExtentRecord& extent : index_.extents_of(id)) {
    if (extent.length_bytes > parts_.pool.max_bytes()) return Fate::kFree;
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
  // Members of an unfinished group were visible, so a reader may hold a pin.
  if (group != 0 && attribute_field(entry).group == group) return Fate::kLimbo;
  return Fate::kLive;
}

bool Recovery::key_is_sound(std::uint32_t id) const {
  const std::string_view key = index_.key_of(id);
  return !key.empty() && key.size() <= MC_MAX_KEY_BYTES &&
         index_.hash(key) == index_.entry(id).hash.load_relaxed();
}

// Claims all extents at once, in the order of their addresses. If two extents overlap, the extent
// that begins first stays.
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
  const std::vector<BlockId> nodes = parts_.pool.claim_all(sorted);
  parts_.extents.expect(fates_.size());
  std::vector<std::uint32_t> damaged;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const Claim& claim = claims[i];
    const std::uint32_t count = key_field(index_.entry(claim.id)).extent_count;
    if (nodes[i] == kNoBlock) damaged.push_back(claim.id);
    parts_.extents.claimed(claim.id, claim.part, count, claim.extent, nodes[i]);
  }
  for (const std::uint32_t id : damaged) {
    if (fates_[id] != Fate::kFree) set_aside(id);
  }
}

void Recovery::set_aside(std::uint32_t id) {
  parts_.extents.unclaim(id);
  fates_[id] = Fate::kFree;
  ++parts_.counters.set_aside;
}

// Claims key and extent records. If the records of an entry cannot be claimed, the entry loses its
// extents again.
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
    if (!sound) set_aside(id);
  }
}

// A crash between the publication of a replacement and the end of the old object leaves two live
// entries. The later entry counts; the other goes to limbo, where readers may still hold it.
void Recovery::choose_between_duplicates() {
  for (std::uint32_t id = 0; id < fates_.size(); ++id) {
    if (fates_[id] != Fate::kLive) continue;
    const std::uint64_t hash = index_.entry(id).hash.load_relaxed();
    const auto other = index_.find(index_.key_of(id), hash);
    if (!other) {
      if (index_.table().prepare_insert() && index_.table().insert(hash, id)) continue;
      parts_.extents.free(id);
      fates_[id] = Fate::kFree;
      ++parts_.counters.set_aside;
      settled_[id] = true;
      continue;
    }
    const bool newer =
        index_.entry(id).version.load_relaxed() > index_.entry(*other).version.load_relaxed();
    if (newer) index_.table().replace(hash, *other, id);
    fates_[newer ? *other : id] = Fate::kLimbo;
  }
}

// The policy learns of objects in the order of their puts, parents before children.
void Recovery::admit_all() {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  for (std::uint32_t id = 0; id < fates_.size(); ++id) {
    const std::uint64_t sequence = shm::sequence_of(index_.entry(id).version.load_relaxed());
    switch (fates_[id]) {
      case Fate::kFree:
        if (settled_[id]) break;
        index_.set_state(id, shm::EntryState::kFree);
        index_.release_entry(id);
        break;
      case Fate::kReserved:
        ++reserved_count_;
        break;
      case Fate::kLimbo:
        index_.set_state(id, shm::EntryState::kLimbo);
        parts_.limbo.add(id);
        break;
      case Fate::kLive:
        order.emplace_back(sequence, id);
        break;
    }
  }
  std::sort(order.begin(), order.end());
  for (const auto& [sequence, id] : order) admit_family(id);
  parts_.counters.recovered = order.size();
}

void Recovery::admit_family(std::uint32_t id) {
  std::vector<std::uint32_t> chain;
  for (OptionalId at = id; at && !settled_[*at];) {
    settled_[*at] = true;  // also ends a circle of parents
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
  order.group = attribute_field(entry).group;
  parts_.live.admit(id, entry.hash.load_relaxed(), order);
  // The put of an earlier agent.
  --parts_.counters.puts;
  parts_.counters.put_bytes -= order.length;
}

}  // namespace mc::agent
