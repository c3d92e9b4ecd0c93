// SPDX-License-Identifier: Apache-2.0
//
// The order of operations that wait for the same rails.
//
//     waiting   foreground ██████   prefetch ███   migration ████████
//     turns     32 bytes            4              1                    to each waiting class
//
//   A waiting class gets its part of the bytes whatever the other classes want, so no class
//   starves. If only one class waits, the class gets all. Rails also give the lower classes smaller
//   windows while a higher class sends, so that a foreground read does not find a rail full of less
//   urgent slices.
// Threads: a value of the owner. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace mc::transport {

enum class Priority : std::uint8_t {
  kForeground = 0,  // a caller waits: a get, a peer's question
  kPrefetch = 1,    // a caller will want the bytes
  kMigration = 2,   // replicas, drains, repairs
};
inline constexpr std::size_t kPriorityCount = 3;

class Turns {
 public:
  // The class that goes next. waiting: bit 1 << priority of each waiting class.
  std::optional<Priority> next(std::uint32_t waiting) const {
    // has_single_bit() is a library call where the compiler may not assume a popcount instruction.
    if (waiting != 0 && (waiting & (waiting - 1)) == 0) {
      return static_cast<Priority>(std::countr_zero(waiting));
    }
    std::optional<Priority> first;
    for (std::size_t i = 0; i < kPriorityCount; ++i) {
      if ((waiting & (1u << i)) == 0) continue;
      if (!first || at_[i] < at_[static_cast<std::size_t>(*first)]) {
        first = static_cast<Priority>(i);
      }
    }
    return first;
  }
  // The class began to wait. Turns that the class did not use before are not owed later.
  void arrived(Priority priority) {
    double& at = at_[static_cast<std::size_t>(priority)];
    at = std::max(at, now_);
  }
  void took(Priority priority, std::uint64_t bytes) {
    const auto i = static_cast<std::size_t>(priority);
    now_ = std::max(now_, at_[i]);
    at_[i] += static_cast<double>(bytes) / kWeights[i];
  }

 private:
  static constexpr std::array<double, kPriorityCount> kWeights = {32, 4, 1};
  std::array<double, kPriorityCount> at_{};
  double now_ = 0;
};

}  // namespace mc::transport
