// SPDX-License-Identifier: Apache-2.0
//
// Does the jobs of a disk in parts of about 1 MiB, several at once. A write gathers its pieces into
//   an aligned buffer. A read of a record copies the object out of such a buffer and sums the bytes
//   in the same pass.
//   Reads come first. Writes have four operations while a read waits or is under way, and sixteen otherwise. Reads
//   leave four operations free. Writes begin in the order of their submission.
//   One flush serves all writes that have ended before the flush began.
// Threads: one, but for give_up(). Time comes with the calls, so that a simulation can own the time.
// Owns: the disk, and the buffers (about 1 MiB for each operation of the disk's depth). They lie in huge pages
//   if the kernel has some: a virtual disk takes each page of a buffer by itself.
// Trusts: its caller. Bytes from the disk are checked as a record before they count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/tier/disk/disk.h"
#include "agent/tier/jobs/disk_jobs.h"
#include "libmc/base/mutex.h"

namespace mc::tier {

class DiskWorker : public DiskJobs {
 public:
  explicit DiskWorker(std::unique_ptr<Disk> disk);
  ~DiskWorker() override;
  DiskWorker(const DiskWorker&) = delete;
  DiskWorker& operator=(const DiskWorker&) = delete;

  std::uint64_t disk_bytes() const override { return disk_->shape().bytes; }
  void submit(Job job) override;
  void take_ended(std::vector<JobEnd>& ended) override;
  // From any thread.
  void give_up() override MC_EXCLUDES(pieces_);
  // Takes ends of the disk, and begins the operations that may begin now.
  void do_work(std::uint64_t now_ns);
  // The time at which do_work() has to be called even if no operation ends; UINT64_MAX: none.
  std::uint64_t next_work_ns() const;
  bool idle() const { return active_ == 0; }
  // Waits for the operations that are under way. The last call, from the thread of do_work().
  void close();
  Disk& disk() { return *disk_; }

 private:
  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };
  struct Running {
    Job job;
    std::uint64_t begin = 0, end = 0;  // whole sectors
    std::uint64_t submitted = 0;       // offset of the next operation
    std::uint64_t processed = 0;       // offset up to which a read has been taken
    std::uint32_t under_way = 0;
    std::uint64_t number = 0;  // of a write that has begun
    int error = 0;
    bool damaged = false;
    // A read of a record: the sum so far, and the position in the pieces.
    std::uint64_t sum = 0, copied = 0, front_bytes = 0;
    std::uint64_t wanted_sum = 0;
    std::optional<std::uint64_t> sum_for_caller = {};  // set: starts from another seed than `sum`
    std::size_t piece = 0;
    std::uint64_t in_piece = 0;
    std::vector<std::byte> result = {};
    std::map<std::uint64_t, std::uint32_t> arrived = {};  // parts ahead of `processed`, by offset
    std::list<Running>::iterator self = {};
  };
  struct Part {
    Running* running = nullptr;  // null: the flush
    std::uint64_t offset = 0, bytes = 0;
    std::byte* buffer = nullptr;
  };
  // 1 MiB, and what a batch or a record of 1 MiB has around its objects.
  static constexpr std::uint64_t kPartBytes = (1 << 20) + (32 << 10);
  static constexpr std::uint32_t kMostWrites = 16;  // a later read waits behind these
  static constexpr std::uint32_t kWritesBesideReads = 4;
  // Parts of reads to copy and sum before the caller hears of these reads and gives the disk new ones.
  static constexpr std::uint64_t kReadAtOnceBytes = 64 << 10;
  static constexpr float kBurstsOfMean = 8;
  static constexpr std::uint64_t kFlushDelayNs = 20'000'000;
  static constexpr std::uint64_t kFlushBytes = 16 << 20;

  void take_block_ends();
  void begin_parts();
  bool may_read() const;
  static std::uint64_t parts_to_begin(const Running& running);
  Running* next_running();
  bool begin_part(Running& running);
  std::list<Running>& queue_of(const Job& job);
  void leave_queue(Running& running);
  bool flush_waits_for_a_write() const;
  bool gather(const Running& running, std::uint64_t from, std::byte* to, std::uint64_t bytes)
      MC_EXCLUDES(pieces_);
  void end_part(const BlockEnd& end);
  void take_read(Running& running);
  void take_record_bytes(Running& running, const std::byte* bytes, std::uint64_t from,
                         std::uint64_t count);
  bool take_front(Running& running, const std::byte* bytes, std::uint64_t count);
  void copy_out(Running& running, const std::byte* bytes, std::uint64_t count) MC_EXCLUDES(pieces_);
  void finish(Running& running);
  void settle_write(Running& running);
  void maybe_flush();
  bool flush_is_due() const;
  void end_flush(int error);
  void end(Running& running, JobEnd::Outcome outcome);
  std::vector<std::byte*>& buffers_for(std::uint64_t bytes);
  std::byte* take_buffer(std::uint64_t bytes);

  std::unique_ptr<Disk> disk_;
  Mutex pieces_;  // held while pieces are read or written
  bool gave_up_ MC_GUARDED_BY(pieces_) = false;
  std::uint64_t now_ns_ = 0;
  // With operations to begin, oldest first: reads by urgency, then the writes.
  std::array<std::list<Running>, kUrgencies + 1> waiting_;
  std::list<Running> begun_;  // all operations have begun
  std::uint64_t active_ = 0;  // jobs that have not ended
  std::uint64_t reads_ = 0;   // jobs of these that read
  std::vector<Part> parts_;   // by cookie
  std::vector<std::uint32_t> free_parts_;
  std::uint32_t writes_under_way_ = 0;
  std::uint32_t read_parts_ = 0;     // with a buffer
  std::uint32_t reads_on_disk_ = 0;  // of these
  std::uint64_t waiting_reads_ = 0;  // parts that have not begun
  // Reads that end together, in the mean. A disk that ends many at once (with one interrupt, as virtual disks do)
  // would rest until the callers answer. So a fourth of these reads waits here, and begins without delay.
  float reads_at_once_ = 0;
  std::uint64_t next_number_ = 1;
  std::map<std::uint64_t, Running*> writing_;  // begun and not ended, by number
  std::map<std::uint64_t, Running*> written_;  // ended, and wait for a flush, by number
  std::uint64_t written_bytes_ = 0;            // of these
  std::uint64_t oldest_written_ns_ = 0;
  bool flush_soon_ = false;
  bool flushing_ = false;
  std::uint64_t flush_covers_ = 0;  // numbers below this are durable after the flush under way
  std::vector<JobEnd> ended_;
  std::vector<BlockEnd> block_ends_;
  std::deque<BlockEnd> read_ends_;                         // not yet processed
  std::unique_ptr<std::byte, FreeMemory> memory_;          // of all buffers
  std::vector<std::byte*> small_buffers_, large_buffers_;  // free
};

}  // namespace mc::tier
