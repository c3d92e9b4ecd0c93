// SPDX-License-Identifier: Apache-2.0
//
// What it is: the connections between agents and the master: real rpc::Links over pipes of bytes in
//   memory. As over TCP bytes arrive whole and in order, late, and while a path is cut not at all;
//   what was sent meanwhile arrives when it is joined again.
// Threads: the simulator's. Owns: pipes, while an end of them is there.
#pragma once

#include <boost/asio/io_context.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metadata/rpc/byte_stream.h"
#include "sim/sim_random.h"

namespace mc::sim {

using HostId = std::uint64_t;
inline constexpr HostId kMasterHost = 0;  // of partition 0
inline constexpr HostId kMoreMasters = 100;
// Each partition's master has a host of its own.
constexpr HostId master_host(std::uint32_t partition) {
  return partition == 0 ? kMasterHost : kMoreMasters + partition;
}
constexpr bool is_master_host(HostId host) { return host == kMasterHost || host > kMoreMasters; }

class LinkWorld {
 public:
  // Whether bytes get from one host into the program at another now.
  using Passes = std::function<bool(HostId from, HostId to)>;

  LinkWorld(boost::asio::io_context& io, Random random, Passes passes)
      : io_(io), random_(random), order_(random.next()), passes_(std::move(passes)) {}

  struct Pair {
    std::shared_ptr<metadata::rpc::ByteStream> near, far;
  };
  Pair make(HostId near, HostId far);
  // Hands over what has arrived by now.
  void deliver(std::uint64_t now_ns);
  // All connections of that host break, and both sides hear of it.
  void cut(HostId host);
  // 1: a fast network.
  void set_slowness(std::uint64_t factor) { slowness_ = factor; }

 private:
  class End;
  std::uint64_t arrival_ns() { return now_ns_ + random_.between(20'000, 400'000) * slowness_; }

  boost::asio::io_context& io_;
  Random random_;
  Random order_;  // in which the ends of links are looked at
  Passes passes_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t slowness_ = 1;
  std::vector<std::weak_ptr<End>> ends_;
};

}  // namespace mc::sim
