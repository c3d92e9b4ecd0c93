// SPDX-License-Identifier: Apache-2.0
//
// Counts of durations, for histograms.
// Threads: the agent's loop.
// Owns: the counts.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace Json {
class Value;
}

namespace mc::agent {

// Bucket i has the durations below 2^i microseconds that no earlier bucket has. The last bucket has
// all longer ones.
struct DurationCounts {
  static constexpr std::size_t kBuckets = 26;  // up to 2^24 us = 17 s
  std::array<std::uint64_t, kBuckets> counts{};
  std::uint64_t sum_ns = 0;

  void add(std::uint64_t ns) {
    ++counts[std::min<std::size_t>(std::bit_width(ns / 1000), kBuckets - 1)];
    sum_ns += ns;
  }
};

// {"counts": [...], "sum_ns": N}
Json::Value durations_json(const DurationCounts& durations);

}  // namespace mc::agent
