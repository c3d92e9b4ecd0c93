// SPDX-License-Identifier: Apache-2.0
//
// The way in which a spinning thread shares its core. If the other threads of the core
//   return it soon (the other side of a ring, on a host with few cores), a yield costs a
//   microsecond. If the other threads compute, a yield costs a whole time slice, several
//   milliseconds. A sleeping thread, in contrast, gets the core as soon as it is woken. So this
//   class yields and measures the cost. After an expensive yield the thread shall sleep. From time
//   to time the class tries a yield again, with growing pauses.
// Threads: a single thread at a time.
#pragma once

#include <cstdint>

namespace mc {

class CoreSharing {
 public:
  // Yields the core. False: other threads keep the core for long; sleep until woken instead.
  bool yield();
  // Call when the other side of the ring was found on this thread's processor and serves other threads
  // too. Those wait while this thread computes there, and the kernel leaves both sides where they
  // are, because each of them often sleeps. After 64 calls, and at most every 20 ms, this thread moves
  // to another processor that its affinity allows. The affinity is the same afterwards.
  void leave_if_met_often(std::uint64_t now_ns);
  // The processor of this thread, plus 1.
  static std::uint32_t here();

 private:
  std::uint64_t crowded_until_ns_ = 0;
  std::uint64_t pause_ns_ = 0;
  unsigned meetings_ = 0;
  std::uint64_t next_leave_ns_ = 0;
};

}  // namespace mc
