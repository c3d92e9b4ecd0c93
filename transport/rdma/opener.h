// SPDX-License-Identifier: Apache-2.0
//
// What it is: threads that take queue pairs to "ready to receive". The kernel looks the way up for
//   that: where a neighbour does not answer, it waits a second for it, which the loop cannot.
//
//     loop: open(pair, transition, done) ─► thread: transition ─► loop: done(pair, status)
//
// Threads: open(), finish() and on_edge() are the loop's, and call done(); transitions run in
//   threads of this object's.
// Owns: pairs on their way, and its threads.
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

  // threads 0: transitions are made by open() itself.
  Opener(std::uint32_t threads, Fd wakeup);
  ~Opener() override;

  void open(QueuePair pair, Transition transition, Done done);
  // Until no pair of that device is on its way; before the device is closed.
  void finish(const Device& device);
  void on_edge(std::uint64_t now_ns) override;
  int fd() const { return wakeup_.get(); }

 private:
  struct Job {
    QueuePair pair;
    Transition transition;
    Done done;
    Status status;
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
