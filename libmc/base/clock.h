// SPDX-License-Identifier: Apache-2.0
//
// Steady time, and the wall clock. Only versions of objects (agent/cluster/namespace) and texts for people use the wall
//   clock.
// Threads: any.
#pragma once

#include <cstdint>
#include <ctime>

namespace mc {

inline constexpr std::uint64_t kMs = 1'000'000;  // in nanoseconds

// Nanoseconds since boot, the same for every process of the host (CLOCK_MONOTONIC).
inline std::uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000u + static_cast<std::uint64_t>(t.tv_nsec);
}

// Nanoseconds since 1970 (CLOCK_REALTIME). The clocks of two hosts differ, and each may step.
inline std::uint64_t wall_ns() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000u + static_cast<std::uint64_t>(t.tv_nsec);
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mc
