// SPDX-License-Identifier: Apache-2.0
//
// What it is: how a thread that spins for another's answer lets others have its core. Where those
//   give it back soon (the other side of a ring, on a host with few cores) a yield costs a
//   microsecond. Where they compute, it costs their whole time slice, milliseconds each time; a
//   thread that sleeps instead is given the core as soon as it is woken. So: yield, see what it
//   cost, and when that was much, sleep from then on; try again now and then, more seldom each
//   time.
// Threads: one at a time.
#pragma once

#include <cstdint>

namespace mc {

class CoreSharing {
 public:
  // Lets others run. False: they keep the core for long; sleep until woken instead.
  bool yield();
  // The processor this thread runs on, plus one.
  static std::uint32_t here();

 private:
  std::uint64_t crowded_until_ns_ = 0;
  std::uint64_t pause_ns_ = 0;
};

}  // namespace mc
