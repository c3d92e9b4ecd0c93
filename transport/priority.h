// SPDX-License-Identifier: Apache-2.0
//
// What it is: whose bytes go first when several wait for the same rails.
//
//     waiting   foreground ██████   prefetch ███   migration ████████
//     turns     32 bytes            4              1                    to each of those that wait
//
//   A class that waits gets its share whatever the others want, so none starves; what nobody else
//   wants is its own. Rails give the lower classes smaller windows besides, so that a foreground
//   read never finds a rail full of what is not urgent.
// Threads: a value of its owner. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace mc::transport {

enum class Priority : std::uint8_t {
  kForeground = 0,  // somebody waits for it: a get, a peer's question
  kPrefetch = 1,    // somebody will want it
  kMigration = 2,   // replicas, drains, repairs
};
inline constexpr std::size_t kPriorityCount = 3;

class Turns {
 public:
  // Which of those that wait goes next; bit 1 << priority: it waits. None: nobody waits.
  std::optional<Priority> next(std::uint32_t waiting) const {
    // Not has_single_bit(), which is a call where no processor that counts bits is assumed.
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
  // It began to wait: what it left unused before is not owed to it.
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
