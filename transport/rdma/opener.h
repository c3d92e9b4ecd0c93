// SPDX-License-Identifier: Apache-2.0
//
// What it is: threads for what the kernel takes long for, which the loop cannot wait for. To take a
//   queue pair to "ready to receive" it looks the way up: where a neighbour does not answer, that
//   is a second. To register memory it pins it: a second for some ten GB.
//
//     loop: open(pair, transition, done) ─► thread: transition ─► loop: done(pair, status)
//
// Threads: open(), run(), finish() and on_edge() are the loop's, and call done(); the work is done
//   in threads of this object's.
// Owns: what is on its way, and its threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/edges.h"
#include "transport/rdma/queue_pair.h"

namespace mc::transport::rdma {

class Opener : public Watched {
 public:
  using Transition = std::function<Status(QueuePair&)>;
  using Done = std::function<void(QueuePair, Status)>;

  // threads 0: all is done by open() and run() themselves.
  Opener(std::uint32_t threads, Fd wakeup);
  ~Opener() override;

  void open(QueuePair pair, Transition transition, Done done);
  // Work with a device; then done.
  void run(const Device& device, std::function<void()> work, std::function<void()> done);
  // Until nothing of that device is on its way; before the device is closed.
  void finish(const Device& device);
  void on_edge(std::uint64_t now_ns) override;
  int fd() const { return wakeup_.get(); }

 private:
  struct Job {
    const Device* device;
    std::function<void()> work;
    std::function<void()> done;
  };
  void work();

  Fd wakeup_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::deque<Job> done_;
  std::vector<const Device*> running_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mc::transport::rdma
