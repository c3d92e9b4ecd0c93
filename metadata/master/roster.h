// SPDX-License-Identifier: Apache-2.0
//
// The list of masters of a cluster with several partitions, and the partitions that
//   this master should lead. Each master keeps its address under "masters/" in the cluster store,
//   with a lease, and reads the other masters and all leaders there.
//
//     store ──► masters, leaders ──► spread_partitions() ──► may_take(), gives_up() ──► Electors
//
// The roster advises; the leaders' locks decide. A master with an outdated list takes a partition
// too early or too late, but never a partition that another master leads.
// Threads: the roster's thread makes all store calls. may_take() and gives_up() from any thread.
// Owns: the store and the thread.
// Trusts: the store. Addresses are only compared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libmc/base/mutex.h"
#include "metadata/store/cluster_store.h"
#include "metadata/store/store_thread.h"

namespace mc::metadata {

class Roster {
 public:
  Roster(std::unique_ptr<ClusterStore> store, std::string address, std::uint32_t partitions,
         std::uint32_t ttl_ms, const StartStoreThread& start_thread);
  // Removes this master from the list.
  ~Roster();

  // Whether this master should campaign for a partition that has been vacant for vacant_ns.
  [[nodiscard]] bool may_take(std::uint32_t partition, std::uint64_t vacant_ns) const;
  // Whether this master should hand over a partition that it leads. True once in a while:
  // partitions move in turn, so that agents can report to the new leader before the next move.
  [[nodiscard]] bool gives_up(std::uint32_t partition, std::uint64_t now_ns);

 private:
  // Reads the store. Returns the time of the next call.
  std::uint64_t step();
  Status sign_up(std::uint64_t deadline_ns);
  void read(std::uint64_t deadline_ns);

  std::unique_ptr<ClusterStore> store_;
  const std::string address_;
  const std::uint32_t partitions_;
  const std::uint32_t ttl_ms_;
  Lease lease_;

  mutable Mutex mutex_;
  std::vector<std::string> masters_ MC_GUARDED_BY(mutex_);
  std::vector<std::string> leaders_ MC_GUARDED_BY(mutex_);
  std::vector<std::string> wanted_
      MC_GUARDED_BY(mutex_);  // the master of each partition; empty: nothing has been read
  std::uint64_t settled_ns_ MC_GUARDED_BY(mutex_) = 0;  // nothing has moved since then
  std::unique_ptr<StoreThread> thread_;
};

}  // namespace mc::metadata
