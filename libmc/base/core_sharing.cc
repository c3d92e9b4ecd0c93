// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/core_sharing.h"

#include <sched.h>

#include <algorithm>

#include "libmc/base/clock.h"

namespace mc {

namespace {
// Longer than either side of a ring runs before it waits. A time slice is 0.7 to 4 ms.
constexpr std::uint64_t kLongNs = 300000;
constexpr std::uint64_t kFirstPauseNs = 20000000;
constexpr std::uint64_t kLongestPauseNs = 1000000000;
constexpr unsigned kManyMeetings = 64;
// A move costs some ten microseconds.
constexpr std::uint64_t kLeavePauseNs = 20000000;
}  // namespace

std::uint32_t CoreSharing::here() { return static_cast<std::uint32_t>(::sched_getcpu() + 1); }

void CoreSharing::leave_if_met_often(std::uint64_t now_ns) {
  if (++meetings_ < kManyMeetings || now_ns < next_leave_ns_) return;
  meetings_ = 0;
  next_leave_ns_ = now_ns + kLeavePauseNs;
  cpu_set_t allowed;
  const int processor = ::sched_getcpu();
  if (processor < 0 || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(processor), &others);
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) return;
  ::sched_setaffinity(0, sizeof allowed, &allowed);
}

bool CoreSharing::yield() {
  const std::uint64_t now = now_ns();
  if (now < crowded_until_ns_) return false;
  ::sched_yield();
  const std::uint64_t after = now_ns();
  if (after - now < kLongNs) {
    pause_ns_ = 0;
    return true;
  }
  pause_ns_ = std::clamp(2 * pause_ns_, kFirstPauseNs, kLongestPauseNs);
  crowded_until_ns_ = after + pause_ns_;
  return false;
}

}  // namespace mc
