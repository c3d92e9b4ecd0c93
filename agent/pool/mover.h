// SPDX-License-Identifier: Apache-2.0
//
// Copies an object to new extents under a new entry, and replaces the old entry in a
//   single store. The old bytes stay with their readers. To the policy the moved object is a new
//   object.
// Threads: the agent's loop.
// Owns: nothing.
// Trusts: its caller.
#pragma once

#include <cstdint>

#include "agent/pool/live_objects.h"

namespace mc::agent {

class Mover {
 public:
  Mover(ObjectIndex& index, ExtentPool& pool, EntryExtents& extents, LiveObjects& live)
      : index_(index), pool_(pool), extents_(extents), live_(live) {}

  // Returns false if there is no room. REQUIRES: the entry is live.
  bool move(std::uint32_t entry);

 private:
  void copy_bytes(const PoolExtents& from, const PoolExtents& to, std::uint64_t length);

  ObjectIndex& index_;
  ExtentPool& pool_;
  EntryExtents& extents_;
  LiveObjects& live_;
};

}  // namespace mc::agent
