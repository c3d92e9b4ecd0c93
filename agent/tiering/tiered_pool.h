// SPDX-License-Identifier: Apache-2.0
//
// A namespace whose evicted objects go to the tier.
// Threads: the agent's loop.
// Owns: a reference to the namespace.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "agent/server/local_disks.h"
#include "agent/server/tenant.h"
#include "agent/tier/jobs/disk_jobs.h"
#include "libmc/base/hash.h"

namespace mc::agent {

// The session of the tier's reservations. A restarted agent does not know this session, and frees the
// reservations.
inline constexpr std::uint64_t kTierSession = 0x6d63746965727264ull;

// Names a namespace on all disks, in all lives of the agent.
inline std::uint64_t namespace_id(std::string_view name) {
  return XXH3_64bits(name.data(), name.size());
}

// The hash of an object in the indexes of its cluster is half of its name.
inline tier::TierKey tier_key_of(const SharedName& name) {
  return {.hash = name.lo, .more = name.hi};
}
inline SharedName shared_name_of(const tier::TierKey& key) {
  return {.hi = key.more, .lo = key.hash};
}

// tier::TierEntry::marks of an object of a cluster: its replicas, and whether a master has accepted the put.
std::uint8_t marks_of(const SharedObject& object);
SharedObject shared_object(const tier::TierKey& key, std::uint64_t version, std::uint64_t length,
                           unsigned marks);

struct TieredPool {
  std::shared_ptr<Tenant> tenant;
  SharedObjects* shared = nullptr;     // of a clustered namespace
  std::uint64_t id = 0;                // namespace_id(), or the id in the cluster
  std::uint64_t on_the_way_bytes = 0;  // of objects that a Demoter holds

  ObjectStore& store() const { return *tenant->store; }
  // The object of the key, as the log names it. The key's text must outlive the result.
  tier::ObjectName object(std::string_view key) const {
    tier::ObjectName name{.key = key, .namespace_id = id};
    if (shared != nullptr) name.given = tier_key_of(shared->shared_name(key));
    return name;
  }
  // The object's hash in the index of the pool.
  std::uint64_t hash(const tier::ObjectName& object) const {
    return object.given ? object.given->hash : store().index().hash(object.key);
  }
  // The object's entry in the pool, or kNoEntry.
  std::uint32_t find(const tier::ObjectName& object) const {
    if (object.given) return shared->find(shared_name_of(*object.given));
    return store().index().find(object.key, hash(object)).value_or(kNoEntry);
  }
  // Differs between namespaces with the same seed of hashes.
  std::uint64_t name(std::uint64_t hash) const { return hash ^ id; }
  // The bytes of an object or a reservation.
  std::vector<tier::Piece> pieces(std::uint32_t entry, std::uint64_t length) const {
    std::vector<tier::Piece> pieces;
    each_piece(store().extents(entry), 0, length, [&](std::uint64_t offset, std::uint64_t bytes) {
      pieces.push_back({store().pool().data() + offset, bytes});
    });
    return pieces;
  }
};

}  // namespace mc::agent
