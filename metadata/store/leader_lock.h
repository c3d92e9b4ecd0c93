// SPDX-License-Identifier: Apache-2.0
//
// Leadership of a partition of a cluster's keys. The lock is a key of the store under a
//   lease. The key's revision is the fencing epoch, which grows with each leader. A receiver of a
//   leader's orders refuses an epoch below the highest epoch that it has seen of that partition.
// Threads: a single thread at a time, including leads() and epoch().
// Owns: a lease of the store while this process leads. resign() or the TTL ends the lease.
// Trusts: the store. The caller decodes the values of other processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

inline constexpr std::string_view kLeaderKey = "leader";  // of partition 0
// The keys of all partitions begin with kLeaderKey, so one list() shows all leaders.
std::string leader_key(std::uint32_t partition);

struct Leader {
  std::string value;  // the value given to the leader's LeaderLock
  Revision epoch = 0;
};
// MC_NOT_FOUND: the partition has no leader.
Result<Leader> find_leader(ClusterStore& store, std::uint64_t deadline_ns,
                           std::uint32_t partition = 0);

class LeaderLock {
 public:
  // value: how other processes find this leader. clock: now_ns() or a simulator's clock.
  LeaderLock(ClusterStore& store, std::string value, std::uint32_t ttl_ms,
             std::function<std::uint64_t()> clock, std::uint32_t partition = 0);

  // Tries once. False: another process leads; try again later.
  // MC_UNSUPPORTED: the store cannot elect.
  Result<bool> campaign(std::uint64_t deadline_ns);
  // Call this several times per TTL. MC_NOT_FOUND: the leadership has ended. After another error a
  // retry may succeed while leads() still holds.
  Status renew(std::uint64_t deadline_ns);
  // Writes the lock again, which changes guard(). Writes with an earlier guard that the server executes later
  // change nothing. MC_NOT_FOUND: the leadership has ended. After another error call again before using guard().
  Status outdate_guards(std::uint64_t deadline_ns);
  // Ends the leadership, so that the next leader need not wait for the end of the TTL.
  Status resign(std::uint64_t deadline_ns);

  // Whether this process may act as the leader now, from the store's last answer. Turns false a
  // tenth of the TTL before the store admits another leader, which allows for clocks of different
  // speed.
  bool leads() const { return epoch_ != 0 && clock_() < valid_until_ns_; }
  // Of writes that only the leader may make.
  Guard guard() const { return {key_, epoch_}; }
  // 0: this process never led, or knows that it no longer leads. outdate_guards() raises the epoch.
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
