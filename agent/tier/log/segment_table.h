// SPDX-License-Identifier: Apache-2.0
//
// The segments of a disk, and their states:
//
//   kUnread ──recovery──► kFree ──open──► kOpen ──full──► kSealing ──footer──► kSealed
//       │                   ▲                                                     │
//       └──recovery──► kSealed, kOpen             kFree ◄──header void── kCleaning ◄┘
//
// Threads: the agent's loop.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "agent/tier/layout/layout.h"

namespace mc::tier {

enum class SegmentState : std::uint8_t { kUnread, kFree, kOpen, kSealing, kSealed, kCleaning };

// Where the segments of a disk are.
struct DiskGeometry {
  std::uint32_t disk = 0;
  std::uint64_t segment_bytes = 0;
  std::uint64_t life = 0;  // of the segments; the superblock may have the next one already

  std::uint32_t id_of(std::uint32_t number) const { return segment_id(disk, number); }
  std::uint64_t offset_of(std::uint32_t number) const {
    return kFirstSegmentOffset + number * segment_bytes;
  }
};

struct Segment {
  std::uint64_t sequence = 0;      // the order at which the segment was opened
  std::uint64_t sealed_order = 0;  // the order at which the segment was full, for the cleaner
  std::uint32_t footer_bytes = 0;  // kSealed
  std::uint32_t removals = 0;      // records of removals
  std::uint32_t readers = 0;       // reads under way: the segment is not opened again meanwhile
  SegmentState state = SegmentState::kUnread;
  bool has_copies = false;  // the cleaner has written to it in this life of the agent
  // Recovery found that records do not count which would count again without a record of another segment or
  // disk. The segment is cleaned before all others.
  bool clean_first = false;
};

class SegmentTable {
 public:
  explicit SegmentTable(std::uint32_t count) : segments_(count) {}

  std::uint32_t count() const { return static_cast<std::uint32_t>(segments_.size()); }
  Segment& at(std::uint32_t number) { return segments_[number]; }
  const Segment& at(std::uint32_t number) const { return segments_[number]; }

  void set_clean_first(std::uint32_t number);
  bool any_clean_first() const { return clean_first_ > 0; }
  std::uint32_t free_count() const { return static_cast<std::uint32_t>(free_.size()); }
  void free(std::uint32_t number);
  static constexpr std::uint32_t kNone = UINT32_MAX;
  // A free segment without readers, longest free first; kNone if there is none.
  std::uint32_t next_to_open() const;
  // REQUIRES: next_to_open() is not kNone.
  std::uint32_t open(std::uint64_t sequence);

 private:
  std::vector<Segment> segments_;
  std::deque<std::uint32_t> free_;
  std::uint32_t clean_first_ = 0;
};

}  // namespace mc::tier
