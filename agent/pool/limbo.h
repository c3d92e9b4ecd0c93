// SPDX-License-Identifier: Apache-2.0
//
// The entries that left the table but may still have readers. A reader writes its pin
//   and then checks the version; the agent changes the version and then reads the pins. An entry
//   that no pin names after check() can therefore be freed.
// Threads: the agent's loop.
// Owns: the two lists of entries; a held entry is in no list.
// Trusts: its caller; pins are numbers that are only compared.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "agent/pool/entry_extents.h"

namespace mc::agent {

class Limbo {
 public:
  // Appends every pin_value() in the pin slots of every session of this namespace.
  using CollectPins = std::function<void(std::vector<std::uint64_t>&)>;

  Limbo(ObjectIndex& index, EntryExtents& extents, CollectPins collect_pins)
      : index_(index), extents_(extents), collect_pins_(std::move(collect_pins)) {}

  // REQUIRES: the entry's state is kLimbo.
  void add(std::uint32_t entry);
  // The same for an entry whose bytes are being written to a disk: the entry stays until release().
  void hold(std::uint32_t entry);
  void release(std::uint32_t entry);
  // Reads all pins after a full fence, and finds the entries without a pin.
  void check();
  // True if the entries that came since the last check() are worth the cost of a check().
  bool check_is_due(std::uint64_t unchecked_bytes) const;
  // Frees up to this many of the entries without a pin.
  void free_some(std::uint64_t most);
  // Frees all entries that have no pin.
  void reclaim();
  // All pins of the namespace, sorted.
  std::vector<std::uint64_t> sorted_pins() const;

  std::uint64_t count() const { return waiting_.size() + unpinned_.size() + held_count_; }
  std::uint64_t bytes() const { return bytes_; }  // of the pool, without the held entries
  std::uint64_t held_bytes() const { return held_bytes_; }
  // Bytes that readers keep in the tail that a shrink removes.
  std::uint64_t tail_bytes() const;
  std::uint64_t memory_bytes() const { return waiting_.capacity() * sizeof(std::uint32_t); }

 private:
  void prefetch_frees() const;

  ObjectIndex& index_;
  EntryExtents& extents_;
  CollectPins collect_pins_;
  std::vector<std::uint32_t> waiting_;   // readers may have pins
  std::vector<std::uint32_t> unpinned_;  // no reader has a pin, and none will
  std::uint64_t bytes_ = 0;              // of both lists
  std::uint64_t unchecked_count_ = 0;    // added since the last check()
  std::uint64_t unchecked_bytes_ = 0;    // the bytes of these
  std::uint64_t held_count_ = 0, held_bytes_ = 0;
};

}  // namespace mc::agent
