// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/store_thread.h"

#include <algorithm>
#include <chrono>

#include "libmc/base/clock.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kLongestWaitNs = 3'600'000'000'000;

}  // namespace

StoreThread::StoreThread(Step step) : step_(std::move(step)), thread_([this] { run(); }) {}

StoreThread::~StoreThread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StoreThread::wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void StoreThread::run() {
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

}  // namespace mc::metadata
