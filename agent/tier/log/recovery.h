// SPDX-License-Identifier: Apache-2.0
//
// Rebuilds the catalog from the segments of a disk. First the headers and trailers of all segments
//   are read, then the segments, latest first: the footer of a sealed segment, the whole of the others.
//   An object can be read as soon as no unread segment can have a later record of its key.
//
//   If a segment may have had removals that are not found, the disk has to be emptied: records in other
//   segments would count again.
// Threads: the agent's loop.
// Owns: the bytes of the segments that are being read.
// Trusts: nothing on the disk.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "agent/tier/jobs/disk_jobs.h"
#include "agent/tier/log/catalog.h"
#include "agent/tier/log/record_walk.h"
#include "agent/tier/log/segment_table.h"
#include "agent/tier/log/segment_writer.h"

namespace mc::tier {

class Recovery {
 public:
  struct Counters {
    std::uint64_t segments = 0, objects = 0, outdated = 0;
  };
  Recovery(Catalog& catalog, SegmentTable& segments, const DiskGeometry& geometry);
  // The disk begins a life: nothing is read, and all segments are free.
  void begin_empty();

  bool done() const { return phase_ == Phase::kDone; }
  // All free segments are known.
  bool knows_segments() const { return phase_ != Phase::kHeaders; }
  // Removals may be lost: no record of the disk can be trusted.
  bool must_empty() const { return must_empty_; }
  // The next job, without id, or nothing until an end has come. mark comes back with the end.
  struct MarkedJob {
    Job job;
    std::uint64_t mark = 0;
  };
  std::optional<MarkedJob> next_job();
  void take_end(std::uint64_t mark, JobEnd end);
  // A bounded number of records and of bytes to sum.
  void step();
  // step() or next_job() can go on without an end.
  bool has_step() const;
  // No unread segment has a record with a higher order. UINT64_MAX: not known.
  std::uint64_t unread_order() const;
  // Segments that the earlier agent had open: one is written on, or all get their footers.
  std::vector<SegmentWriter> take_unsealed() { return std::exchange(unsealed_, {}); }
  const Counters& counters() const { return counters_; }

 private:
  enum class Phase : std::uint8_t { kHeaders, kRecords, kDone };
  // Header and trailer of a segment.
  struct Look {
    std::uint64_t sequence = 0;  // 0: no good header of this life
    std::uint32_t bad_blocks = 0;
    std::uint32_t good_blocks = 0;
    bool copies = false;
    bool trailer_unreadable = false;
    std::optional<Trailer> trailer = {};
  };
  struct Unread {
    std::uint64_t max_order = UINT64_MAX;
    std::uint32_t number = 0;
    bool copies = false;
    bool one_header = false;  // of two
    bool was_sealed = false;  // or may have been: an earlier footer may be on the disk
    bool may_have_removals = true;
    std::uint32_t removals = 0;        // known to be there
    bool whole = false;                // all bytes are read, up to the last ones
    std::uint64_t unreadable_end = 0;  // bytes
  };
  static bool comes_later(const Unread& left, const Unread& right) {
    return left.max_order < right.max_order;
  }
  // A segment that cannot be read as a whole, block by block.
  struct Salvage {
    Unread unread;
    std::vector<std::byte> bytes = {};  // zeros for blocks that cannot be read
    std::uint32_t next = 0;             // block
    std::uint32_t left = 0;             // that have not ended
    std::uint32_t lost = 0;
  };
  static constexpr std::uint32_t kMostLost = 64;
  // A record of an unsealed segment, whose bytes are being summed.
  struct Summing {
    RecordWalk::Found record;
    std::uint64_t sum = 0;
    std::uint64_t done = 0;
  };
  // Of a mark, above the number of the segment.
  enum class Read : std::uint64_t { kHeader, kTrailer, kBlock0, kBlock1, kRecords, kBlock };
  static std::uint64_t mark_of(Read read, std::uint32_t number) {
    return static_cast<std::uint64_t>(read) << 32 | number;
  }
  static constexpr std::uint32_t kHeadersAtOnce = 64;
  static constexpr std::uint32_t kReadsAtOnce = 16;
  static constexpr std::uint32_t kStepRecords = 256;
  static constexpr std::uint32_t kStepShadowed = 16;
  static constexpr std::uint64_t kStepBytes = 1 << 20;

  bool may_read() const;
  std::optional<MarkedJob> next_look();
  void begin_salvage(const Unread& unread);
  MarkedJob next_salvage();
  void take_salvage(std::uint32_t block, const JobEnd& end);
  void begin_walk_over(const Unread& unread, std::vector<std::byte> bytes);
  void take_look(Read read, std::uint32_t number, const JobEnd& end);
  void look_at_header(std::uint32_t number, std::span<const std::byte> block);
  void begin_records();
  std::size_t unread_count() const { return whole_.size() + sealed_.size(); }
  RecordWalk::Segment segment_of(std::uint32_t number) const;
  bool begin_walk();
  bool sum_some(std::uint64_t& bytes);
  void apply(const RecordWalk::Found& found);
  void end_segment();
  void look_at_shadowed();
  void read_whole(Unread unread);
  void end_unread(const Unread& unread);

  Catalog& catalog_;
  SegmentTable& segments_;
  const DiskGeometry& geometry_;
  Phase phase_ = Phase::kHeaders;
  bool must_empty_ = false;
  std::vector<Look> looks_;
  std::uint32_t next_look_ = 0;     // headers and trailers, two a segment
  std::deque<std::uint64_t> more_;  // marks of further looks
  std::uint64_t looks_left_ = 0;    // that have not ended
  std::deque<Unread> whole_;        // without a good footer
  std::vector<Unread> sealed_;      // a heap: the highest order first
  std::uint32_t reading_ = 0;
  std::map<std::uint32_t, Unread> unread_;   // being read or applied, by number
  std::map<std::uint32_t, JobEnd> arrived_;  // by number
  std::optional<Salvage> salvage_;
  std::optional<RecordWalk> walk_;
  std::optional<Summing> summing_;
  std::uint32_t walking_ = 0;  // number of the segment
  std::optional<SegmentWriter> writer_;
  std::vector<SegmentWriter> unsealed_;
  Counters counters_;
};

}  // namespace mc::tier
