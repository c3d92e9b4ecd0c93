// SPDX-License-Identifier: Apache-2.0
//
// Keeps the list of members up to date. It asks the masters every second, and soon
//   after a message has named an unknown node (Peers::missed).
// Threads: The agent's loop.
// Owns: Nothing. Masters and peers outlive this object.
#pragma once

#include <cstdint>
#include <memory>

#include "agent/cluster/master/masters.h"
#include "agent/cluster/peer/peers.h"

namespace mc::agent {

class MemberRefresh {
 public:
  static constexpr std::uint64_t kSoonNs = 20'000'000;

  MemberRefresh(const Masters& masters, Peers& peers) : masters_(masters), peers_(peers) {}
  void poll(std::uint64_t now_ns);
  // An answer turns the loop.
  std::uint64_t next_ns() const { return asked_ ? UINT64_MAX : next_ns_; }

 private:
  const Masters& masters_;
  Peers& peers_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_ns_ = 0;
  std::uint64_t last_ns_ = 0;
  bool asked_ = false;
};

}  // namespace mc::agent
