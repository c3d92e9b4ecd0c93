// SPDX-License-Identifier: Apache-2.0
//
// A thread that reads every object of a store once after a restart and compares the
//   bytes with the checksum. The scrubber reads like a client: an object that changes during the
//   read is skipped.
// Threads: the agent's loop starts, drains and stops the scrubber.
// Owns: the thread and the findings.
// Trusts: the index header and the pool, which only this agent writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "agent/pool/object_store.h"
#include "libmc/base/mutex.h"

namespace mc::agent {

class Scrubber {
 public:
  struct Finding {
    std::uint32_t entry;
    std::uint64_t version;
  };
  // event: the scrubber signals this eventfd when findings are ready.
  Scrubber(ObjectStore& store, int event);
  ~Scrubber();
  std::vector<Finding> take();
  std::uint64_t verified() const { return verified_.load(); }
  bool done() const { return done_.load(); }

 private:
  void run(std::uint64_t entry_count);
  void check(std::uint32_t entry);

  const shm::IndexHeader& header_;
  const shm::Entry* entries_;
  const std::byte* keys_;
  const std::byte* pool_;
  std::uint64_t pool_bytes_;
  int event_;
  Mutex mutex_;
  std::vector<Finding> findings_ MC_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> verified_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace mc::agent
