// SPDX-License-Identifier: Apache-2.0
//
// The objects that left a pool last, with the reasons, so that a miss can be explained.
// Threads: the agent's loop.
// Owns: the records, 24 bytes each. The oldest record gives way.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/pool/live_objects.h"

namespace mc::agent {

class Departures {
 public:
  static constexpr std::size_t kMost = 16384;
  struct Departure {
    std::string_view reason;
    std::uint64_t at_ns = 0;  // now_ns(), as exact as the ticks
  };

  explicit Departures(std::uint64_t now_ns) : now_ns_(now_ns), began_ns_(now_ns) {}

  void tick(std::uint64_t now_ns) { now_ns_ = now_ns; }
  void note_eviction(std::uint64_t key_hash, EvictionReason reason) {
    note(key_hash, static_cast<std::uint8_t>(reason));
  }
  void note_removal(std::uint64_t key_hash) { note(key_hash, kRemoved); }
  // The cluster's masters ordered the departure.
  void note_drop(std::uint64_t key_hash) { note(key_hash, kDropped); }
  void note_damage(std::uint64_t key_hash) { note(key_hash, kDamaged); }

  // The latest departure of an object with this hash of its key.
  std::optional<Departure> find(std::uint64_t key_hash) const {
    if (const Record* const found = latest(key_hash, 0, next_)) return departure_of(*found);
    if (const Record* const found = latest(key_hash, next_, records_.size())) {
      return departure_of(*found);
    }
    return std::nullopt;
  }
  // All departures after this time have a record.
  std::uint64_t complete_since_ns() const {
    return records_.size() < kMost ? began_ns_ : records_[next_].at_ns;
  }
  std::uint64_t memory_bytes() const { return records_.capacity() * sizeof(Record); }

 private:
  // By EvictionReason, then the others.
  static constexpr std::string_view kReasons[] = {
      "evicted for room",
      "evicted for the quota",
      "evicted by a shrinking pool",
      "evicted with its group",
      "evicted by an operator",
      "removed",
      "dropped by order of the cluster (removed, moved, replaced or refused)",
      "dropped because its bytes were damaged"};
  static constexpr std::uint8_t kRemoved = 5;
  static constexpr std::uint8_t kDropped = 6;
  static constexpr std::uint8_t kDamaged = 7;
  static_assert(static_cast<std::uint8_t>(EvictionReason::kOperator) + 1 == kRemoved);
  static_assert(std::size(kReasons) == kDamaged + 1);

  struct Record {
    std::uint64_t key_hash;
    std::uint64_t at_ns;
    std::uint8_t reason;
  };

  static Departure departure_of(const Record& record) {
    return {kReasons[record.reason], record.at_ns};
  }
  // The last record of the key in a part of the records; null: none.
  const Record* latest(std::uint64_t key_hash, std::size_t begin, std::size_t end) const {
    for (std::size_t at = end; at > begin; --at) {
      if (records_[at - 1].key_hash == key_hash) return &records_[at - 1];
    }
    return nullptr;
  }

  void note(std::uint64_t key_hash, std::uint8_t reason) {
    const Record record{key_hash, now_ns_, reason};
    if (records_.size() < kMost) {
      records_.push_back(record);
    } else {
      records_[next_] = record;
    }
    next_ = (next_ + 1) % kMost;
  }

  std::vector<Record> records_;
  std::size_t next_ = 0;  // the place of the next record
  std::uint64_t now_ns_;
  std::uint64_t began_ns_;
};

}  // namespace mc::agent
