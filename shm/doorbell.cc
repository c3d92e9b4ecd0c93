// SPDX-License-Identifier: Apache-2.0
#include "shm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace mc::shm {

[[gnu::hot]] void wait_for_agent(ChannelHeader& header, std::uint64_t timeout_ns) {
  const timespec timeout{static_cast<time_t>(timeout_ns / 1000000000u),
                         static_cast<long>(timeout_ns % 1000000000u)};
  // Not FUTEX_PRIVATE: the waking agent is another process.
  ::syscall(SYS_futex, header.client_asleep.address(), FUTEX_WAIT, kClientInFutex, &timeout,
            nullptr, 0);
}

[[gnu::hot]] bool wake_client(ChannelHeader& header) {
  const std::uint32_t state = header.client_asleep.load_relaxed();
  if (state == kClientAwake) return false;
  header.client_asleep.store_release(kClientAwake);
  if (state == kClientInPoll) return true;
  ::syscall(SYS_futex, header.client_asleep.address(), FUTEX_WAKE, 1, nullptr, nullptr, 0);
  return false;
}

}  // namespace mc::shm
