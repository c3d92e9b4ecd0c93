// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/server/durations.h"

namespace mc::agent {

// Counters of the Fetcher and of the Fetcher's parts. Each part increments its own section.
struct FetchCounters {
  std::uint64_t fetches = 0;
  std::uint64_t joined = 0;  // readers that joined a fetch under way
  // Locator
  std::uint64_t located = 0;        // keys that a master was asked for
  std::uint64_t location_hits = 0;  // reads from a cached location
  std::uint64_t holder_hits = 0;    // holders asked without a master, which named them before
  // HolderGuess
  std::uint64_t guesses = 0, right_guesses = 0;
  // HolderQuestions
  std::uint64_t asked = 0;
  // ObjectReader
  std::uint64_t read_objects = 0, read_bytes = 0, corrupt = 0;
  std::uint64_t came_along = 0;  // objects whose bytes came with the holder's answer
  // CopyKeeper
  std::uint64_t kept = 0, held_for_others = 0;
  // Durations of the stages of a get, and of the whole: only of stages that ended with success.
  DurationCounts locate, ask, read, whole;
  // Results
  std::uint64_t served_unpublished = 0;
  std::uint64_t delivered = 0;  // to readers
  std::uint64_t next_holders = 0;
  // Misses by reason
  std::uint64_t nobody = 0, recovering = 0, master_away = 0, holders_failed = 0, late = 0,
                no_room = 0, incomplete = 0;
};

}  // namespace mc::agent
