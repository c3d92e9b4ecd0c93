// SPDX-License-Identifier: Apache-2.0
//
// What it is: what this master knows of the other masters of a cluster whose keys are in several
//   partitions, and so which partitions it should lead. Each master keeps its address under "masters/" in
//   the cluster store, with a lease, and reads there who else is and who leads what.
//
//     store ──► masters, leaders ──► spread_shares() ──► may_take(), gives_up() ──► Electors
//
//   It advises; the leader's locks decide. A master that reads an old list takes a partition too early
//   or too late, never one that another leads.
// Threads: its own does all store calls; the questions from any. Owns: the store, the thread.
// Trusts: the store; addresses are compared, nothing more.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

class Roster {
 public:
  Roster(std::unique_ptr<ClusterStore> store, std::string address, std::uint32_t partitions,
         std::uint32_t ttl_ms);
  // Takes this master off it.
  ~Roster();

  // Whether this master should try to lead a partition that nobody has led for so long.
  [[nodiscard]] bool may_take(std::uint32_t partition, std::uint64_t vacant_ns) const;
  // Whether it should let another one lead what it leads, as this partition. True once in a while:
  // partitions move one by one, each when the agents have reported the one before.
  [[nodiscard]] bool gives_up(std::uint32_t partition, std::uint64_t now_ns);

 private:
  void run();
  Status sign_up(std::uint64_t deadline_ns);
  void read(std::uint64_t deadline_ns);

  std::unique_ptr<ClusterStore> store_;
  const std::string address_;
  const std::uint32_t partitions_;
  const std::uint32_t ttl_ms_;
  Lease lease_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::vector<std::string> masters_;
  std::vector<std::string> leaders_;
  std::vector<std::string> wanted_;  // the master of each partition; none: nothing has been read
  std::uint64_t settled_ns_ = 0;     // since then nothing has moved
  std::thread thread_;
};

}  // namespace mc::metadata
