// SPDX-License-Identifier: Apache-2.0
//
// The live objects of an earlier agent that the eviction policy does not know yet. To tell
//   the policy about millions of objects at once would stop the loop for a second.
// Threads: the agent's loop.
// Owns: the entry numbers in the order of the puts, and a bit per entry.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/pool/policy/policy.h"

namespace mc::agent {

class AdoptedObjects {
 public:
  // REQUIRES: sort() has not been called. sequence: of the entry's version.
  void add(std::uint32_t entry, std::uint64_t sequence);
  void sort();

  bool contains(std::uint32_t entry) const { return entry < waits_.size() && waits_[entry]; }
  // Returns false if the object is not here.
  bool take(std::uint32_t entry);
  // Returns the object of the earliest put, which stays; kNoEntry if no object is left.
  std::uint32_t oldest();
  std::uint64_t count() const { return count_; }
  std::uint64_t memory_bytes() const {
    return waits_.capacity() / 8 + order_.capacity() * sizeof(std::uint32_t);
  }

 private:
  struct Aged {
    std::uint64_t sequence;
    std::uint32_t entry;
  };
  std::vector<bool> waits_;  // by entry
  std::vector<Aged> unsorted_;
  std::vector<std::uint32_t> order_;  // the latest put first
  std::uint64_t count_ = 0;
};

}  // namespace mc::agent
