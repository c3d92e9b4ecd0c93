// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/recovery.h"

#include <algorithm>
#include <bit>
#include <boost/sort/spreadsort/integer_sort.hpp>

#include "libmc/base/failpoint.h"

namespace mc::agent {

Result<std::unique_ptr<ObjectStore>> ObjectStore::recover(
    const Config& config, CollectPins collect_pins, MemoryFile index_file, MemoryFile pool_file,
    const SessionKnown& session_known, const std::function<void()>& on_progress) {
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
                    session_known, on_progress);
  if (Status status = recovery.run(); !status.ok()) return fail(status);
  store->recovered_reservations_ = recovery.take_reservations();
  store->reserved_count_ = store->recovered_reservations_.size();
  MC_FAILPOINT("recover.done");
  // The pool may have to grow or to shrink, because the earlier agent was not done or because another
  // size was configured.
  store->resize(store->pool_->target_bytes());
  return store;
}

template <typename Use>
void Recovery::for_each_entry(Use use) const {
  constexpr std::uint32_t kStep = 4096;
  const auto count = static_cast<std::uint32_t>(index_.entry_count());
  for (std::uint32_t id = 0; id < count; ++id) {
    if (id % kStep == 0) on_progress_();
    use(id);
  }
}

// Readers use the old table until the new table is complete, and no entry that the old table names
// changes before.
Status Recovery::run() {
  undo_unfinished_publication();
  judge_entries();
  claim_extents();
  claim_records();
  if (Status status = index_.table().reset(index_.entry_count()); !status.ok()) return status;
  fill_table();
  MC_FAILPOINT("recover.table_filled");
  index_.table().publish_reset();
  insert_rest();
  settle_entries();
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
  claims_.reserve(count);
  last_sequence_ = index_.header().next_sequence.load_relaxed() & 0xffffffffffffffull;
  for_each_entry([&](std::uint32_t id) {
    const std::uint64_t version = index_.entry(id).version.load_relaxed();
    const ObjectIndex::Extents extents = index_.extents_of(id);
    fates_[id] = judge(id, extents);
    if (fates_[id] == Fate::kFree) {
      if (shm::state_of(version) == shm::EntryState::kLive) ++parts_.counters.set_aside;
      return;
    }
    last_sequence_ = std::max(last_sequence_, shm::sequence_of(version));
    std::uint32_t part = 0;
    for (const shm::ExtentRecord& extent : extents) claims_.push_back({extent, id, part++});
    if (part > 1 || key_field(index_.entry(id)).key_bytes > shm::kShortKeyBytes) {
      with_records_.push_back(id);
    }
  });
}

Recovery::Fate Recovery::judge(std::uint32_t id, const ObjectIndex::Extents& extents) const {
  const shm::Entry& entry = index_.entry(id);
  const shm::EntryState state = state_of(entry);
  const std::uint64_t length = entry.length.load_relaxed();
  if (state != shm::EntryState::kReserved && state != shm::EntryState::kLive &&
      state != shm::EntryState::kLimbo) {
    return Fate::kFree;
  }
  const shm::KeyField field = key_field(entry);
  std::uint64_t room = 0;
  for (const shm::ExtentRecord& extent : extents) {
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
  boost::sort::spreadsort::integer_sort(
      claims_.begin(), claims_.end(),
      [](const ExtentPool::Claim& claim, unsigned bits) {
        return claim.extent.offset_bytes >> bits;
      },
      [](const ExtentPool::Claim& a, const ExtentPool::Claim& b) {
        return a.extent.offset_bytes < b.extent.offset_bytes;
      });
  parts_.pool.claim_all(claims_);
  parts_.extents.expect(fates_.size());
  std::vector<std::uint32_t> damaged;
  for (const ExtentPool::Claim& claim : claims_) {
    const std::uint32_t count = key_field(index_.entry(claim.owner)).extent_count;
    if (claim.block == kNoBlock) damaged.push_back(claim.owner);
    parts_.extents.claimed(claim.owner, claim.part, count, claim.block);
  }
  claims_ = {};
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
  for (const std::uint32_t id : with_records_) {
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

void Recovery::fill_table() {
  constexpr std::uint32_t kAhead = 16;
  for_each_entry([&](std::uint32_t id) {
    if (id + kAhead < fates_.size()) {
      index_.table().prefetch(index_.entry(id + kAhead).hash.load_relaxed());
    }
    if (fates_[id] == Fate::kLive && !insert(id)) rest_.push_back(id);
  });
}

// These entries found no room in the table: only a larger table helps.
void Recovery::insert_rest() {
  for (const std::uint32_t id : rest_) {
    if (index_.table().prepare_insert() && insert(id)) continue;
    fates_[id] = Fate::kLimbo;
    ++parts_.counters.set_aside;
  }
}

// A crash between the publication of a replacement and the end of the old object leaves two live
// entries. The later entry counts; the other goes to limbo, where readers may still hold it. Returns
// false if the table has no room.
bool Recovery::insert(std::uint32_t id) {
  const std::uint64_t hash = index_.entry(id).hash.load_relaxed();
  const auto other = index_.find(index_.key_of(id), hash);
  if (!other) return index_.table().insert(hash, id);
  const bool newer =
      index_.entry(id).version.load_relaxed() > index_.entry(*other).version.load_relaxed();
  if (newer) index_.table().replace(hash, *other, id);
  fates_[newer ? *other : id] = Fate::kLimbo;
  return true;
}

void Recovery::settle_entries() {
  for_each_entry([&](std::uint32_t id) {
    switch (fates_[id]) {
      case Fate::kFree:
        index_.set_state(id, shm::EntryState::kFree);
        index_.release_entry(id);
        break;
      case Fate::kReserved:
        reservations_.push_back({index_.entry(id).hash.load_relaxed(), id});
        break;
      case Fate::kLimbo:
        index_.set_state(id, shm::EntryState::kLimbo);
        parts_.limbo.add(id);
        break;
      case Fate::kLive:
        parts_.live.adopt(id);
        ++parts_.counters.recovered;
        break;
    }
  });
  parts_.live.adopted_all();
}

}  // namespace mc::agent
