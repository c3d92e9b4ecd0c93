// SPDX-License-Identifier: Apache-2.0
//
// A lock that one thread, the owner, takes very often and other threads (visitors)
//   almost never. The owner pays a single fence; a mutex costs two locked instructions.
//   Owner: in_use = 1, full fence, read wanted.  Visitor: wanted = 1, full fence, read in_use.
//   The second of the two sees the store of the first.
// Threads: the owner calls try_lock() and unlock(). Visitors, one at a time, call the rest. Another
//   thread may become the owner under a lock that orders the two.
#pragma once

#include "shm/atomic.h"

namespace mc::client {

class OwnerLock {
 public:
  // False: a visitor is present or comes; try again later.
  bool try_lock() {
    in_use_.store_relaxed(1);
    shm::full_fence();
    if (wanted_.load_acquire() == 0) return true;
    unlock();
    return false;
  }
  void unlock() { in_use_.store_release(0); }

  // Keeps the owner out. The owner may still be inside; the visit begins when owner_is_out().
  void want() {
    wanted_.store_relaxed(1);
    shm::full_fence();
  }
  bool owner_is_out() const { return in_use_.load_acquire() == 0; }
  void end_visit() { wanted_.store_release(0); }

 private:
  shm::Word32 in_use_;
  shm::Word32 wanted_;
};

}  // namespace mc::client
