// SPDX-License-Identifier: Apache-2.0
//
// Empties the tails of a shrinking pool in short steps: objects move to the front, or are
//   evicted if there is no room. The shrink waits for reservations, for objects with readers, for hard
//   pins without room elsewhere, and for the disks of the tier.
// Threads: the agent's loop.
// Owns: nothing.
// Trusts: its caller.
#pragma once

#include <cstdint>

#include "agent/pool/evictor.h"
#include "agent/pool/mover.h"

namespace mc::agent {

class Shrinker {
 public:
  Shrinker(ObjectIndex& index, ExtentPool& pool, Limbo& limbo, Evictor& evictor, Mover& mover)
      : index_(index), pool_(pool), limbo_(limbo), evictor_(evictor), mover_(mover) {}

  // Changes the pool's size. A smaller pool shrinks with the next steps.
  void resize(std::uint64_t pool_bytes);
  // Looks at 128 objects or moves 512 KiB, at most. Returns true if the next step can follow at once.
  // False: the shrink is over, or waits for readers, for a reservation, for disks, or for the system to take
  // pages back.
  bool step();
  bool active() const { return active_; }

 private:
  ObjectIndex& index_;
  ExtentPool& pool_;
  Limbo& limbo_;
  Evictor& evictor_;
  Mover& mover_;
  bool active_ = false;
};

}  // namespace mc::agent
