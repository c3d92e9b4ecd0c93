// SPDX-License-Identifier: Apache-2.0
//
// Threads for long calls into the kernel about a device, for which the loop cannot
//   wait. Registration pins memory, which takes a second for some ten GB.
//
//     loop: run(device, work, done) ─► thread: work() ─► loop: done()
//
// Threads: the loop calls run(), finish() and on_edge(), which call done(). This object's threads
//   do the work.
// Owns: the jobs and the threads.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "libmc/base/fd.h"
#include "libmc/base/mutex.h"
#include "transport/flow/edges.h"

namespace mc::transport {

class Workers : public Watched {
 public:
  // threads 0: run() does all the work itself.
  Workers(std::uint32_t threads, Fd wakeup);
  ~Workers() override;

  // work uses the device at this address. After work, the loop calls done.
  void run(const void* device, std::function<void()> work, std::function<void()> done);
  // Returns when no job of the device is left. To be called before the device is closed.
  void finish(const void* device);
  void on_edge(std::uint64_t now_ns) override;
  int fd() const { return wakeup_.get(); }

 private:
  struct Job {
    const void* device;
    std::function<void()> work;
    std::function<void()> done;
  };
  void work();

  Fd wakeup_;
  Mutex mutex_;
  Condition changed_;
  std::deque<Job> waiting_ MC_GUARDED_BY(mutex_);
  std::deque<Job> done_ MC_GUARDED_BY(mutex_);
  std::vector<const void*> running_ MC_GUARDED_BY(mutex_);
  bool stops_ MC_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace mc::transport
