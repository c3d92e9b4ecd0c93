// SPDX-License-Identifier: Apache-2.0
#include "agent/tiering/demoter.h"

#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kLargestShare = 4;
// Removals that nobody waits for leave half of the places to the removals of clients.
constexpr std::size_t kPlacesOfClients = tier::Log::kMostRemovals / 2;

}  // namespace

void remove_unheard(tier::Log& log, std::string_view key, std::uint64_t namespace_id) {
  if (log.may_remove(kPlacesOfClients)) static_cast<void>(log.remove(key, namespace_id));
}

bool Demoter::begin(TieredPool& pool, const Demotion::Leaving& object, std::uint64_t now_ns) {
  ObjectIndex& index = pool.store().index();
  const shm::Entry& entry = index.entry(object.entry);
  const std::string_view key = index.key_of(object.entry);
  const std::uint64_t length = entry.length.load_relaxed();
  // The checksum tells objects of a key apart: the number of an entry changes with each promotion.
  const std::uint64_t checksum = entry.checksum.load_relaxed();
  if (log_.has_version(key, pool.id, checksum)) {
    ++counters_.same;
    return false;
  }
  const std::uint64_t room = pool.store().headroom_bytes();
  const std::uint64_t on_the_way = pool.on_the_way_bytes + length;
  if (length > pool.store().pool().reserved_bytes() / kLargestShare) {
    return lose(pool, key, counters_.too_large);
  }
  if (!object.may_stay || (pool.on_the_way_bytes > 0 && on_the_way > room)) {
    return lose(pool, key, counters_.busy);
  }
  if (!admission_.admits(object.used, log_.written_bytes(), now_ns)) {
    return lose(pool, key, counters_.saving);
  }
  const std::uint64_t parent_hash = entry.parent_hash.load_relaxed();
  const auto parent = index.find_by_hash(parent_hash);
  const std::uint64_t hash = entry.hash.load_relaxed();
  const auto ticket =
      log_.put({.key = key,
                .namespace_id = pool.id,
                .version = checksum,
                .length = length,
                .sum_seed = hash,
                .checksum = checksum,
                .parent_hash = parent ? log_.hash_of(index.key_of(*parent), pool.id) : 0,
                .pool_parent = parent_hash,
                .group = attribute_field(entry).group,
                .soon = on_the_way > room / 2},
               pool.pieces(object.entry, length));
  if (!ticket) return lose(pool, key, lost_by(ticket.error()));
  MC_FAILPOINT("demote.after_put");
  admission_.charge(length);
  by_ticket_[*ticket] = {&pool, object.entry, length};
  tickets_[pool.name(hash)] = *ticket;
  pool.on_the_way_bytes += length;
  return true;
}

// No disk gets the object. An earlier object of the key must not take its place.
bool Demoter::lose(const TieredPool& pool, std::string_view key, std::uint64_t& reason) {
  ++reason;
  if (log_.recovering() || log_.may_bring_back(key, pool.id)) remove_unheard(log_, key, pool.id);
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
  object.pool->on_the_way_bytes -= object.bytes;
  if (end.outcome == tier::LogEnd::Outcome::kDone) {
    ++counters_.objects;
    counters_.bytes += object.bytes;
  } else if (end.outcome == tier::LogEnd::Outcome::kFailed) {
    ++counters_.failed;
  }
  MC_FAILPOINT("demote.durable");
  object.pool->store().end_demotion(object.entry);
  return true;
}

std::uint32_t Demoter::find(const TieredPool& pool, std::string_view key) const {
  const auto ticket = tickets_.find(pool.name(pool.hash(key)));
  if (ticket == tickets_.end()) return kNoEntry;
  const OnTheWay& object = by_ticket_.at(ticket->second);
  const bool same = object.pool == &pool && pool.store().index().key_of(object.entry) == key;
  return same ? object.entry : kNoEntry;
}

void Demoter::forget(const TieredPool& pool, std::string_view key) {
  if (find(pool, key) != kNoEntry) tickets_.erase(pool.name(pool.hash(key)));
}

}  // namespace mc::agent
