// SPDX-License-Identifier: Apache-2.0
//
// A thread for work that calls a cluster store, because stores block. The work is a function that returns
//   the time of its next call.
// Threads: wake() from any thread. The step runs in the object's own thread.
// Owns: the thread. The destructor waits for a step under way.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "libmc/base/mutex.h"

namespace mc::metadata {

// The thread that calls a store: a thread of the store's user, or the thread that calls the user's step(), as
// in a simulator.
enum class StoreCalls : std::uint8_t { kOwnThread, kCaller };

class StoreThread {
 public:
  // step: returns when it must be called again, as a time of now_ns().
  using Step = std::function<std::uint64_t()>;
  explicit StoreThread(Step step);
  ~StoreThread();
  // Calls step soon, even if a step is under way now.
  void wake();

 private:
  void run();

  const Step step_;
  Mutex mutex_;
  Condition changed_;
  bool stopping_ MC_GUARDED_BY(mutex_) = false;
  bool woken_ MC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace mc::metadata
