// SPDX-License-Identifier: Apache-2.0
//
// What it is: which holders have been ordered to drop what, and have not all confirmed it. The
//   directory has forgotten them already; whoever removes or replaces the same key once more must
//   wait for them too, or it would be read after its removal was complete.
// Threads: the master's loop. Owns: a copy of what is ordered, as long as that is open.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "metadata/directory/directory_types.h"

namespace mc::metadata {

class OpenDrops {
 public:
  [[nodiscard]] bool empty() const { return open_.empty(); }
  void begin(const std::vector<Holding>& drops) {
    for (const Holding& drop : drops) open_.emplace(drop.hash, drop);
  }
  // What began together ends together.
  void end(const std::vector<Holding>& drops) {
    for (const Holding& drop : drops) {
      auto [at, last] = open_.equal_range(drop.hash);
      while (at != last && !(at->second == drop)) ++at;
      if (at != last) open_.erase(at);
    }
  }
  // Appends what is open of a key, up to that version.
  void add_to(std::vector<Holding>& drops, KeyHash hash, std::uint64_t up_to_version) const {
    const auto [first, last] = open_.equal_range(hash);
    for (auto at = first; at != last; ++at) {
      if (at->second.version <= up_to_version) drops.push_back(at->second);
    }
  }

 private:
  std::multimap<KeyHash, Holding> open_;
};

}  // namespace mc::metadata
