// SPDX-License-Identifier: Apache-2.0
//
// The last lines of a program's log, for a reader who has no access to the log.
// Threads: any.
// Owns: at most kMost lines, 1 MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libmc/base/mutex.h"

namespace mc::log {

class RecentEvents {
 public:
  static constexpr std::size_t kMost = 1024;
  static constexpr std::size_t kMostLineBytes = 1024;

  struct Event {
    std::uint64_t number = 0;   // counts from 1
    std::uint64_t wall_ms = 0;  // since 1970
    std::string level;          // "info", "warning", "error"
    std::string line;           // cut to kMostLineBytes
  };

  // The oldest of kMost lines gives way.
  void add(std::uint64_t wall_ms, std::string_view level, std::string_view line);
  // Up to `most` events with numbers above `after`, the oldest first.
  std::vector<Event> after(std::uint64_t after, std::size_t most) const;
  // The number of the latest event; 0: none yet.
  std::uint64_t latest() const;

 private:
  mutable Mutex mutex_;
  std::deque<Event> events_ MC_GUARDED_BY(mutex_);
  std::uint64_t latest_ MC_GUARDED_BY(mutex_) = 0;
};

// The pairs of a line: event=ready pid=7 cause="two words". Words that are not pairs are left out.
std::vector<std::pair<std::string, std::string>> pairs_of(std::string_view line);

}  // namespace mc::log
