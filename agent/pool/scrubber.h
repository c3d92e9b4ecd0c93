// SPDX-License-Identifier: Apache-2.0
//
// A thread that reads every object of a store, again and again at a bounded rate, and
//   compares the bytes with the checksum. The scrubber reads like a client: an object that changes
//   during the read is skipped.
// Threads: the agent's loop starts, asks, drains and stops the scrubber.
// Owns: the thread, the questions and the findings.
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
  // The object of this entry comes next: a client read bytes that do not match. Too many such
  // questions at once are forgotten.
  void examine(std::uint32_t entry);
  std::vector<Finding> take();
  // Objects whose bytes were compared so far, in all walks.
  std::uint64_t verified() const { return verified_.load(); }

 private:
  void run();
  void check(std::uint32_t entry);
  void check_asked();
  // Counts what the thread has read, and rests when that was enough for a while.
  void spend(std::uint64_t bytes);
  // Returns after the time, with a question, or when the scrubber stops.
  void wait_for_question(std::uint64_t ns);

  const shm::IndexHeader& header_;
  const shm::Entry* entries_;
  const std::byte* keys_;
  const std::byte* pool_;
  std::uint64_t pool_bytes_;
  int event_;
  std::uint64_t read_bytes_ = 0;  // since the last rest; the thread's own
  Mutex mutex_;
  Condition changed_;
  std::vector<std::uint32_t> asked_ MC_GUARDED_BY(mutex_);
  std::vector<Finding> findings_ MC_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> verified_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace mc::agent
