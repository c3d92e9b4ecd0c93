// SPDX-License-Identifier: Apache-2.0
//
// Asks the cluster store for the leader of a partition.
// Threads: seek() from any thread. The finder's thread calls found, once for each seek() that no later seek()
//   replaced.
// Owns: the store and the thread.
// Trusts: the store's value only as an address to try. The leader must prove the cluster key.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "metadata/store/cluster_store.h"
#include "metadata/store/store_thread.h"

namespace mc::metadata {

class LeaderFinder {
 public:
  // Gives an address, or MC_NOT_FOUND if the partition has no leader.
  using Found = std::function<void(Result<std::string>)>;
  LeaderFinder(std::unique_ptr<ClusterStore> store, std::uint32_t partition, Found found,
               const StartStoreThread& start_thread);
  void seek();

 private:
  // Asks the store if seek() was called.
  std::uint64_t step();

  const std::unique_ptr<ClusterStore> store_;
  const std::uint32_t partition_;
  const Found found_;
  std::atomic<bool> wanted_{false};
  const std::unique_ptr<StoreThread> thread_;
};

}  // namespace mc::metadata
