// SPDX-License-Identifier: Apache-2.0
#include "agent/tiering/tier_reads.h"

#include <algorithm>
#include <utility>

#include "libmc/base/failpoint.h"
#include "shm/pins.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kLookNs = 2'000'000'000;
constexpr std::uint64_t kLookAgainNs = 2'000'000;
constexpr std::uint64_t kRoomAgainNs = 1'000'000;
constexpr std::uint64_t kEvictsAfterNs = 2'000'000'000;
// Steps of one advance().
constexpr std::size_t kLooksAtOnce = 256;
constexpr std::size_t kReadsAtOnce = 64;
constexpr std::uint64_t kShareOfReads = 16;
constexpr std::uint64_t kMostReadBytes = 256ull << 20;

}  // namespace

void TierReads::begin(TieredPool& pool, const std::shared_ptr<RemoteRequest>& request,
                      std::size_t item, std::uint64_t now_ns) {
  set_now(now_ns);
  look_for({.pool = &pool, .request = request, .item = item, .since_ns = now_ns});
  begin_some();
}

tier::ObjectName TierReads::Reader::object() const {
  if (request->kind != RemoteRequest::Kind::kBring) return pool->object(its_item().key);
  return {.key = {}, .namespace_id = pool->id, .given = tier_key_of(its_item().name)};
}

// The disks are read from the first step on.
void TierReads::set_now(std::uint64_t now_ns) {
  if (now_ns_ == 0) look_until_ns_ = now_ns + kLookNs;
  now_ns_ = now_ns;
}

void TierReads::look_for(const Reader& reader) {
  if (!look(reader)) looking_.push_back(reader);
}

// Returns false if nobody can say yet where the object is.
bool TierReads::look(const Reader& reader) {
  TieredPool& pool = *reader.pool;
  RemoteRequest::Item& item = reader.its_item();
  const tier::ObjectName object = reader.object();
  const std::uint64_t hash = pool.hash(object);
  if (const std::uint32_t here = pool.find(object); here != kNoEntry) {
    serve_entry(reader, here);
    return true;
  }
  if (const std::uint32_t entry = demoter_.find(pool, hash, object); entry != kNoEntry) {
    // Other hosts read, and pins hold, only objects of the pool: they wait until the disk has the object.
    if (reader.brings()) return false;
    ++counters_.on_the_way;
    serve_entry(reader, entry);
    return true;
  }
  const tier::TierEntry* const found = log_.find(object);
  if (found == nullptr) {
    if (log_.recovering() && now_ns_ < look_until_ns_) return false;
    ++(log_.recovering() ? counters_.not_ready : counters_.misses);
    settle(reader, log_.recovering() ? MC_DISK_AWAY : MC_NOT_FOUND);
    return true;
  }
  if (reader.request->kind == RemoteRequest::Kind::kExists) {
    item.length = found->length;
    settle(reader, MC_OK);
    return true;
  }
  if (reader.pins() && item.level == MC_PIN_NONE) {
    settle(reader, MC_OK);  // objects of the disks have no pin
    return true;
  }
  if (const auto same = joinable_.find(pool.name(hash));
      same != joinable_.end() && same->second->pool == &pool &&
      same->second->given == object.given && (object.given || same->second->key == object.key) &&
      same->second->version == found->version) {
    same->second->readers.push_back(reader);
    return true;
  }
  Lane& lane = lanes_[{&pool, tier::disk_of(found->place.segment)}];
  reads_.push_back({.pool = &pool,
                    .lane = &lane,
                    .key = item.key,
                    .given = object.given,
                    .name = pool.name(hash),
                    .version = found->version,
                    .readers = {reader}});
  const auto read = std::prev(reads_.end());
  joinable_[read->name] = read;
  lane.want_room.push_back(read);
  return true;
}

void TierReads::settle(const Reader& reader, mc_status status) {
  settled_ = true;
  SharedObjects* const shared = reader.pool->shared;
  if (status == MC_OK || shared == nullptr || reader.brings()) {
    return reader.request->settle(reader.its_item(), status);
  }
  if (!reader.waits()) return;
  reader.its_item().otherwise = status;
  shared->look_elsewhere(reader.request, reader.item);
}

// Serves an entry of the pool, live or held by the demoter. REQUIRES: the reader waits.
void TierReads::serve_entry(const Reader& reader, std::uint32_t entry_id) {
  const shm::Entry& entry = reader.pool->store().index().entry(entry_id);
  RemoteRequest::Item& item = reader.its_item();
  if (reader.pins()) {
    const bool done = reader.pool->store().set_pin(item.key, item.level, item.pin_ttl_s);
    return settle(reader, done ? MC_OK : MC_NOT_FOUND);
  }
  if (item.pin != nullptr) {
    item.pin->store_release(shm::pin_value(entry_id, entry.version.load_relaxed()));
  }
  item.entry = entry_id;
  item.length = entry.length.load_relaxed();
  settle(reader, MC_OK);
}

void TierReads::settle_all(Read& read, mc_status status) {
  for (const Reader& reader : std::exchange(read.readers, {})) settle(reader, status);
}

// ---- Reading ------------------------------------------------------------------------------------

void TierReads::begin_some() {
  room_is_short_ = true;
  for (auto& [of, lane] : lanes_) room_is_short_ = begin_some(lane) && room_is_short_;
}

// Returns false if more of these reads can begin at once.
bool TierReads::begin_some(Lane& lane) {
  for (std::size_t i = 0; i < kReadsAtOnce && !lane.want_room.empty(); ++i) {
    const auto read = lane.want_room.front();
    std::erase_if(read->readers, [](const Reader& reader) { return !reader.waits(); });
    if (!read->readers.empty() && !begin_read(*read)) return true;
    lane.want_room.pop_front();
    if (read->ticket == 0) {
      look_again(*read);
      forget(read);
    } else {
      by_ticket_[read->ticket] = read;
    }
  }
  return lane.want_room.empty();
}

// Returns false if the read must wait. A read without a ticket has not begun: its readers look again.
bool TierReads::begin_read(Read& read) {
  TieredPool& pool = *read.pool;
  ObjectStore& store = pool.store();
  const tier::TierEntry* const known = record_of(read);
  if (known == nullptr) return true;
  read.length = known->length;
  const std::uint64_t most =
      std::min(store.pool().reserved_bytes() / kShareOfReads, kMostReadBytes) / log_.disk_count();
  std::uint64_t& reading_bytes = read.lane->reading_bytes;
  if (reading_bytes > 0 && reading_bytes + read.length > most) return false;
  ObjectStore::Reserve reserved = store.reserve(kTierSession, read.length, false, read.entry);
  if (reserved == ObjectStore::Reserve::kWait && (may_evict(read) || !store.evict_held())) {
    reserved = store.reserve(kTierSession, read.length, true, read.entry);
  }
  switch (reserved) {
    case ObjectStore::Reserve::kOk:
      break;
    case ObjectStore::Reserve::kWait:
    case ObjectStore::Reserve::kAgain:
      return false;
    case ObjectStore::Reserve::kTooLarge:
    case ObjectStore::Reserve::kNoMemory:
      ++counters_.no_room;
      settle_all(read, reserved == ObjectStore::Reserve::kTooLarge ? MC_TOO_LARGE : MC_NO_MEMORY);
      return true;
  }
  // The reservation has evicted objects, and a put of these may have taken the record.
  const tier::TierEntry* const still = record_of(read);
  const bool promotes = still != nullptr && (still->uses > 0 || brings(read));
  const auto ticket = still == nullptr
                          ? std::nullopt
                          : log_.read(read.object(), pool.pieces(read.entry, read.length),
                                      tier::Urgency::kGet, pool.hash(read.object()));
  if (!ticket) {
    store.abandon(kTierSession, std::exchange(read.entry, kNoEntry));
    return true;
  }
  read.promotes = promotes;
  read.ticket = *ticket;
  reading_bytes += read.length;
  return true;
}

// Eviction on demand may lose objects. Readers on this host do not wait for the disks that would take these.
bool TierReads::may_evict(const Read& read) const {
  const auto waits_here = [](const Reader& reader) { return !reader.brings(); };
  const auto is_late = [this](const Reader& reader) {
    return now_ns_ >= reader.since_ns + kEvictsAfterNs;
  };
  if (2 * read.length > read.pool->store().headroom_bytes()) return true;
  if (std::ranges::any_of(read.readers, is_late)) return true;
  return std::ranges::any_of(read.lane->want_room, [&](const auto& waiting) {
    return std::ranges::any_of(waiting->readers, waits_here);
  });
}

// The record that the read was begun for, or null: it was removed, replaced or dropped.
const tier::TierEntry* TierReads::record_of(const Read& read) const {
  const tier::TierEntry* const entry = log_.find(read.object());
  return entry != nullptr && entry->version == read.version ? entry : nullptr;
}

// The record left before the read began.
void TierReads::look_again(Read& read) {
  end_joining(read);
  for (const Reader& reader : std::exchange(read.readers, {})) look_for(reader);
}

bool TierReads::end(const tier::LogEnd& end, std::uint64_t now_ns) {
  const auto found = by_ticket_.find(end.ticket);
  if (found == by_ticket_.end()) return false;
  set_now(now_ns);
  const auto read = found->second;
  by_ticket_.erase(found);
  read->lane->reading_bytes -= read->length;
  std::erase_if(read->readers, [](const Reader& reader) { return !reader.waits(); });
  if (end.outcome == tier::LogEnd::Outcome::kDone) deliver(*read, end);
  if (read->entry != kNoEntry) read->pool->store().abandon(kTierSession, read->entry);
  switch (end.outcome) {
    case tier::LogEnd::Outcome::kDone:
      counters_.no_room += read->readers.size();
      settle_all(*read, MC_NO_MEMORY);
      break;
    case tier::LogEnd::Outcome::kDamaged:
      ++counters_.damaged;
      if (SharedObjects* const shared = read->pool->shared) {
        shared->left_disks(shared_name_of(*read->given), read->version);
      }
      settle_all(*read, MC_CORRUPT);
      break;
    case tier::LogEnd::Outcome::kFailed:
      ++counters_.failed;
      settle_all(*read, MC_DISK_AWAY);
      break;
    case tier::LogEnd::Outcome::kGone:  // another key with the same hash
      settle_all(*read, MC_NOT_FOUND);
      break;
  }
  forget(read);
  return true;
}

ObjectStore::Put TierReads::publish(const TieredPool& pool, const PutOrder& order,
                                    const tier::TierEntry& record) {
  if (pool.shared == nullptr) return pool.store().publish(kTierSession, order);
  SharedObject object = shared_object(record.key(), record.version, record.length, record.marks);
  pool.shared->expect_from_disk(&object);
  const ObjectStore::Put put = pool.store().publish(kTierSession, order);
  pool.shared->expect_from_disk(nullptr);
  return put;
}

bool TierReads::brings(const Read& read) {
  return std::ranges::any_of(read.readers, [](const Reader& reader) { return reader.brings(); });
}

// Serves the readers. Leaves the entry and the readers in the read if neither was possible.
void TierReads::deliver(Read& read, const tier::LogEnd& end) {
  TieredPool& pool = *read.pool;
  ObjectStore& store = pool.store();
  const std::uint64_t hash = pool.hash(read.object());
  ++counters_.objects;
  counters_.bytes += read.length;
  for (const Reader& reader : read.readers) counters_.durations.add(now_ns_ - reader.since_ns);
  const bool fits = read.length <= store.capacity_bytes();
  const tier::TierEntry* const record = record_of(read);
  const bool gone = record == nullptr;
  // A reader that needs the object in the pool may have joined since.
  if ((read.promotes || brings(read)) && fits && !gone) {
    MC_FAILPOINT("promote.before_publish");
    PutOrder order;
    order.key = end.key;
    order.entry = read.entry;
    order.length = read.length;
    order.checksum = end.checksum;
    // A pool with another seed of hashes has other hashes of parents.
    if (end.header.sum_seed == hash) order.parent_hash = end.header.pool_parent;
    switch (publish(pool, order, *record)) {
      case ObjectStore::Put::kStored:
        ++counters_.promoted;
        read.entry = kNoEntry;
        break;
      case ObjectStore::Put::kExisted:
      case ObjectStore::Put::kNoSpace:
        break;  // the reservation is still ours
      case ObjectStore::Put::kBadReservation:
      case ObjectStore::Put::kTooLarge:
      case ObjectStore::Put::kNoMemory:
        read.entry = kNoEntry;
        return;
    }
    if (const std::uint32_t here = pool.find(read.object()); here != kNoEntry) {
      for (const Reader& reader : std::exchange(read.readers, {})) serve_entry(reader, here);
      return;
    }
  }
  const auto bringing =
      std::stable_partition(read.readers.begin(), read.readers.end(),
                            [](const Reader& reader) { return !reader.brings(); });
  for (auto reader = bringing; reader != read.readers.end(); ++reader) {
    settle(*reader, gone ? MC_NOT_FOUND : MC_NO_SPACE);
  }
  read.readers.erase(bringing, read.readers.end());
  std::vector<shm::Word64*> pins;
  for (const Reader& reader : read.readers) pins.push_back(reader.its_item().pin);
  if (pins.empty() ||
      !store.serve_unpublished(kTierSession, read.entry, read.length, end.checksum, pins)) {
    return;
  }
  const std::uint32_t entry = std::exchange(read.entry, kNoEntry);
  for (const Reader& reader : std::exchange(read.readers, {})) {
    reader.its_item().entry = entry;
    settle(reader, MC_OK);
  }
}

void TierReads::end_joining(const Read& read) {
  const auto found = joinable_.find(read.name);
  if (found != joinable_.end() && &*found->second == &read) joinable_.erase(found);
}

void TierReads::forget(Reads::iterator read) {
  end_joining(*read);
  reads_.erase(read);
}

void TierReads::advance(std::uint64_t now_ns) {
  set_now(now_ns);
  for (std::size_t i = std::min(looking_.size(), kLooksAtOnce); i > 0; --i) {
    const Reader reader = std::move(looking_.front());
    looking_.pop_front();
    if (reader.waits()) look_for(reader);
  }
  for (auto& [of, lane] : lanes_) {
    // The store may clear a place a step further.
    if (!lane.want_room.empty()) of.first->store().begin_turn(now_ns);
  }
  begin_some();
}

std::uint64_t TierReads::next_ns() const {
  const bool any =
      std::ranges::any_of(lanes_, [](const auto& at) { return !at.second.want_room.empty(); });
  if (any) return room_is_short_ ? now_ns_ + kRoomAgainNs : 0;
  return looking_.empty() ? UINT64_MAX : now_ns_ + kLookAgainNs;
}

}  // namespace mc::agent
