// SPDX-License-Identifier: Apache-2.0
//
// The log of one disk: writes records in batches into open segments, seals full segments, reads
//   records, and drives the recovery and the cleaner. New records and copies of the cleaner have an
//   open segment each, since copies live longer.
//   A failed write ends the disk: the bytes of earlier writes are in doubt as well. The log then tries
//   to write a superblock that empties the disk at the next start. A disk that does not answer for 30
//   seconds has failed, too: its jobs are given up. If removals may be lost, the disk begins a new life,
//   without objects.
// Threads: the agent's loop. All slow work is done by the jobs.
// Owns: open segments, waiting records, and the records of batches that are being written.
// Trusts: its caller. Bytes from the disk are checked.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/tier/jobs/disk_jobs.h"
#include "agent/tier/log/catalog.h"
#include "agent/tier/log/cleaner.h"
#include "agent/tier/log/recovery.h"
#include "agent/tier/log/segment_table.h"
#include "agent/tier/log/segment_writer.h"

namespace mc::tier {

// The end of a put, a removal or a read.
struct LogEnd {
  // kGone: a later put or removal came first, or the record is of another key.
  enum class Outcome : std::uint8_t { kDone, kFailed, kDamaged, kGone };
  std::uint64_t ticket = 0;
  Outcome outcome = Outcome::kDone;
  int error = 0;               // errno, if failed
  RecordHeader header = {};    // of a read that is done
  std::string key = {};        // of the record of such a read
  std::uint64_t checksum = 0;  // of the bytes of such a read
};

class DiskLog {
 public:
  struct Config {
    std::uint64_t batch_bytes = 1 << 20;
    std::uint64_t linger_ns = 50'000'000;  // time that a record waits for others
  };
  struct Counters {
    std::uint64_t new_bytes = 0;      // of objects that were put
    std::uint64_t written_bytes = 0;  // to the disk, with all else
    std::uint64_t puts = 0, removals = 0, reads = 0, damaged = 0, failed = 0;
  };

  // empty: the superblock has a new life, and no segment is read.
  DiskLog(DiskJobs& jobs, Catalog& catalog, const Superblock& superblock, bool empty,
          const Config& config);

  // REQUIRES: has_room_for(record), except for a removal.
  void append(NewRecord record);
  // Whether the record may wait here: the memory of its bytes is in use until its end.
  bool has_room_for(const RecordHeader& header) const;
  // Reads a live entry into the pieces. REQUIRES: the pieces have the length of the object.
  void read(std::uint64_t ticket, std::uint32_t entry, std::string key, std::vector<Piece> to,
            Urgency urgency, std::uint64_t sum_seed);
  // Bounded by a number of records. REQUIRES: now_ns rises.
  void do_work(std::uint64_t now_ns);
  // The time at which do_work() has work that no job announces; 0: now; UINT64_MAX: none.
  std::uint64_t next_work_ns() const;
  void take_ended(std::vector<LogEnd>& ended);
  void take_dropped(std::vector<Dropped>& dropped);

  // Writes the superblock anew. May be called again meanwhile.
  void begin_run(std::uint64_t run, std::uint64_t served_run, std::uint64_t members);
  bool superblock_is_durable() const { return superblock_jobs_ == 0; }
  // No disk needs all removals: objects may leave.
  void set_settled(bool settled) {
    if (settled && !settled_) nothing_to_clean_ = false;
    settled_ = settled;
  }
  // The disk loses its objects: its entries count no more.
  bool must_empty() const {
    return recovery_->must_empty() || cleaner_.lost_removals() || no_room_for_removals_;
  }
  // Recovery and writes begin.
  void serve() { serving_ = true; }
  bool recovered() const { return recovery_->done(); }
  std::uint64_t unread_order() const { return failed_ ? 0 : recovery_->unread_order(); }
  // A removal of any key has to be written to this disk, whatever the catalog knows.
  bool needs_all_removals() const {
    return !failed_ && (!recovery_->done() || segments_.any_clean_first() ||
                        catalog_.has_shadowed(superblock_.disk));
  }
  bool failed() const { return failed_; }
  // The disk failed, and the next start finds no object on the disk.
  bool void_is_durable() const { return void_copies_ == (1u << kSuperblocks) - 1; }
  int error() const { return error_; }
  // No record waits or is being written, and the cleaner rests.
  bool idle() const;
  std::uint64_t outstanding_bytes() const { return waiting_bytes_ + writing_bytes_; }
  // Time that this disk needs for its outstanding bytes and `bytes` more, by its speed so far.
  double time_for(std::uint64_t bytes) const {
    const double ns_per_byte =
        done_bytes_ == 0 ? 1.0 : static_cast<double>(busy_ns_) / static_cast<double>(done_bytes_);
    return ns_per_byte * static_cast<double>(outstanding_bytes() + bytes);
  }
  const Counters& counters() const { return counters_; }
  const Cleaner::Counters& cleaner_counters() const { return cleaner_.counters(); }
  const Recovery::Counters& recovery_counters() const { return recovery_->counters(); }
  // Lives that ended because removals may have been lost.
  std::uint32_t emptied() const { return emptied_; }
  const SegmentTable& segments() const { return segments_; }
  const DiskGeometry& geometry() const { return geometry_; }
  const Superblock& superblock() const { return superblock_; }

  // ---- For a KeyWalk
  static constexpr std::size_t kClasses = 2;  // of records, with an open segment each
  // Null: the class has no open segment.
  const SegmentWriter* open_writer(std::size_t of) const { return open_[of].writer.get(); }
  // Segment::sealed_order of the segment that was full last; 0: none in this life of the agent.
  std::uint64_t last_sealed_order() const { return last_sealed_order_; }
  struct WalkRead {
    bool done = false;
    JobEnd end = {};
  };
  // Reads bytes from an offset in the segment. The walk keeps the result while it uses the bytes. Null: another
  // walk over this disk does so.
  std::shared_ptr<WalkRead> read_for_walk(std::uint32_t number, std::uint64_t offset,
                                          std::uint64_t bytes);

 private:
  enum class Class : std::uint8_t { kNew, kCopy };
  static constexpr std::size_t kStepRecords = 512;
  // A disk that ends no job, or no write, for this time has failed.
  static constexpr std::uint64_t kAnswerNs = 30'000'000'000;
  static constexpr std::uint64_t kLongestStepNs = 1'000'000'000;
  static constexpr std::uint64_t kWaitingBytes = 64 << 20;
  // Three times what a DiskWorker writes between two flushes: writes go on during a flush.
  static constexpr std::uint64_t kWritingBytes = 48 << 20;
  static constexpr std::uint64_t kSpeedBytes = 256 << 20;  // of which the speed is the average
  // A job that is under way.
  struct Task {
    enum class Kind : std::uint8_t {
      kBatch,
      kFooter,
      kRecovery,
      kCleaner,
      kRead,
      kWalk,
      kSuperblock
    };
    Kind kind = Kind::kBatch;
    Class of = Class::kNew;               // kBatch
    std::vector<NewRecord> records = {};  // kBatch
    bool write = false;                   // the job writes
    std::uint64_t bytes = 0;              // of the job
    // kRecovery; kFooter, kWalk: segment; kRead: ticket; kSuperblock: copy
    std::uint64_t mark = 0;
    std::string key = {};  // kRead
    bool voids = false;    // kSuperblock
    TierEntry entry = {};  // kRead, kCleaner
    std::shared_ptr<WalkRead> walk = {};
  };
  struct Open {
    std::deque<NewRecord> waiting;
    std::unique_ptr<SegmentWriter> writer;
  };
  // A full segment whose batches are not all durable.
  struct Sealing {
    SegmentWriter writer;
    bool written = false;  // the footer is being written
  };

  std::unique_ptr<Recovery> new_recovery();
  void submit(Job job, Task task);
  void write_superblock();
  void write_superblock_copy(std::uint64_t copy);
  bool erase_some();
  void watch_silence(std::uint64_t passed_ns);
  bool begin_new_life();
  std::size_t take_job(JobEnd end);
  void end_batch(Task task);
  void end_record(const NewRecord& record, Class of);
  void end_read(const Task& task, JobEnd end);
  void leave_out_outdated(Class of);
  bool is_outdated(const NewRecord& record, Class of) const;
  bool batch_is_due(Class of) const;
  bool may_open(Class of) const;
  bool should_clean() const;
  void write_batch(Class of);
  void open_segment(Class of);
  SegmentWriter* writer_for(Class of);
  void give_up_copies();
  void seal_marked();
  void seal(std::unique_ptr<SegmentWriter> writer);
  void write_footers();
  void recover_some();
  void clean_some();
  void fail(int error);
  void end_some_waiting();
  void end(std::uint64_t ticket, LogEnd::Outcome outcome, int error = 0);
  Open& open(Class of) { return open_[static_cast<std::size_t>(of)]; }

  DiskJobs& jobs_;
  Catalog& catalog_;
  Superblock superblock_;
  DiskGeometry geometry_;
  Config config_;
  std::uint32_t superblock_jobs_ = 0;
  bool serving_ = false, settled_ = false;
  bool superblock_again_ = false;
  std::uint32_t emptied_ = 0;
  bool emptying_ = false;
  std::uint32_t void_copies_ = 0;  // bits of the copies of the superblock that are void
  std::uint64_t now_ns_ = 0;
  // For which jobs, or writes, were under way and none has ended.
  std::uint64_t silent_ns_ = 0, writes_silent_ns_ = 0;
  std::uint32_t writes_under_way_ = 0;
  SegmentTable segments_;
  std::unique_ptr<Recovery> recovery_;
  Cleaner cleaner_;
  std::array<Open, kClasses> open_;
  std::uint64_t last_sealed_order_ = 0;
  std::weak_ptr<WalkRead> walk_read_;
  std::vector<Sealing> sealing_;
  std::vector<std::uint32_t> batches_of_;  // being written, by number of the segment
  std::unordered_map<std::uint64_t, Task> tasks_;
  std::uint64_t next_job_ = 1;
  std::uint64_t waiting_bytes_ = 0, writing_bytes_ = 0;
  std::uint64_t done_bytes_ = 0, busy_ns_ = 0;  // of the latest writes
  bool nothing_to_clean_ = false;               // until the next segment is sealed
  bool no_room_for_removals_ = false;
  bool failed_ = false;
  bool gave_up_ = false;  // the jobs of a disk that does not answer
  int error_ = 0;
  std::uint32_t next_erased_ = 0;  // of the walk over the entries of a failed disk
  std::deque<JobEnd> job_ends_;    // not yet taken
  std::vector<JobEnd> new_ends_;
  std::vector<LogEnd> ended_;
  std::vector<Dropped> dropped_;
  Counters counters_;
};

}  // namespace mc::tier
