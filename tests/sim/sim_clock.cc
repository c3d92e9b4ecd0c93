// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_clock.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr std::uint64_t kWallStartNs = 1'800'000'000'000'000'000;

struct Times {
  bool simulated = false;
  std::uint64_t steady_ns = 0;
  std::uint64_t wall_ns = 0;
};
thread_local Times times;

}  // namespace

namespace mc::sim {

// Do not start at the end time of an earlier world.
Clock::Clock() { times = {true, 0, kWallStartNs}; }
Clock::~Clock() { times.simulated = false; }

void Clock::set(std::uint64_t now_ns, std::int64_t wall_offset_ns) {
  times.steady_ns = now_ns;
  times.wall_ns = kWallStartNs + now_ns + static_cast<std::uint64_t>(wall_offset_ns);
}

}  // namespace mc::sim

// A program's own definition takes precedence over the library's, in loaded libraries too.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  const bool wall = clock == CLOCK_REALTIME;
  if (!times.simulated || (!wall && clock != CLOCK_MONOTONIC)) {
    return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  }
  const std::uint64_t ns = wall ? times.wall_ns : times.steady_ns;
  time->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  time->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}

// Fails on purpose: Asio then checks timers at each poll.
extern "C" __attribute__((visibility("default"))) int timerfd_create(int clock,
                                                                     int flags) noexcept {
  if (!times.simulated) return static_cast<int>(syscall(SYS_timerfd_create, clock, flags));
  errno = EMFILE;
  return -1;
}
