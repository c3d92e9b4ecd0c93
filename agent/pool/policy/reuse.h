// SPDX-License-Identifier: Apache-2.0
//
// The reuse that the pool has seen, and the resulting worth of keeping an object.
// Threads: the policy's thread.
// Owns: for each class and band of age, the number of objects that reached that age and the number
//   of objects used again at that age.
// Trusts: its caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "agent/pool/policy/ages.h"

namespace mc::agent {

class Reuse {
 public:
  static constexpr std::size_t kClasses = 8;

  void reached(std::size_t klass, std::size_t band, std::uint32_t count) {
    cells_[klass][band].reached += static_cast<float>(count);
  }
  void reused(std::size_t klass, std::size_t band) { cells_[klass][band].reused += 1; }
  // The object is no longer watched, and counts as seen for half of the band.
  void lost(std::size_t klass, std::size_t band) {
    float& count = cells_[klass][band].reached;
    count = count > 0.5F ? count - 0.5F : 0;
  }
  void halve();
  // The epoch has doubled in length: counts of an age now belong to half of that age.
  void shift_octave();

  // For each class and band, the uses per epoch that keeping an object of that age earns if the
  // object is kept for the best length of time (J. C. Gittins, "Bandit processes and dynamic
  // allocation indices", J. R. Stat. Soc. B 41(2), 1979). The worth gives the order in which
  // objects are worth keeping.
  using Worth = std::array<std::array<float, Ages::kBands>, kClasses>;
  void compute_worth(Worth& worth) const;

 private:
  struct Cell {
    float reached = 0;
    float reused = 0;
  };
  using Chances = std::array<float, Ages::kBands>;

  [[nodiscard]] Chances chances_of_all() const;

  std::array<std::array<Cell, Ages::kBands>, kClasses> cells_{};
};

}  // namespace mc::agent
