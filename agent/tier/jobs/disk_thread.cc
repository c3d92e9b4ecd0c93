// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/jobs/disk_thread.h"

#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::tier {

namespace {

constexpr int kNice = 10;
constexpr std::uint64_t kLongestPauseNs = 1'000'000'000;

}  // namespace

Result<std::unique_ptr<DiskThread>> DiskThread::start(std::unique_ptr<Disk> disk) {
  auto event = make_eventfd();
  if (!event) return fail(event.error());
  std::unique_ptr<DiskThread> started(new DiskThread(std::move(disk), std::move(*event)));
  if (!started->thread_.joinable()) {
    return fail(
        MC_NO_MEMORY,
        "cannot start a thread for a disk of the tier; raise TasksMax or the user's limit of "
        "processes");
  }
  return started;
}

DiskThread::DiskThread(std::unique_ptr<Disk> disk, Fd event)
    : worker_(std::move(disk)), event_(std::move(event)) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // start() tells.
  }
}

DiskThread::~DiskThread() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    worker_.disk().wake();
  }
  thread_.join();
}

void DiskThread::submit(Job job) {
  bool slept = false;
  {
    const MutexLock lock(mutex_);
    slept = std::exchange(sleeps_, false);
    submitted_.push_back(std::move(job));
  }
  if (slept) worker_.disk().wake();
}

void DiskThread::take_ended(std::vector<JobEnd>& ended) {
  drain_eventfd(event_.get());  // first: the signal of a later end stays
  const MutexLock lock(mutex_);
  std::move(ended_.begin(), ended_.end(), std::back_inserter(ended));
  ended_.clear();
}

// Returns false if the thread has to end.
bool DiskThread::take_submitted() {
  std::vector<Job> submitted;
  {
    const MutexLock lock(mutex_);
    sleeps_ = false;
    if (stop_) return false;
    submitted.swap(submitted_);
  }
  for (Job& job : submitted) worker_.submit(std::move(job));
  return true;
}

void DiskThread::give_ended() {
  std::vector<JobEnd> ended;
  worker_.take_ended(ended);
  if (ended.empty()) return;
  bool first = false;  // one signal serves all ends that come before the caller looks
  {
    const MutexLock lock(mutex_);
    first = ended_.empty();
    std::move(ended.begin(), ended.end(), std::back_inserter(ended_));
  }
  if (first) signal_eventfd(event_.get());
}

// Returns false if the thread has work. True: the next job or the destructor wakes the thread.
bool DiskThread::may_sleep(std::uint64_t now_ns) {
  if (worker_.next_work_ns() <= now_ns) return false;
  const MutexLock lock(mutex_);
  sleeps_ = !stop_ && submitted_.empty();
  return sleeps_;
}

void DiskThread::run() {
  setpriority(PRIO_PROCESS, 0, kNice);  // of this thread alone; a refusal costs nothing
  std::uint64_t now = now_ns();
  while (take_submitted()) {
    worker_.do_work(now);
    give_ended();
    now = now_ns();
    if (!may_sleep(now)) continue;
    worker_.disk().wait(std::min(worker_.next_work_ns() - now, kLongestPauseNs));
    now = now_ns();
  }
  worker_.close();
}

}  // namespace mc::tier
