// SPDX-License-Identifier: Apache-2.0
//
// What it is: a lock that one thread, its owner, takes all the time and others nearly never. The
//   owner pays two plain stores and a load: a locked instruction would wait until all that it has
//   just written, the bytes of an object among it, has left for memory.
//   Owner: in_use = 1, light fence, read wanted.  Visitor: wanted = 1, heavy fence, read in_use.
//   Whoever comes second sees the other's store.
// Threads: try_lock() and unlock() by the owner; the rest by visitors, one at a time. Who the owner
// is
//   may change under a lock that orders the two.
#pragma once

#include "shm/atomic.h"

namespace mc::client {

class OwnerLock {
 public:
  // False: a visitor is there, or comes; try again later.
  bool try_lock() {
    in_use_.store_relaxed(1);
    shm::light_fence();
    if (wanted_.load_acquire() == 0) return true;
    unlock();
    return false;
  }
  void unlock() { in_use_.store_release(0); }

  // Keeps the owner out. It may still be inside: the visit begins when owner_is_out().
  void want() {
    wanted_.store_relaxed(1);
    shm::heavy_fence();
  }
  bool owner_is_out() const { return in_use_.load_acquire() == 0; }
  void end_visit() { wanted_.store_release(0); }

 private:
  shm::Word32 in_use_;
  shm::Word32 wanted_;
};

}  // namespace mc::client
