// SPDX-License-Identifier: Apache-2.0
#include "transport/flow/workers.h"

#include <algorithm>
#include <utility>

namespace mc::transport {

Workers::Workers(std::uint32_t threads, Fd wakeup) : wakeup_(std::move(wakeup)) {
  for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Workers::~Workers() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::run(const void* device, std::function<void()> work, std::function<void()> done) {
  if (threads_.empty()) {
    work();
    done();
    return;
  }
  {
    const MutexLock lock(mutex_);
    waiting_.push_back({device, std::move(work), std::move(done)});
  }
  changed_.notify_all();
}

void Workers::work() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stops_ && waiting_.empty()) changed_.wait(mutex_);
    if (stops_) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    running_.push_back(job.device);
    lock.unlock();
    job.work();
    lock.lock();
    running_.erase(std::ranges::find(running_, job.device));
    done_.push_back(std::move(job));
    signal_eventfd(wakeup_.get());
    changed_.notify_all();
  }
}

void Workers::finish(const void* device) {
  const auto busy = [&]() MC_REQUIRES(mutex_) {
    return std::ranges::find(running_, device) != running_.end() ||
           std::ranges::find(waiting_, device, &Job::device) != waiting_.end();
  };
  // A finished job may start another job.
  for (bool again = true; again;) {
    {
      const MutexLock lock(mutex_);
      while (busy()) changed_.wait(mutex_);
    }
    on_edge(0);
    const MutexLock lock(mutex_);
    again = busy() || std::ranges::find(done_, device, &Job::device) != done_.end();
  }
}

void Workers::on_edge(std::uint64_t) {
  drain_eventfd(wakeup_.get());
  std::deque<Job> jobs;
  {
    const MutexLock lock(mutex_);
    jobs.swap(done_);
  }
  for (const Job& job : jobs) job.done();
}

}  // namespace mc::transport
