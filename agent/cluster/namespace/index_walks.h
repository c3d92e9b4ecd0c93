// SPDX-License-Identifier: Apache-2.0
//
// Listings and removals by pattern, which must look at every key of a namespace. A walk
//   visits a bounded part of the index in each turn of the loop and pauses after that. No client
//   waits for a walk longer than for a large put.
//
//     list, remove ──► cursor ──► entries that match ──► at the end: the answer
//                         ▲ entries that become live behind the cursor (moved, copied, put) are
//                         visited too
//
//   Then come the objects on this host's disks. Their keys have to be read from the disks.
//
//   Keys are compared with a regular expression by the KeyMatcher's thread, a batch at a time.
//   Meanwhile the walk waits.
//
//   An object that exists during the whole walk is found, even if the object is moved. A removal
//   takes the objects that existed at the start. Objects that this host's clients put during the
//   removal may go or stay.
// Threads: The agent's loop.
// Owns: The walks under way.
// Trusts: Not the patterns. A pattern that is no regular expression ends the walk.
#pragma once

#include <deque>
#include <memory>

#include "agent/cluster/master/master_port.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/namespace/key_matcher.h"

namespace mc::agent {

class IndexWalks {
 public:
  template <typename Answer>
  using Reply = MasterOrders::Reply<Answer>;

  static constexpr std::size_t kMaxWalks = 256;  // beyond: MC_BUSY
  static constexpr std::uint32_t kEntriesPerTurn = 1024;
  static constexpr std::uint64_t kTurnNs = 20'000;
  static constexpr std::uint64_t kPauseNs = 10'000;
  static constexpr std::uint64_t kMatchPauseNs =
      200'000;                                            // while all walks wait for the KeyMatcher
  static constexpr std::uint64_t kDiskPauseNs = 200'000;  // while all walks wait for disks

  IndexWalks();
  ~IndexWalks();

  struct Partition {  // the partition of the keys to walk
    std::uint32_t number = 0;
    std::uint32_t of = 1;
  };
  // Both answer from a later turn(), or at once if the walk cannot begin.
  void list(ClusterTenant& tenant, const metadata::wire::Match& match, Partition partition,
            Reply<metadata::wire::ListAnswer> reply);
  void remove(ClusterTenant& tenant, const metadata::wire::Match& match, Partition partition,
              Reply<metadata::wire::RemoveMatchingAnswer> reply);
  // An entry became live (ArrivalListener).
  void arrived(const ClusterTenant& tenant, std::uint32_t entry, bool is_put);
  // The namespace ends. All walks over the namespace answer with the keys found so far.
  void forget(ClusterTenant& tenant);

  // Does a bounded part of one walk, if a walk is due.
  void turn(std::uint64_t now_ns);
  // When turn() has work; UINT64_MAX: never.
  std::uint64_t next_ns() const {
    if (walks_.empty()) return UINT64_MAX;
    return for_disks_ >= walks_.size() ? next_turn_ns_ : 0;
  }

 private:
  class Walk;
  class Listing;
  class Removal;
  class RegexRemoval;

  template <typename Answer>
  bool admit(const Reply<Answer>& reply) const;
  void end_first();

  KeyMatcher matcher_;
  std::deque<std::unique_ptr<Walk>> walks_;  // the front has the next turn
  std::size_t waiting_ = 0;  // the last turns in a row that waited for the KeyMatcher or for disks
  std::size_t for_disks_ = 0;  // the last turns in a row that waited for disks
  std::uint64_t next_turn_ns_ = 0;
};

}  // namespace mc::agent
