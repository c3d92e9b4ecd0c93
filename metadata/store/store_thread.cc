// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/store_thread.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "libmc/base/clock.h"
#include "libmc/base/mutex.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kLongestWaitNs = 3'600'000'000'000;

class OwnThread final : public StoreThread {
 public:
  explicit OwnThread(Step step) : step_(std::move(step)), thread_([this] { run(); }) {}
  ~OwnThread() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void wake() override {
    {
      const MutexLock lock(mutex_);
      woken_ = true;
    }
    changed_.notify_all();
  }

 private:
  void run() {
    for (;;) {
      const std::uint64_t next_ns = step_();
      const std::uint64_t now = now_ns();
      const std::uint64_t wait_ns = next_ns > now ? std::min(next_ns - now, kLongestWaitNs) : 0;
      const MutexLock lock(mutex_);
      changed_.wait_for(mutex_, std::chrono::nanoseconds(wait_ns),
                        [this]() MC_REQUIRES(mutex_) { return stopping_ || woken_; });
      woken_ = false;
      if (stopping_) return;
    }
  }

  const Step step_;
  Mutex mutex_;
  Condition changed_;
  bool stopping_ MC_GUARDED_BY(mutex_) = false;
  bool woken_ MC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<StoreThread> start_store_thread(StoreThread::Step step) {
  return std::make_unique<OwnThread>(std::move(step));
}

}  // namespace mc::metadata
