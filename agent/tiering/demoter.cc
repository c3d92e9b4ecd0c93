// SPDX-License-Identifier: Apache-2.0
#include "agent/tiering/demoter.h"

#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kLargestShare = 4;
// Removals that nobody waits for leave half of the places to the removals of clients.
constexpr std::size_t kPlacesOfClients = tier::Log::kMostRemovals / 2;

}  // namespace

void remove_unheard(tier::Log& log, const tier::ObjectName& name) {
  if (log.may_remove(kPlacesOfClients)) static_cast<void>(log.remove(name));
}

bool Demoter::begin(TieredPool& pool, const Demotion::Leaving& object, std::uint64_t now_ns) {
  ObjectIndex& index = pool.store().index();
  const shm::Entry& entry = index.entry(object.entry);
  const tier::ObjectName name = pool.object(index.key_of(object.entry));
  const std::uint64_t length = entry.length.load_relaxed();
  const std::uint64_t checksum = entry.checksum.load_relaxed();
  // Without a cluster, the checksum tells objects of a key apart: the number of an entry changes with each
  // promotion.
  SharedObject shared;
  shared.version = checksum;
  if (pool.shared != nullptr) shared = pool.shared->describe(object.entry);
  if (shared.version == 0 && pool.shared != nullptr) return lose(name, counters_.stripes);
  if (log_.has_version(name, shared.version)) {
    ++counters_.same;
    if (pool.shared != nullptr) log_.set_marks(name, marks_of(shared));
    return false;
  }
  const std::uint64_t room = pool.store().headroom_bytes();
  const std::uint64_t on_the_way = pool.on_the_way_bytes + length;
  if (length > pool.store().pool().reserved_bytes() / kLargestShare) {
    return lose(name, counters_.too_large);
  }
  // The last object may be beyond the room: the pool evicts ahead of demand until that many bytes leave.
  const bool full = pool.on_the_way_bytes >= room;
  const bool alone = pool.on_the_way_bytes == 0 || length <= room;
  const bool too_much = !object.paced && (full || !alone);
  if (!object.may_stay || too_much) return lose(name, counters_.busy);
  if (!admission_.admits(object.used, log_.written_bytes(), now_ns)) {
    return lose(name, counters_.saving);
  }
  const std::uint64_t parent_hash = entry.parent_hash.load_relaxed();
  const auto parent = index.find_by_hash(parent_hash);
  const std::uint64_t hash = entry.hash.load_relaxed();
  const auto ticket =
      log_.put({.name = name,
                .version = shared.version,
                .marks = marks_of(shared),
                .length = length,
                .sum_seed = hash,
                .checksum = checksum,
                .parent_hash = parent ? log_.hash_of(pool.object(index.key_of(*parent))) : 0,
                .pool_parent = parent_hash,
                .group = attribute_field(entry).group,
                .soon = on_the_way > room / 2,
                .paced = object.paced},
               pool.pieces(object.entry, length));
  if (!ticket) return lose(name, lost_by(ticket.error()));
  MC_FAILPOINT("demote.after_put");
  admission_.charge(length);
  shared.length = length;
  by_ticket_[*ticket] = {&pool, object.entry, shared};
  tickets_[pool.name(hash)] = *ticket;
  pool.on_the_way_bytes += length;
  counters_.on_the_way_bytes += length;
  return true;
}

// No disk gets the object. An earlier object of the key must not take its place.
bool Demoter::lose(const tier::ObjectName& name, std::uint64_t& reason) {
  ++reason;
  if (log_.recovering() || log_.may_bring_back(name)) remove_unheard(log_, name);
  return false;
}

std::uint64_t& Demoter::lost_by(tier::Log::Refusal refusal) {
  switch (refusal) {
    case tier::Log::Refusal::kExists:
      return counters_.same;
    case tier::Log::Refusal::kBusy:
      return counters_.busy;
    case tier::Log::Refusal::kTooLarge:
      return counters_.too_large;
    case tier::Log::Refusal::kUnavailable:
      break;
  }
  return counters_.no_disk;
}

bool Demoter::end(const tier::LogEnd& end) {
  const auto found = by_ticket_.find(end.ticket);
  if (found == by_ticket_.end()) return false;
  const OnTheWay object = found->second;
  by_ticket_.erase(found);
  const std::uint64_t hash = object.pool->store().index().entry(object.entry).hash.load_relaxed();
  const auto ticket = tickets_.find(object.pool->name(hash));
  if (ticket != tickets_.end() && ticket->second == end.ticket) tickets_.erase(ticket);
  object.pool->on_the_way_bytes -= object.object.length;
  counters_.on_the_way_bytes -= object.object.length;
  if (end.outcome == tier::LogEnd::Outcome::kDone) {
    ++counters_.objects;
    counters_.bytes += object.object.length;
    if (object.pool->shared != nullptr) {
      log_.set_marks({.given = tier_key_of(object.object.name)}, marks_of(object.object));
    }
  } else if (end.outcome == tier::LogEnd::Outcome::kFailed) {
    ++counters_.failed;
    // The cluster believes that a disk has the object.
    if (SharedObjects* const shared = object.pool->shared) {
      shared->left_disks(object.object.name, object.object.version);
    }
  }
  MC_FAILPOINT("demote.durable");
  object.pool->store().end_demotion(object.entry);
  return true;
}

std::uint32_t Demoter::find(const TieredPool& pool, std::uint64_t hash,
                            const tier::ObjectName& name) const {
  const auto ticket = tickets_.find(pool.name(hash));
  if (ticket == tickets_.end()) return kNoEntry;
  const OnTheWay& object = by_ticket_.at(ticket->second);
  if (object.pool != &pool) return kNoEntry;
  const std::string_view key = pool.store().index().key_of(object.entry);
  const bool same = name.given ? pool.object(key).given == name.given : key == name.key;
  return same ? object.entry : kNoEntry;
}

std::optional<std::uint64_t> Demoter::put_of(const TieredPool& pool,
                                             const tier::ObjectName& name) const {
  const std::uint64_t hash = pool.hash(name);
  if (find(pool, hash, name) == kNoEntry) return std::nullopt;
  return tickets_.at(pool.name(hash));
}

void Demoter::announced(const TieredPool& pool, const tier::ObjectName& name,
                        std::uint64_t version) {
  if (find(pool, name.given->hash, name) == kNoEntry) return;
  SharedObject& object = by_ticket_.at(tickets_.at(pool.name(name.given->hash))).object;
  if (object.version == version) object.unannounced = VersionBook::Unannounced::kNo;
}

std::optional<std::uint64_t> Demoter::walk(const TieredPool& pool, std::uint64_t from,
                                           std::size_t most,
                                           const LocalDisks::Keys::Visit& visit) const {
  auto at = by_ticket_.lower_bound(from);
  for (; at != by_ticket_.end() && most > 0; ++at, --most) {
    const OnTheWay& object = at->second;
    if (object.pool != &pool) continue;
    ObjectIndex& index = pool.store().index();
    const auto latest = tickets_.find(pool.name(index.entry(object.entry).hash.load_relaxed()));
    if (latest == tickets_.end() || latest->second != at->first) continue;
    visit(object.object, index.key_of(object.entry));
  }
  return at == by_ticket_.end() ? std::nullopt : std::optional(at->first);
}

void Demoter::forget(const TieredPool& pool, std::uint64_t hash, const tier::ObjectName& name) {
  if (find(pool, hash, name) != kNoEntry) tickets_.erase(pool.name(hash));
}

}  // namespace mc::agent
