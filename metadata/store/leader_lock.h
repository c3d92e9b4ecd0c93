// SPDX-License-Identifier: Apache-2.0
//
// What it is: leadership of a partition of a cluster's keys: a key of the store, held under a lease,
//   whose revision is the fencing epoch: each leader's is above those of all before it. Who is told
//   to act by a leader refuses an epoch below the highest it has seen of that partition.
// Threads: one at a time; leads() and epoch() need the same care.
// Owns: a lease of the store while it leads; resign() or its TTL ends it.
// Trusts: the store. What others wrote into the key is the caller's to decode.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

inline constexpr std::string_view kLeaderKey = "leader";  // of partition 0
// Of any partition: all of them begin with kLeaderKey, so that one list() tells who leads what.
std::string leader_key(std::uint32_t partition);

struct Leader {
  std::string value;  // as it was given to its LeaderLock
  Revision epoch = 0;
};
// MC_NOT_FOUND: nobody leads.
Result<Leader> find_leader(ClusterStore& store, std::uint64_t deadline_ns,
                           std::uint32_t partition = 0);

class LeaderLock {
 public:
  // value: how others find this leader. clock: now_ns() or a simulator's.
  LeaderLock(ClusterStore& store, std::string value, std::uint32_t ttl_ms,
             std::function<std::uint64_t()> clock, std::uint32_t partition = 0);

  // One attempt. False: another leads (watch its leader_key(), try again when it is removed).
  // MC_UNSUPPORTED: the store cannot elect.
  Result<bool> campaign(std::uint64_t deadline_ns);
  // Call it several times per TTL. MC_NOT_FOUND: the leadership has ended; other errors: it may be
  // renewed while leads() still holds.
  Status renew(std::uint64_t deadline_ns);
  // Lets the next leader in at once.
  Status resign(std::uint64_t deadline_ns);

  // Whether it may act as the leader now: from the store's last word, not asked again. Turns false
  // a tenth of the TTL before the store lets another in, for clocks that run apart.
  bool leads() const { return epoch_ != 0 && clock_() < valid_until_ns_; }
  // 0: never led, or knows that it leads no more.
  Revision epoch() const { return epoch_; }
  std::uint32_t ttl_ms() const { return lease_.ttl_ms; }  // as granted

 private:
  void extend(std::uint64_t asked_ns);

  ClusterStore& store_;
  const std::string key_;
  const std::string value_;
  const std::uint32_t wanted_ttl_ms_;
  const std::function<std::uint64_t()> clock_;
  Lease lease_;
  Revision epoch_ = 0;
  std::uint64_t valid_until_ns_ = 0;
};

}  // namespace mc::metadata
