// SPDX-License-Identifier: Apache-2.0
//
// A thread that asks the cluster store for the leader of a partition. Stores block.
// Threads: seek() from any thread. The finder's thread calls found, once for each seek() that no
//   later seek() replaced.
// Owns: the store and the thread.
// Trusts: the store's value only as an address to try. The leader must prove the cluster key.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "libmc/base/mutex.h"
#include "metadata/store/cluster_store.h"

namespace mc::metadata {

class LeaderFinder {
 public:
  // Gives an address, or MC_NOT_FOUND if the partition has no leader.
  using Found = std::function<void(Result<std::string>)>;
  LeaderFinder(std::unique_ptr<ClusterStore> store, std::uint32_t partition, Found found);
  ~LeaderFinder();
  void seek();

 private:
  void run();

  std::unique_ptr<ClusterStore> store_;
  const std::uint32_t partition_;
  const Found found_;
  Mutex mutex_;
  Condition wake_;
  bool wanted_ MC_GUARDED_BY(mutex_) = false;
  bool stopping_ MC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace mc::metadata
