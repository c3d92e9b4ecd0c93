// SPDX-License-Identifier: Apache-2.0
//
// A walk over a namespace's objects on the disks with their keys: first the objects on their way, since these
//   come to a disk meanwhile, then each disk. Without keys, the log's index tells the objects.
// Threads: the agent's loop.
// Owns: the walks over the disks.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "agent/tier/log/log.h"
#include "agent/tiering/demoter.h"
#include "agent/tiering/tiered_pool.h"

namespace mc::agent {

class DiskKeys final : public LocalDisks::Keys {
 public:
  // All outlive the calls of go_on().
  DiskKeys(const tier::Log& log, const Demoter& demoter, const TieredPool& pool, bool want_keys)
      : log_(log), demoter_(demoter), pool_(pool), want_keys_(want_keys) {}
  Next go_on(const Visit& visit) override;
  // Bytes of a disk are in memory, and other walks wait.
  bool is_reading() const { return !disks_.empty() && disks_.front().is_reading(); }

 private:
  Next go_on_without_keys(const Visit& visit);
  void look_at(const tier::KeyWalk::Object& object, const Visit& visit) const;
  // From the secret of the tier.
  std::uint64_t hash_of(std::string_view key) const { return log_.hash_of(pool_.object(key)); }

  const tier::Log& log_;
  const Demoter& demoter_;
  const TieredPool& pool_;
  std::optional<std::uint64_t> on_the_way_ = 0;  // position; nothing: all were visited
  std::unordered_set<std::uint64_t> visited_;    // hash_of() objects that were on their way
  const bool want_keys_;
  std::uint32_t next_entry_ = 0;  // without keys: of the log
  bool begun_ = false;
  std::deque<tier::KeyWalk> disks_;  // the first one is walked over
};

}  // namespace mc::agent
