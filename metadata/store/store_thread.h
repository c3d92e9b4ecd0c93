// SPDX-License-Identifier: Apache-2.0
//
// A thread for work that calls a cluster store, because stores block. The work is a function that returns
//   the time of its next call.
// Threads: wake() from any thread. The step runs in the object's own thread.
// Owns: the thread. The destructor waits for a step under way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace mc::metadata {

class StoreThread {
 public:
  // Returns when the step must be called again, as a time of now_ns().
  using Step = std::function<std::uint64_t()>;
  virtual ~StoreThread() = default;
  // Calls the step soon, even if a step is under way now.
  virtual void wake() = 0;
};

// Starts a thread that calls the step at once. A simulator has its own function.
using StartStoreThread = std::function<std::unique_ptr<StoreThread>(StoreThread::Step)>;
std::unique_ptr<StoreThread> start_store_thread(StoreThread::Step step);

}  // namespace mc::metadata
