// SPDX-License-Identifier: Apache-2.0
//
// Visits all objects of a disk with their keys. The index has no keys: they stand in the footers of sealed
//   segments, and in memory for open segments.
//
//   kCollecting ──► kSealed: segment by segment ──► kOpen ──► over
//        ▲                                            │
//        └──────── segments were sealed meanwhile ────┘
//
//   Sealed segments come in the order in which they were sealed. The cleaner moves an object only to a segment
//   that is sealed later. So an object that stays is visited, possibly twice. Segments that were opened during the
//   walk have no such objects, unless they have copies. A record counts if the catalog has
//   its object at just this place. If a footer is damaged, the front of each record of the segment is read.
//   A disk that fails, or begins a new life, has no objects any more.
// Threads: the agent's loop. The jobs of the disk read.
// Owns: the bytes of one read. Only one walk over a disk has such bytes at a time.
// Trusts: its caller. Bytes from the disk are checked.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/tier/log/catalog.h"
#include "agent/tier/log/disk_log.h"
#include "agent/tier/log/record_walk.h"

namespace mc::tier {

class KeyWalk {
 public:
  struct Object {
    TierEntry entry;
    std::optional<std::uint64_t> namespace_id = {};  // nothing: unknown, as the key is
    std::string_view key = {};                       // empty: no block with the key can be read
  };
  // May remove objects from the log.
  using Visit = std::function<void(const Object&)>;
  // kWaits: for a disk, or for another walk.
  enum class Next : std::uint8_t { kMore, kWaits, kOver };

  // REQUIRES: the log is not recovering. The disk outlives the calls of go_on().
  KeyWalk(const Catalog& catalog, DiskLog& disk)
      : catalog_(catalog),
        disk_(disk),
        life_(disk.geometry().life),
        begin_order_(catalog.next_order()) {
    begin_collecting();
  }
  // Visits a bounded number of objects.
  Next go_on(const Visit& visit);
  // Bytes of the disk are in memory.
  bool is_reading() const { return read_ != nullptr; }

 private:
  static constexpr std::uint32_t kStepRecords = 64;
  static constexpr std::uint32_t kStepSegments = 4096;
  static constexpr std::uint32_t kStepEntries = 4096;
  enum class Phase : std::uint8_t { kCollecting, kSealed, kOpen };
  // Of kSealed. kFronts: the footer cannot be read.
  enum class Part : std::uint8_t { kNone, kFooter, kRecords, kFronts };
  struct Sealed {
    std::uint64_t order = 0;  // Segment::sealed_order
    std::uint32_t number = 0;
    bool operator>(const Sealed& other) const { return order > other.order; }
  };
  struct Opened {
    std::uint64_t sequence = 0;
    std::size_t at = 0;  // bytes of SegmentWriter::headers() that were visited
  };

  const Segment& segment() const { return disk_.segments().at(number_); }
  bool may_have_earlier(const Segment& segment) const {
    return segment.sequence < begin_order_ || segment.has_copies;
  }
  void begin_collecting();
  Next collect();
  Next go_on_sealed(const Visit& visit);
  Next begin_segment();
  Next take_footer();
  Next visit_records(const Visit& visit);
  Next visit_fronts(const Visit& visit);
  void visit_front(const Visit& visit);
  Next visit_open(const Visit& visit);
  void look_at(const RecordHeader& header, std::string_view key, const Visit& visit);

  const Catalog& catalog_;
  DiskLog& disk_;
  const std::uint64_t life_;  // of the disk
  const std::uint64_t begin_order_;
  Phase phase_ = Phase::kCollecting;
  // Segments that were sealed from the first order on, and before the second one, are being collected.
  std::uint64_t from_order_ = 0, until_order_ = 0;
  std::uint32_t next_collected_ = 0;
  std::vector<Sealed> sealed_;  // a heap: the lowest order first
  Part part_ = Part::kNone;
  std::uint32_t number_ = 0;  // of the segment, and its sequence
  std::uint64_t sequence_ = 0;
  std::shared_ptr<DiskLog::WalkRead> read_;
  std::optional<RecordWalk> records_;
  std::uint32_t next_entry_ = 0;  // kFronts: of the catalog
  std::optional<TierEntry> front_;
  std::array<Opened, DiskLog::kClasses> opened_;
};

}  // namespace mc::tier
