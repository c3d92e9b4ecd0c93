// SPDX-License-Identifier: Apache-2.0
//
// A simulated cluster without faults of its own, for tests of one course of events and
//   for benchmarks. The fleet has agents and a master; the caller scripts the faults. A step is
//   long enough for every message to arrive.
// Threads: The simulator's.
// Owns: Everything.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "libmc/base/memory_file.h"
#include "shm/layout.h"
#include "sim/sim_clock.h"
#include "sim/sim_master.h"
#include "sim/sim_node.h"

namespace mc::sim {

class Fleet {
 public:
  using RemoteRequestPointer = std::shared_ptr<agent::RemoteRequest>;

  struct Options {
    std::uint64_t size = 3;
    std::uint64_t pool_bytes = 1u << 20;
    std::uint32_t partitions = 1;
    std::uint64_t masters = 1;
    std::uint64_t disk_bytes = 0;  // of each agent's tier; 0: no tier
  };
  // Returns when all members have joined and know each other. Throws std::runtime_error, as all
  // functions here.
  explicit Fleet(const Options& options);
  ~Fleet();

  SimNode& node(std::uint64_t number) { return *nodes_[number]; }
  std::uint64_t size() const { return nodes_.size(); }
  SimMaster& master(std::uint64_t number = 0) { return *masters_[number]; }
  std::uint32_t partition_of(const std::string& key) const;
  // The number of the master that leads the partition now.
  std::uint64_t leader_of(std::uint32_t partition) const;
  // Cuts an agent off from a master, or joins them again.
  void cut(SimNode& node, SimMaster& master, bool cut);
  // The agent's links to all masters break. The agent dials again.
  void break_links(SimNode& node) { links_.cut(node.id()); }
  StoreWorld& store() { return store_; }
  std::uint64_t now_ns() const { return now_ns_; }

  // These begin operations. A put's bytes are the key's bytes, repeated.
  RemoteRequestPointer put(SimNode& node, const std::string& key, std::uint64_t bytes,
                           std::uint8_t replicas = 1, bool upsert = false);
  // The same for an object that the other host shall hold.
  RemoteRequestPointer put_at(SimNode& node, const SimNode& holder, const std::string& key,
                              std::uint64_t bytes, bool upsert = false);
  // pin: the reader's pin, which the caller must clear.
  RemoteRequestPointer get(SimNode& node, const std::string& key, shm::Word64& pin);
  RemoteRequestPointer exists(SimNode& node, const std::string& key);
  // Ends when that many hosts hold the object.
  RemoteRequestPointer await_replicas(SimNode& node, const std::string& key, std::uint8_t replicas);
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
                             agent::RemoteRequest::Item item,
                             agent::RemoteRequest::Source source = {});
  static agent::PutOrder order_of(SimNode& node, const std::string& key, const std::string& value,
                                  bool upsert);

  const std::uint32_t partitions_;
  Clock clock_;
  std::uint64_t now_ns_ = 1'000 * kMs;
  std::set<std::pair<HostId, HostId>> cut_;  // agent, master
  LinkWorld links_;
  StoreWorld store_;
  SimMaster::All masters_;
  transport::testing::LoopNetwork network_;
  MemoryFile staging_;  // of the sessions of put_at()
  std::uint64_t staged_bytes_ = 0;
  std::vector<std::unique_ptr<SimNode>> nodes_;
};

}  // namespace mc::sim
