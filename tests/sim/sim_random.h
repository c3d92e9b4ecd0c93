// SPDX-License-Identifier: Apache-2.0
//
// The only source of randomness of a run: SplitMix64 (Vigna), from the seed.
// Threads: A value, for the owner's thread.
#pragma once

#include <cstdint>

namespace mc::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform, both ends included.
  std::uint64_t between(std::uint64_t from, std::uint64_t to) {
    return from + next() % (to - from + 1);
  }
  bool chance(double share) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < share; }

 private:
  std::uint64_t state_;
};

}  // namespace mc::sim
