// SPDX-License-Identifier: Apache-2.0
//
// A vector clock over the processes of one execution.
// Threads: a value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace mc::model {

inline constexpr unsigned kMaxProcesses = 64;

struct Clock {
  std::array<std::uint16_t, kMaxProcesses> steps{};
  void join(const Clock& other) {
    for (unsigned i = 0; i < kMaxProcesses; ++i) steps[i] = std::max(steps[i], other.steps[i]);
  }
};

}  // namespace mc::model
