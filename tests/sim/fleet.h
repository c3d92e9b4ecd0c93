// SPDX-License-Identifier: Apache-2.0
//
// A simulated cluster without faults of its own, for tests of one course of events and
//   for benchmarks. The fleet has agents and a master; the caller scripts the faults. A step is
//   long enough for every message to arrive.
// Threads: The simulator's.
// Owns: Everything.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shm/layout.h"
#include "sim/sim_clock.h"
#include "sim/sim_master.h"
#include "sim/sim_node.h"

namespace mc::sim {

class Fleet {
 public:
  using RemoteRequestPointer = std::shared_ptr<agent::RemoteRequest>;

  // Returns when all members have joined and know each other. Throws std::runtime_error, as all
  // functions here.
  explicit Fleet(std::uint64_t size, std::uint64_t pool_bytes = 1u << 20);
  ~Fleet();

  SimNode& node(std::uint64_t number) { return *nodes_[number]; }
  std::uint64_t size() const { return nodes_.size(); }
  SimMaster& master() { return master_; }
  std::uint64_t now_ns() const { return now_ns_; }

  // These begin operations. A put's bytes are the key's bytes, repeated.
  RemoteRequestPointer put(SimNode& node, const std::string& key, std::uint64_t bytes,
                           std::uint8_t replicas = 1);
  // pin: the reader's pin, which the caller must clear.
  RemoteRequestPointer get(SimNode& node, const std::string& key, shm::Word64& pin);
  RemoteRequestPointer remove(SimNode& node, const std::string& key);

  // Moves the time on and delivers the messages that are due.
  void step();
  // Delivers messages at the links of the master and the agents.
  void turn_links();
  void turn(SimNode& node);
  // A step, then a turn of all members that do not stand still.
  void turn_all();
  // Repeats turn_all() until done. False: not done within that time.
  bool turn_until(const std::function<bool()>& done, std::uint64_t most_ns);

 private:
  RemoteRequestPointer begin(SimNode& node, agent::RemoteRequest::Kind kind,
                             agent::RemoteRequest::Item item);

  Clock clock_;
  std::uint64_t now_ns_ = 1'000 * kMs;
  boost::asio::io_context io_;
  LinkWorld links_;
  SimMaster master_;
  transport::loop::LoopNetwork network_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
};

}  // namespace mc::sim
