// SPDX-License-Identifier: Apache-2.0
//
// Makes room at one place for a large object among small objects. The policy's victims
//   lie anywhere: in a pool of small objects their holes are small, and a large object would empty
//   half of the pool before enough holes touch. The clearing therefore evicts only as many bytes as
//   the large object needs. Then a piece of the pool grows outwards from the largest free block,
//   and the neighbours of the piece move into the holes.
//
//     ▒ object   · hole          ├─ held ─┤
//     ▒▒▒·▒▒▒▒▒·▒▒▒▒·▒▒▒▒▒▒▒▒▒▒▒▒├────────┤▒▒▒▒▒▒·▒▒▒▒▒▒▒▒     the side with more holes first
//        ▲                                 │
//        └───────────── Mover::move ───────┘
//
//   Obstacles end a piece: reservations, objects with readers, and large objects with a hard pin.
//   Up to MC_MAX_EXTENTS pieces make an object. Each step is bounded, with at most a single step in
//   a turn of the loop. The held bytes belong to no entry, so a crash leaves the bytes free.
// Threads: the agent's loop.
// Owns: the held extents.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/pool/evictor.h"
#include "agent/pool/mover.h"

namespace mc::agent {

class Clearing {
 public:
  Clearing(ObjectIndex& index, ExtentPool& pool, Limbo& limbo, Evictor& evictor, Mover& mover,
           StoreCounters& counters)
      : index_(index),
        pool_(pool),
        limbo_(limbo),
        evictor_(evictor),
        mover_(mover),
        counters_(counters) {}

  // Begins or continues to clear a place for this many bytes. Returns true with the extents of a
  // cleared place. Only a single place is cleared at a time; other sizes wait.
  bool clear(std::uint64_t bytes, PoolExtents& extents);
  // Frees the held extents.
  void give_up() { give_up(false); }
  // A later turn of the loop: the next request may do a further step.
  void begin_turn(std::uint64_t turn) { turn_ = turn; }
  // Gives up a place that no request has asked for since the last tick.
  void tick();

  bool active() const { return place_.wanted_bytes != 0; }
  // True if the last step made progress.
  bool progressing() const { return active() && place_.stalled_steps == 0; }
  bool is_for(std::uint64_t bytes) const;
  std::uint64_t held_bytes() const { return place_.held.bytes(); }

 private:
  using Side = ExtentAllocator::Side;
  // Blocks beside the piece, up to the first obstacle.
  struct Outlook {
    std::uint64_t bytes = 0;
    std::uint64_t used_bytes = 0;
    // Above 1 if no block can leave.
    double used_share() const {
      return bytes == 0 ? 2.0 : static_cast<double>(used_bytes) / static_cast<double>(bytes);
    }
  };
  struct ClearedMemory {
    std::uint64_t wanted_bytes = 0;   // whole granules; 0: none
    PoolExtents held;                 // the last piece grows
    std::vector<std::uint64_t> pins;  // of readers, at the start of the piece; sorted
    unsigned stalled_steps = 0;       // steps in a row without progress
    unsigned hops = 0;                // obstacles left behind
    bool asked = false;               // since the last tick
  };

  void step();
  void give_up(bool until_tick);
  void free_missing(std::uint64_t missing_bytes);
  bool begin_piece();
  bool absorb_beside();
  void empty_beside();
  void hop_over_obstacle();
  Outlook look_beside(const PoolExtent& piece, Side side) const;
  bool can_leave(std::uint32_t entry) const;
  bool make_leave(std::uint32_t entry);
  PoolExtent& piece() { return place_.held.at[place_.held.count - 1]; }
  std::uint64_t missing_bytes() const { return place_.wanted_bytes - place_.held.bytes(); }

  ObjectIndex& index_;
  ExtentPool& pool_;
  Limbo& limbo_;
  Evictor& evictor_;
  Mover& mover_;
  StoreCounters& counters_;
  ClearedMemory place_;
  bool useless_ = false;  // until the next tick
  std::uint64_t turn_ = 1;
  std::uint64_t step_turn_ = 0;  // turn of the last step
};

}  // namespace mc::agent
