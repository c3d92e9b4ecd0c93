// SPDX-License-Identifier: Apache-2.0
//
// The clocks that code on the simulator's thread reads. While a Clock exists,
//   clock_gettime() on this thread returns simulated time to every caller: now_ns(), std::chrono
//   and Boost.Asio's timers. Other threads and other clocks read real time.
// Threads: One Clock a thread.
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

  // Sets the steady time, and the wall clock's offset of the host that runs now.
  void set(std::uint64_t now_ns, std::int64_t wall_offset_ns = 0);
};

}  // namespace mc::sim
