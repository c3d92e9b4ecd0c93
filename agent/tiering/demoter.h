// SPDX-License-Identifier: Apache-2.0
//
// Evicted objects on their way to the tier. The bytes stay in the pool until they are durable, and readers
//   find the object here meanwhile.
//   The pool's headroom, a 32nd of the pool and at most 256 MiB, may be on the way, or one larger object, up
//   to a quarter of the pool. An object beyond that is lost: a slow disk delays no put.
// Threads: the agent's loop. The tier's threads read the bytes of the objects.
// Owns: the held entries of the pools.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "agent/tier/log/log.h"
#include "agent/tiering/admission.h"
#include "agent/tiering/tiered_pool.h"

namespace mc::agent {

// Removes each record of the key from the disks. Nobody waits for the end. Nothing happens if too many
// removals are under way.
void remove_unheard(tier::Log& log, std::string_view key, std::uint64_t namespace_id);

class Demoter {
 public:
  struct Counters {
    std::uint64_t objects = 0, bytes = 0;  // that became durable
    std::uint64_t same = 0;                // the disk had the object already
    // Objects that are lost: too many bytes were on the way, the plan of written bytes allowed no more,
    // the object is too large for a segment, no disk serves, or the write failed.
    std::uint64_t busy = 0, saving = 0, too_large = 0, no_disk = 0, failed = 0;
  };
  Demoter(tier::Log& log, const Admission& admission) : log_(log), admission_(admission) {}

  // See Demotion::begin().
  bool begin(TieredPool& pool, const Demotion::Leaving& object, std::uint64_t now_ns);
  // Returns false if the ticket is of other work.
  bool end(const tier::LogEnd& end);
  // The entry of an object on its way, or kNoEntry.
  std::uint32_t find(const TieredPool& pool, std::string_view key) const;
  // A removal or another object of the key has come: nobody finds the object any more.
  void forget(const TieredPool& pool, std::string_view key);
  const Counters& counters() const { return counters_; }

 private:
  struct OnTheWay {
    TieredPool* pool = nullptr;
    std::uint32_t entry = kNoEntry;
    std::uint64_t bytes = 0;
  };
  bool lose(const TieredPool& pool, std::string_view key, std::uint64_t& reason);
  std::uint64_t& lost_by(tier::Log::Refusal refusal);

  tier::Log& log_;
  Admission admission_;
  std::unordered_map<std::uint64_t, OnTheWay> by_ticket_;
  std::unordered_map<std::uint64_t, std::uint64_t> tickets_;  // by TieredPool::name()
  Counters counters_;
};

}  // namespace mc::agent
