// SPDX-License-Identifier: Apache-2.0
//
// What it is: asks the cluster store who leads a partition, in a thread of its own, since stores block.
// Threads: seek() from any; found is called from its own thread, once for each seek that was not
//   overtaken by another. Owns: the store, the thread.
// Trusts: the store's value only as an address to try; the leader must prove the cluster key.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

class LeaderFinder {
 public:
  // Of an address; MC_NOT_FOUND: nobody leads.
  using Found = std::function<void(Result<std::string>)>;
  LeaderFinder(std::unique_ptr<ClusterStore> store, std::uint32_t partition, Found found);
  ~LeaderFinder();
  void seek();

 private:
  void run();

  std::unique_ptr<ClusterStore> store_;
  const std::uint32_t partition_;
  const Found found_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool wanted_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mc::metadata
