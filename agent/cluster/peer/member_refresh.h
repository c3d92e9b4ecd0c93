// SPDX-License-Identifier: Apache-2.0
//
// Gives the peers the list of members that the masters tell, and asks the masters for changes
//   soon after a message has named an unknown node (Peers::missed).
// Threads: The agent's loop.
// Owns: Nothing. Masters and peers outlive this object.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/cluster/master/masters.h"
#include "agent/cluster/peer/peers.h"

namespace mc::agent {

class MemberRefresh {
 public:
  static constexpr std::uint64_t kSoonNs = 20'000'000;

  MemberRefresh(const Masters& masters, Peers& peers) : masters_(masters), peers_(peers) {}
  void poll(std::uint64_t now_ns);
  // An answer turns the loop.
  std::uint64_t next_ns() const { return missed_ ? last_ns_ + kSoonNs : UINT64_MAX; }

 private:
  const Masters& masters_;
  Peers& peers_;
  std::uint64_t last_ns_ = 0;  // of the last question
  bool missed_ = false;
  std::vector<std::uint64_t> seen_;
};

}  // namespace mc::agent
