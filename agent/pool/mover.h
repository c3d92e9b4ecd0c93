// SPDX-License-Identifier: Apache-2.0
//
// Copies an object to new extents under a new entry, and replaces the old entry in a
//   single store. The old bytes stay with their readers. To the policy the moved object is a new
//   object. A large object moves in several steps: the bytes of a live object never change.
// Threads: the agent's loop.
// Owns: the extents of a move that is under way. They belong to no entry, so a crash leaves them free.
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
  // The same in steps: copies at most budget_bytes, and lowers the budget. Only one object moves in
  // steps; another entry gives up the move under way. REQUIRES: the entry is live.
  enum class Step { kMoved, kMore, kNoRoom };
  Step move_some(std::uint32_t entry, std::uint64_t& budget_bytes);
  // The object whose move is under way. Gives the move up if the object has left.
  OptionalId under_way();
  // Frees the extents of the move under way, if there is one.
  void give_up();
  std::uint64_t held_bytes() const { return under_way_.to.bytes(); }

 private:
  struct UnderWay {
    std::uint32_t entry = kNoEntry;
    std::uint64_t version = 0;
    PoolExtents to;
    std::uint64_t done_bytes = 0;
  };
  bool publish(std::uint32_t old_entry, const PoolExtents& to);
  void free(const PoolExtents& extents);
  void copy_bytes(const PoolExtents& from, const PoolExtents& to, std::uint64_t begin,
                  std::uint64_t end);

  ObjectIndex& index_;
  ExtentPool& pool_;
  EntryExtents& extents_;
  LiveObjects& live_;
  UnderWay under_way_;
};

}  // namespace mc::agent
