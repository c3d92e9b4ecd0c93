// SPDX-License-Identifier: Apache-2.0
//
// The promises of members, which let a leader go on while the cluster store is silent. A leader whose lock was
//   not renewed in time asks each member to attend no other leader for a while. While the promises of all
//   members hold, no other leader has a member of this one, so this leader still decides alone.
//
//     join ──────► asked with the answer; the member acts only after that answer
//     heartbeat ─► asked with the answer ──► the next heartbeat names the latest question heard
//
// A promise counts from the question, by this leader's clock. The member counts from the answer, which is later.
// The last lease_ns of a promise do not count: lists of members that this leader gave may be in use until then.
// Threads: the master's loop.
// Owns: a time for each member, and for each node that the next leader would expect.
// Trusts: members keep promises. A time after now is no promise.
#pragma once

#include <cstdint>
#include <map>

#include "metadata/membership/node.h"

namespace mc::metadata {

class Promises {
 public:
  Promises(std::uint64_t promise_ns, std::uint64_t lease_ns)
      : promise_ns_(promise_ns), lease_ns_(lease_ns) {}

  // Whether answers ask for promises from now on.
  void ask(bool asks) { asks_ = asks; }
  // For the answers. 0: the leader asks for nothing.
  [[nodiscard]] std::uint64_t asked_ns() const { return asks_ ? promise_ns_ : 0; }

  // A node that the store names as a member and that has promised nothing.
  void expect(NodeId node) { promised_[node] = 0; }
  void joined(NodeId node, std::uint64_t now_ns) { promised_[node] = asks_ ? now_ns : 0; }
  // promised_ns: the time of the latest question that the member has heard; 0: none.
  void heard(NodeId node, std::uint64_t promised_ns, std::uint64_t now_ns);
  // The node is no member, and the next leader does not expect the node.
  void forget(NodeId node) { promised_.erase(node); }

  // Until then no member attends another leader. 0: a member may do so now, or there is none.
  [[nodiscard]] std::uint64_t until_ns() const;

 private:
  const std::uint64_t promise_ns_;
  const std::uint64_t lease_ns_;
  bool asks_ = false;
  std::map<NodeId, std::uint64_t> promised_;  // the time of the question; 0: none
};

}  // namespace mc::metadata
