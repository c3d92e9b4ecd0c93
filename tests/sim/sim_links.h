// SPDX-License-Identifier: Apache-2.0
//
// The connections between agents and masters: real rpc::Links over pipes of bytes in
//   memory. As over TCP, bytes arrive complete, in order and late. While a path is cut no bytes
//   arrive; the bytes sent meanwhile arrive when the path is joined again.
// Threads: The simulator's.
// Owns: Each pipe, as long as an end of the pipe exists.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metadata/rpc/byte_stream.h"
#include "sim/sim_random.h"

namespace mc::sim {

using HostId = std::uint64_t;
inline constexpr HostId kMasterHost = 100;  // of the first master; the next ones follow
constexpr bool is_master_host(HostId host) { return host >= kMasterHost; }

class LinkWorld {
 public:
  // True if bytes of one host can now reach the other host.
  using Passes = std::function<bool(HostId from, HostId to)>;

  LinkWorld(Random random, Passes passes)
      : random_(random), order_(random.next()), passes_(std::move(passes)) {}

  // An end of a connection. Its completions run in the executor.
  struct Place {
    HostId host;
    boost::asio::any_io_executor executor;
  };
  struct Pair {
    std::shared_ptr<metadata::rpc::ByteStream> near, far;
  };
  Pair make(const Place& near, const Place& far);
  bool passes(HostId from, HostId to) const { return passes_(from, to); }
  // Hands over the bytes that have arrived by now.
  void deliver(std::uint64_t now_ns);
  // Breaks all connections of that host. Both ends learn of the break.
  void cut(HostId host);
  // 1: a fast network.
  void set_slowness(std::uint64_t factor) { slowness_ = factor; }

 private:
  class End;
  std::uint64_t arrival_ns() { return now_ns_ + random_.between(20'000, 400'000) * slowness_; }

  Random random_;
  Random order_;  // order in which the ends of links are visited
  Passes passes_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t slowness_ = 1;
  std::vector<std::weak_ptr<End>> ends_;
};

}  // namespace mc::sim
