// SPDX-License-Identifier: Apache-2.0
//
// Frees segments of a disk, one at a time. A step copies the records that stay, then voids the header
//   of the segment, and only then forgets the records that leave: until the header is void, a crash
//   would bring these back, so that a removal must still be written.
//
//   kChoosing ──► kReading ──footer──► kCopying ──copies durable──► kVoiding ──durable──► kErasing ──► kIdle
//
//   The choice of the segment, in this order: a segment that recovery has marked; a segment without live
//   records; a segment that is mostly dead, whose live records all stay; the oldest
//   segment, of which the records stay that were read. If removals take too much
//   room, the segment that was opened first, since removals stay as long as earlier segments do: its records
//   stay while copies may be made.
//   Copies of objects take at most a quarter of the bytes that puts have written, and need a free
//   segment: else the records of the oldest segment leave. As these bytes run short, only records stay that were
//   read often.
// Threads: the agent's loop.
// Owns: the records of the segment, and the bytes of copies that are under way.
// Trusts: its caller. Bytes from the disk are checked.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/tier/jobs/disk_jobs.h"
#include "agent/tier/log/catalog.h"
#include "agent/tier/log/record_walk.h"
#include "agent/tier/log/segment_table.h"
#include "agent/tier/log/segment_writer.h"

namespace mc::tier {

// An object that left the tier to make room, or because of damage.
struct Dropped {
  TierKey key;
  std::optional<std::uint64_t> namespace_id = {};  // Catalog::namespace_of()
  std::uint64_t version = 0;
};

class Cleaner {
 public:
  struct Counters {
    std::uint64_t segments = 0, copied_bytes = 0, dropped = 0, damaged = 0, failed = 0;
  };

  Cleaner(Catalog& catalog, SegmentTable& segments, const DiskGeometry& place)
      : catalog_(catalog), segments_(segments), place_(place) {}

  bool active() const { return state_ != State::kIdle; }
  // Begins to choose a segment. new_bytes: written for puts so far. settled: objects and removals may leave
  // the disk; else all records that count are copied.
  void begin(std::uint64_t new_bytes, bool settled);
  // The last choice found no segment.
  bool found_nothing() const { return found_nothing_; }
  // Removals of the segment are lost: the disk has to be emptied.
  bool lost_removals() const { return lost_removals_; }
  // A job to submit, without id, or nothing until an end has come.
  std::optional<Job> next_job();
  // The end of a job of next_job().
  void take_end(JobEnd end, const TierEntry& expected);
  // A copy to write behind other records.
  std::optional<NewRecord> next_copy();
  // Further copies come before an end of those that were given.
  bool has_more_copies() const {
    return !copies_.empty() || !buffers_.empty() || (walk_ && may_look());
  }
  // The copy is durable, or will never be.
  void end_copy(const NewRecord& copy);
  // There is no room for the copy: the object leaves.
  void give_up_copy(const NewRecord& copy);
  // Goes on with work that waits for no job.
  void step();
  bool has_step() const {
    if (state_ == State::kErasing || state_ == State::kChoosing) return true;
    if (state_ != State::kCopying || lost_removals_) return false;
    return walk_ ? may_look() : copies_under_way_ == 0;
  }
  std::vector<Dropped> take_dropped() { return std::exchange(dropped_, {}); }
  const Counters& counters() const { return counters_; }
  // Begins anew on a disk without objects. REQUIRES: no job and no copy is under way.
  void begin_life();

 private:
  enum class State : std::uint8_t { kIdle, kChoosing, kReading, kCopying, kVoiding, kErasing };
  struct Leaving {
    TierKey key;
    std::uint32_t unit = 0;
  };
  static constexpr std::uint64_t kCopiedAtOnceBytes = 8 << 20;
  static constexpr std::uint32_t kCopiesAtOnce = 4096;
  static constexpr std::uint32_t kStepRecords = 256;
  static constexpr std::uint32_t kStepSegments = 4096;
  // The best segments of each kind so far.
  struct Seen {
    std::uint32_t next = 0;
    std::uint32_t marked = SegmentTable::kNone, emptiest = SegmentTable::kNone,
                  oldest = SegmentTable::kNone, opened_first = SegmentTable::kNone,
                  without_removals = SegmentTable::kNone;
    std::uint64_t removals = 0;
    // The two lowest sequences of segments with records.
    std::uint64_t lowest = UINT64_MAX, second = UINT64_MAX;
  };

  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    std::uint64_t bytes = 0;
  };

  std::uint32_t victim_id() const { return place_.id_of(victim_); }
  bool may_look() const {
    return bytes_under_way_ < kCopiedAtOnceBytes && copies_under_way_ < kCopiesAtOnce;
  }
  void see(std::uint32_t number);
  std::uint32_t choose();
  void begin_with(std::uint32_t victim);
  double copies_left_bytes() const;
  bool may_copy() const;
  // The reads that a record of the oldest segment needs to stay.
  std::uint32_t uses_to_stay() const;
  bool gains(std::uint32_t number) const;
  void take_footer(JobEnd end);
  void read_all();
  void look_at_records();
  void look_at(const RecordWalk::Found& found);
  bool stays(const TierEntry& entry) const;
  void erase_some();
  void drop(const TierEntry& entry);

  Catalog& catalog_;
  SegmentTable& segments_;
  const DiskGeometry& place_;
  State state_ = State::kIdle;
  std::uint32_t victim_ = 0;
  bool evicting_ = false, settled_ = false;
  bool found_nothing_ = false, lost_removals_ = false;
  Seen seen_;
  std::uint64_t lowest_other_ = 0;  // sequence of the other segments with records
  std::uint32_t removals_found_ = 0;
  std::uint64_t new_bytes_ = 0;
  bool job_given_ = false;
  bool footer_damaged_ = false;
  bool read_all_ = false;  // all bytes but the footer
  std::optional<RecordWalk> walk_;
  std::deque<Job> reads_;               // of records that stay, not yet submitted
  std::deque<NewRecord> copies_;        // read, and not yet written
  std::uint32_t copies_under_way_ = 0;  // from the look at the record to the end of the copy
  std::uint64_t bytes_under_way_ = 0;
  std::unordered_map<std::uint64_t, Buffer> buffers_;  // of reads, by unit
  std::deque<Leaving> leaving_;
  std::uint32_t next_erased_ = 0;  // of a walk over all entries
  std::vector<Dropped> dropped_;
  Counters counters_;
};

}  // namespace mc::tier
