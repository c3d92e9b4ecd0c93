// SPDX-License-Identifier: Apache-2.0
//
// The rule that rejects a former leader. The cluster store gives each leader a higher
//   epoch. A receiver of orders keeps the highest epoch that it has seen.
// Threads: a value; its owner's.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mc::metadata {

class EpochFence {
 public:
  EpochFence() = default;
  // An epoch known from before, so that a restart does not lower the limit.
  explicit EpochFence(std::uint64_t highest) : highest_(highest) {}

  // Whether an order of this epoch may be carried out. 0 is no epoch.
  [[nodiscard]] bool accept(std::uint64_t epoch) {
    if (epoch == 0 || epoch < highest_) return false;
    highest_ = epoch;
    return true;
  }
  [[nodiscard]] std::uint64_t highest() const { return highest_; }

 private:
  std::uint64_t highest_ = 0;
};

}  // namespace mc::metadata
