// SPDX-License-Identifier: Apache-2.0
//
// The way in which a loop waits for the transport: busy for a bounded time after the
//   last work, then asleep. While work comes at short intervals, the loop pays for no wake-up. An
//   idle loop costs nothing.
// Threads: the loop's.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "libmc/base/clock.h"

namespace mc::transport {

class Waiter {
 public:
  explicit Waiter(std::uint64_t spin_ns) : spin_ns_(spin_ns) {}

  // Call after each poll(). worked: the poll() did something. Returns at once while another look is
  // worth the time. Otherwise sleeps until fd is readable or until_ns has come (0: does not sleep).
  void wait(int fd, std::uint64_t now_ns, bool worked, std::uint64_t until_ns) {
    if (worked) last_work_ns_ = now_ns;
    if (until_ns <= now_ns) return;
    if (now_ns < last_work_ns_ + spin_ns_) {
      cpu_relax();
      return;
    }
    constexpr std::uint64_t kMaxSleepNs = 1'000'000'000;
    const std::uint64_t sleep_ns = std::min(until_ns - now_ns, kMaxSleepNs);
    const timespec timeout{static_cast<time_t>(sleep_ns / 1'000'000'000),
                           static_cast<long>(sleep_ns % 1'000'000'000)};
    pollfd what{fd, POLLIN, 0};
    static_cast<void>(::ppoll(&what, 1, &timeout, nullptr));
  }

 private:
  const std::uint64_t spin_ns_;
  std::uint64_t last_work_ns_ = 0;
};

}  // namespace mc::transport
