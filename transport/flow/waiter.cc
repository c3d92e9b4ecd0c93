// SPDX-License-Identifier: Apache-2.0
#include "transport/flow/waiter.h"

#include <poll.h>

#include <algorithm>
#include <ctime>

#include "libmc/base/clock.h"

namespace mc::transport {

void Waiter::wait(int fd, std::uint64_t now_ns, bool worked, std::uint64_t until_ns) {
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

}  // namespace mc::transport
