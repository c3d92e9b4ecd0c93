// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/opener.h"

#include <algorithm>

namespace mc::transport::rdma {

Opener::Opener(std::uint32_t threads, Fd wakeup) : wakeup_(std::move(wakeup)) {
  for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Opener::~Opener() {
  {
    const std::scoped_lock lock(lock_);
    stops_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Opener::open(QueuePair pair, Transition transition, Done done) {
  Job job{std::move(pair), std::move(transition), std::move(done), {}};
  if (threads_.empty()) {
    job.status = job.transition(job.pair);
    job.done(std::move(job.pair), std::move(job.status));
    return;
  }
  {
    const std::scoped_lock lock(lock_);
    waiting_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Opener::work() {
  std::unique_lock lock(lock_);
  for (;;) {
    changed_.wait(lock, [this] { return stops_ || !waiting_.empty(); });
    if (stops_) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    const Device* device = &job.pair.device();
    running_.push_back(device);
    lock.unlock();
    job.status = job.transition(job.pair);
    lock.lock();
    running_.erase(std::ranges::find(running_, device));
    done_.push_back(std::move(job));
    signal_eventfd(wakeup_.get());
    changed_.notify_all();
  }
}

void Opener::finish(const Device& device) {
  {
    std::unique_lock lock(lock_);
    changed_.wait(lock, [&] {
      return std::ranges::find(running_, &device) == running_.end() &&
             std::ranges::none_of(waiting_,
                                  [&](const Job& job) { return &job.pair.device() == &device; });
    });
  }
  on_edge(0);
}

void Opener::on_edge(std::uint64_t) {
  drain_eventfd(wakeup_.get());
  std::deque<Job> jobs;
  {
    const std::scoped_lock lock(lock_);
    jobs.swap(done_);
  }
  for (Job& job : jobs) job.done(std::move(job.pair), std::move(job.status));
}

}  // namespace mc::transport::rdma
