// SPDX-License-Identifier: Apache-2.0
//
// The thread of one watch. A descriptor that becomes readable at the stop ends all
//   waits early.
// Threads: the store's user makes and destroys the loop. The body runs in the loop's own thread.
// Owns: the thread and the descriptor.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "libmc/base/fd.h"
#include "metadata/store/cluster_store.h"

namespace mc::metadata {

class StopSignal {
 public:
  explicit StopSignal(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  bool stopped() const { return wait_readable(fd_, 0); }
  // True: stopped during the wait.
  bool wait_ms(std::uint64_t timeout_ms) const { return wait_readable(fd_, timeout_ms * 1000000); }

 private:
  int fd_;
};

class WatchLoop final : public Watch {
 public:
  // Runs body in a thread. body returns soon after the stop.
  static Result<std::unique_ptr<Watch>> start(std::function<void(const StopSignal&)> body);
  ~WatchLoop() override;

 private:
  explicit WatchLoop(Fd stop) : stop_(std::move(stop)) {}
  Fd stop_;
  std::thread thread_;
};

// Doubles from 20 to 500 ms between attempts. A success resets the pause.
class Backoff {
 public:
  std::uint64_t next_ms() {
    const std::uint64_t wait_ms = next_ms_;
    next_ms_ = next_ms_ * 2 < kLongestMs ? next_ms_ * 2 : kLongestMs;
    return wait_ms;
  }
  void reset() { next_ms_ = kShortestMs; }

 private:
  static constexpr std::uint64_t kShortestMs = 20;
  static constexpr std::uint64_t kLongestMs = 500;
  std::uint64_t next_ms_ = kShortestMs;
};

}  // namespace mc::metadata
