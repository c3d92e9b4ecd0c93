// SPDX-License-Identifier: Apache-2.0
//
// What it is: the clocks that code on the simulator's thread reads. While a Clock is there,
//   clock_gettime() on this thread answers with simulated time, whoever calls it: now_ns(),
//   std::chrono and Boost.Asio's timers. Other threads and times are the real ones.
// Threads: one Clock a thread.
#pragma once

#include <cstdint>

#include "libmc/base/clock.h"

namespace mc::sim {

class Clock {
 public:
  Clock();
  ~Clock();
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  // Steady time, and how far the wall clock of whoever runs now is off.
  void set(std::uint64_t now_ns, std::int64_t wall_offset_ns = 0);
};

}  // namespace mc::sim
