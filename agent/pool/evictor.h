// SPDX-License-Identifier: Apache-2.0
//
// Executes the policy's evictions: until a size fits the capacity, in batches for a
//   full pool, and ahead of demand between requests. A group is evicted as a whole, since a part of
//   a group is useless.
// Threads: the agent's loop.
// Owns: the capacity and the count of recent reservations.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <string_view>

#include "agent/pool/departures.h"
#include "agent/pool/extents/extent_pool.h"
#include "agent/pool/live_objects.h"

namespace mc::agent {

class Evictor {
 public:
  static constexpr std::uint64_t kUnlimited = UINT64_MAX;
  // capacity_bytes: upper limit of live bytes; kUnlimited: no limit beside the pool.
  Evictor(ObjectIndex& index, ExtentPool& pool, LiveObjects& live, Limbo& limbo,
          Departures& departures, StoreCounters& counters, std::uint64_t capacity_bytes)
      : index_(index),
        pool_(pool),
        live_(live),
        limbo_(limbo),
        departures_(departures),
        counters_(counters),
        capacity_bytes_(capacity_bytes),
        limit_bytes_(capacity_bytes) {}

  // Null: evicted objects are lost.
  void set_demotion(Demotion* demotion) { demotion_ = demotion; }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  // A lower capacity evicts objects with the next calls of fit_capacity().
  void set_capacity(std::uint64_t bytes);
  // Evicts up to this many objects beyond the capacity, as fast as a demotion takes objects.
  void fit_capacity(std::uint64_t most);
  bool fits(std::uint64_t bytes) const { return live_.bytes() + bytes <= capacity_bytes_; }
  // Evicts until this many bytes more fit the capacity. Returns false if the bytes exceed the
  // capacity, or if only hard-pinned objects are left.
  bool make_capacity(std::uint64_t bytes);
  // Evicts until an object of this length under this key fits, which replaces the key's object.
  bool make_capacity_for(std::string_view key, std::uint64_t hash, std::uint64_t length);
  // Evicts until extents of this many bytes are gone, and at least a batch, since a single fence
  // serves the whole batch. A demotion may hold bytes of the first batch only, so that a put waits for no
  // disk. Returns false if no object can be evicted.
  bool evict_some(std::uint64_t bytes);
  // Whether a demotion may hold the bytes of the victims. kPaced: also more than the headroom, since nobody
  // waits for the bytes.
  enum class Bytes : std::uint8_t { kMayStay, kGoNow, kPaced };
  // False: the next victims of an eviction that nobody waits for would be lost.
  bool demotion_keeps_up() const { return demotion_ == nullptr || demotion_->keeps_up(); }
  // Evicts up to this many objects, 128 at most, and their groups. Returns the number of victims.
  std::uint64_t evict_batch(std::uint64_t most, EvictionReason reason = EvictionReason::kRoom,
                            Bytes bytes = Bytes::kMayStay);
  // Evicts this object and its group.
  void evict(std::uint32_t entry, EvictionReason reason, Bytes bytes = Bytes::kMayStay);
  // Called for every granted reservation.
  void note_reservation() { ++reservations_; }
  // Frees the entries without a pin, and evicts as many objects as came, so that a put finds room
  // without waiting for an eviction. In small steps: the next request may be there already.
  void keep_headroom(bool shrinking);
  // Evicts a few objects to a demotion that holds all their bytes: none is lost, and the room comes later.
  // Returns false if no demotion takes objects, or no object can be evicted.
  bool evict_held();
  // keep_headroom() keeps as many bytes free. A demotion may hold as much, so that a slow disk delays no put.
  std::uint64_t headroom_bytes() const;

 private:
  // Objects that a full pool evicts at once: a single fence and look at all pins serve the batch.
  static constexpr std::uint64_t kBatch = 128;
  void evict_forgotten(std::uint32_t victim, EvictionReason reason, Bytes bytes = Bytes::kMayStay);
  bool keeps_headroom() const;

  ObjectIndex& index_;
  ExtentPool& pool_;
  LiveObjects& live_;
  Limbo& limbo_;
  Departures& departures_;
  StoreCounters& counters_;
  Demotion* demotion_ = nullptr;
  std::uint64_t capacity_bytes_;
  // A put evicts the objects beyond the limit at once. The limit is the capacity. While a demotion takes the objects
  // beyond a lowered capacity, the limit falls with the live bytes.
  std::uint64_t limit_bytes_;
  std::uint64_t reservations_ = 0;  // since the last keep_headroom()
  std::uint64_t gone_bytes_ = 0;    // of evicted objects that no demotion holds
};

}  // namespace mc::agent
