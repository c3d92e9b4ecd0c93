// SPDX-License-Identifier: Apache-2.0
//
// What it is: listings and removals by pattern, which must look at every key of a namespace: a
//   bounded part of its index in each turn of the loop, and a pause after it, so that nobody waits
//   for one longer than for a large put.
//
//     list, remove ──► cursor ──► entries that match ──► at the end: the answer
//                         ▲ what comes to live behind it (moved, copied, put anew) is looked at too
//
//   An object that is there all the time is found, wherever it is moved. A removal takes what was
//   there when it began; what this host's clients put meanwhile goes or stays, as it happens.
// Threads: the agent's loop. Owns: walks under way. Trusts: patterns: one that is no regular
//   expression, or takes more work than Boost grants, ends its walk.
#pragma once

#include <deque>
#include <memory>

#include "agent/cluster/master/master_port.h"
#include "agent/cluster/namespace/cluster_tenant.h"

namespace mc::agent {

class IndexWalks {
 public:
  template <typename Answer>
  using Reply = MasterOrders::Reply<Answer>;

  static constexpr std::size_t kMaxWalks = 256;  // then MC_BUSY
  static constexpr std::uint32_t kEntriesPerTurn = 1024;
  static constexpr std::uint64_t kTurnNs = 20'000;
  static constexpr std::uint64_t kPauseNs = 10'000;

  IndexWalks();
  ~IndexWalks();

  struct Partition {  // of the keys, that is walked
    std::uint32_t number = 0;
    std::uint32_t of = 1;
  };
  // Both answer from a later turn(), or at once if they cannot begin.
  void list(ClusterTenant& tenant, const metadata::wire::Match& match, Partition partition,
            Reply<metadata::wire::ListAnswer> reply);
  void remove(ClusterTenant& tenant, const metadata::wire::Match& match, Partition partition,
              Reply<metadata::wire::RemoveMatchingAnswer> reply);
  // The namespace ends: its walks answer with what they have found.
  void forget(ClusterTenant& tenant);

  // A part of one walk, if one is due.
  void turn(std::uint64_t now_ns);
  bool idle() const { return walks_.empty(); }

 private:
  class Walk;
  class Listing;
  class Removal;

  template <typename Answer>
  bool admit(const Reply<Answer>& reply) const;
  void begin(std::unique_ptr<Walk> walk);
  void end_first();
  void arrived(const ClusterTenant& tenant, std::uint32_t entry, bool is_put);

  std::deque<std::unique_ptr<Walk>> walks_;  // the first one has the next turn
  std::uint64_t next_turn_ns_ = 0;
};

}  // namespace mc::agent
