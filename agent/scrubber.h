// SPDX-License-Identifier: Apache-2.0
//
// What it is: a thread that reads every object of a store once and compares it with its checksum,
// after
//   a restart. It reads as any client does: an object that changes meanwhile is skipped.
// Threads: start, take and stop from the agent's loop. Owns: its thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "agent/pool/object_store.h"

namespace mc::agent {

class Scrubber {
 public:
  struct Finding {
    std::uint32_t entry;
    std::uint64_t version;
  };
  // event: signalled when there is something to take.
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
  std::mutex mutex_;
  std::vector<Finding> findings_;
  std::atomic<std::uint64_t> verified_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace mc::agent
