// SPDX-License-Identifier: Apache-2.0
//
// Evicted objects on their way to the tier. The bytes stay in the pool until they are durable, and readers
//   find the objects here meanwhile.
//   The pool's headroom, a 32nd of the pool and at most 256 MiB, may be on the way, and one object more; or one
//   larger object, up to a quarter of the pool. An object beyond that is lost: a slow disk delays no put.
// Threads: the agent's loop. The tier's threads read the bytes of the objects.
// Owns: the held entries of the pools.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "agent/tier/log/log.h"
#include "agent/tiering/admission.h"
#include "agent/tiering/tiered_pool.h"

namespace mc::agent {

// Removes each record of the object's key from the disks. Nobody waits for the end. Nothing happens if too many
// removals are under way.
void remove_unheard(tier::Log& log, const tier::ObjectName& name);

class Demoter {
 public:
  struct Counters {
    std::uint64_t objects = 0, bytes = 0;  // that became durable
    std::uint64_t on_the_way_bytes = 0;    // now
    std::uint64_t same = 0;                // the disk had the object already
    // Objects that are lost: too many bytes were on the way, the plan of written bytes allowed no more,
    // the object is too large for a segment, no disk serves, or the write failed.
    std::uint64_t busy = 0, saving = 0, too_large = 0, no_disk = 0, failed = 0;
    std::uint64_t stripes = 0;  // of objects in stripes, which stay in pools
  };
  Demoter(tier::Log& log, const Admission& admission) : log_(log), admission_(admission) {}

  // See Demotion::begin().
  bool begin(TieredPool& pool, const Demotion::Leaving& object, std::uint64_t now_ns);
  // Demotion::keeps_up() of this pool. The bytes on the way keep each disk busy and leave the pool room for puts.
  bool keeps_up(const TieredPool& pool) const {
    return !log_.will_take_puts() &&
           pool.on_the_way_bytes <= pool.store().pool().reserved_bytes() / kPacedShare &&
           counters_.on_the_way_bytes <= kPacedBytes * log_.serving_disks();
  }
  // Returns false if the ticket is of other work.
  bool end(const tier::LogEnd& end);
  // The entry of an object on its way, or kNoEntry.
  std::uint32_t find(const TieredPool& pool, std::uint64_t hash,
                     const tier::ObjectName& name) const;
  // The ticket of the object's put that is under way.
  std::optional<std::uint64_t> put_of(const TieredPool& pool, const tier::ObjectName& name) const;
  // A removal or another object of the key has come: nobody finds the object any more.
  void forget(const TieredPool& pool, std::uint64_t hash, const tier::ObjectName& name);
  // A master has accepted the put of an object on its way.
  void announced(const TieredPool& pool, const tier::ObjectName& name, std::uint64_t version);
  // Visits up to `most` objects of the pool, in the order of their tickets. Returns the next ticket, or
  // nothing at the end.
  std::optional<std::uint64_t> walk(const TieredPool& pool, std::uint64_t from, std::size_t most,
                                    const LocalDisks::Keys::Visit& visit) const;
  std::size_t on_the_way() const { return by_ticket_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  static constexpr std::uint64_t kPacedBytes = 48 << 20;
  static constexpr std::uint64_t kPacedShare = 4;
  struct OnTheWay {
    TieredPool* pool = nullptr;
    std::uint32_t entry = kNoEntry;
    SharedObject object;  // without a cluster: its length
  };
  bool lose(const tier::ObjectName& name, std::uint64_t& reason);
  std::uint64_t& lost_by(tier::Log::Refusal refusal);

  tier::Log& log_;
  Admission admission_;
  std::map<std::uint64_t, OnTheWay> by_ticket_;
  std::unordered_map<std::uint64_t, std::uint64_t> tickets_;  // by TieredPool::name()
  Counters counters_;
};

}  // namespace mc::agent
