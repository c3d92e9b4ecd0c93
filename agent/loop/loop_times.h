// SPDX-License-Identifier: Apache-2.0
//
// How long the loop was busy without a look at its other work, by cause.
// Threads: the agent's loop.
// Owns: the counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "agent/server/durations.h"

namespace mc::agent {

struct LoopTimes {
  enum class Cause : std::uint8_t {
    kRequests,  // up to 16 rounds with requests of clients
    kPeers,     // up to 16 rounds with messages of peers and masters alone
    kTick,      // the work of each 100 ms, for example the end of pins; and a step of a shrink
    kEvents,    // handlers of descriptors
    kTier,      // a step of the log of each disk
  };
  static constexpr std::array<const char*, 5> kNames = {"requests", "peers", "tick", "events",
                                                        "tier"};

  std::array<DurationCounts, kNames.size()> durations{};
  std::array<std::uint64_t, kNames.size()> longest_ns{};

  void add(Cause cause, std::uint64_t ns) {
    const auto of = static_cast<std::size_t>(cause);
    durations[of].add(ns);
    longest_ns[of] = std::max(longest_ns[of], ns);
  }
};

}  // namespace mc::agent
