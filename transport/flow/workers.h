// SPDX-License-Identifier: Apache-2.0
//
// What it is: threads for what the kernel takes long for with a device, which the loop cannot wait
//   for. To register memory it pins it: a second for some ten GB.
//
//     loop: run(device, work, done) ─► thread: work() ─► loop: done()
//
// Threads: run(), finish() and on_edge() are the loop's, and call done(); the work is done in
//   threads of this object's.
// Owns: what is on its way, and its threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "libmc/base/fd.h"
#include "transport/flow/edges.h"

namespace mc::transport {

class Workers : public Watched {
 public:
  // threads 0: all is done by run() itself.
  Workers(std::uint32_t threads, Fd wakeup);
  ~Workers() override;

  // Work with a device, which is named by its address alone; then done.
  void run(const void* device, std::function<void()> work, std::function<void()> done);
  // Until nothing of that device is on its way; before the device is closed.
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
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::deque<Job> done_;
  std::vector<const void*> running_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mc::transport
