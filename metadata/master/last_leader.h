// SPDX-License-Identifier: Apache-2.0
//
// Tells whether the last leader is over. While the store is silent to the last leader, the last leader may
//   go on with members that have promised to attend no other leader (promises.h). The next leader admits
//   nobody until a member of the last leader shows that the promises have ended:
//
//     the same process joins ─────► the process has kept the promise
//     a new process asks to join ─► waits for the time of a promise, in which the last leader misses the
//                                   former process
//     another node asks to join ──► waits until the next leader has recovered
//
// Threads: the master's loop.
// Owns: the members of the last leader, until that leader is over.
// Trusts: members keep promises.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "metadata/membership/node.h"

namespace mc::metadata {

class LastLeader {
 public:
  explicit LastLeader(std::uint64_t promise_ns) : promise_ns_(promise_ns) {}

  // The store names this member of the last leader.
  void had(NodeId node, Incarnation incarnation) { members_[node] = {.incarnation = incarnation}; }

  // When this node may join: now, or after that time.
  std::uint64_t admits_at(NodeId node, Incarnation incarnation, std::uint64_t recovered_at_ns,
                          std::uint64_t now_ns) {
    const auto known = members_.find(node);
    if (known == members_.end()) return members_.empty() ? now_ns : recovered_at_ns;
    Member& member = known->second;
    if (member.incarnation != incarnation) {
      if (std::exchange(member.asked, incarnation) != incarnation) {
        member.waits_until_ns = now_ns + promise_ns_;
      }
      if (now_ns < member.waits_until_ns) return member.waits_until_ns;
    }
    members_.clear();
    return now_ns;
  }

 private:
  struct Member {
    Incarnation incarnation = 0;
    Incarnation asked = 0;  // the new process that has asked last
    std::uint64_t waits_until_ns = 0;
  };
  const std::uint64_t promise_ns_;
  std::map<NodeId, Member> members_;  // empty: the last leader is over
};

}  // namespace mc::metadata
