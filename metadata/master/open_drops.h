// SPDX-License-Identifier: Apache-2.0
//
// The ordered drops that some holders have not confirmed. The directory has already
//   forgotten these holders. A later removal or upsert of the same key must wait for the same
//   drops, or readers could still read the object after its removal was complete.
// Threads: the master's loop.
// Owns: a copy of each order until the end.
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
  // REQUIRES: the same drops as in one earlier begin().
  void end(const std::vector<Holding>& drops) {
    for (const Holding& drop : drops) {
      auto [at, last] = open_.equal_range(drop.hash);
      while (at != last && !(at->second == drop)) ++at;
      if (at != last) open_.erase(at);
    }
  }
  // Appends the key's open drops, up to that version.
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
