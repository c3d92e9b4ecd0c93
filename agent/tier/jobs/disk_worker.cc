// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/jobs/disk_worker.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "agent/tier/layout/layout.h"
#include "libmc/base/checksum.h"
#include "libmc/base/memory_file.h"

namespace mc::tier {

namespace {

constexpr std::uint64_t kSmallBufferBytes = 64 * 1024;

}  // namespace

void DiskWorker::FreeMemory::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t(kHugePageBytes));
}

DiskWorker::DiskWorker(std::unique_ptr<Disk> disk)
    : disk_(std::move(disk)), parts_(disk_->depth()) {
  const std::uint64_t depth = disk_->depth();
  const std::uint64_t bytes = round_up(depth * (kSmallBufferBytes + kPartBytes), kHugePageBytes);
  memory_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kHugePageBytes))));
  ::madvise(memory_.get(), bytes, MADV_HUGEPAGE);
  // The buffer that was used last is used first, so that a page gets memory only when a buffer needs the page.
  for (auto part = static_cast<std::uint32_t>(depth); part-- > 0;) {
    free_parts_.push_back(part);
    small_buffers_.push_back(memory_.get() + part * kSmallBufferBytes);
    large_buffers_.push_back(memory_.get() + depth * kSmallBufferBytes + part * kPartBytes);
  }
}

// The disk writes to buffers of reads that are under way.
DiskWorker::~DiskWorker() { close(); }

void DiskWorker::close() { disk_.reset(); }

void DiskWorker::submit(Job job) {
  Running running;
  const std::uint64_t sector = disk_->shape().sector_bytes;
  running.begin = job.offset / sector * sector;
  running.end = round_up(job.offset + job.bytes, sector);
  running.submitted = running.processed = running.begin;
  if (job.kind == Job::Kind::kRead) running.result.reserve(job.bytes);
  ++active_;
  if (job.kind != Job::Kind::kWrite) {
    ++reads_;
    waiting_reads_ += parts_to_begin(running);
  }
  auto& queue = queue_of(job);
  running.job = std::move(job);
  queue.push_back(std::move(running));
  queue.back().self = std::prev(queue.end());
}

void DiskWorker::take_ended(std::vector<JobEnd>& ended) {
  std::move(ended_.begin(), ended_.end(), std::back_inserter(ended));
  ended_.clear();
}

void DiskWorker::do_work(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  begin_parts();
  take_block_ends();
  for (std::uint64_t bytes = 0; bytes < kReadAtOnceBytes && !read_ends_.empty();) {
    bytes += parts_[read_ends_.front().cookie].bytes;
    end_part(read_ends_.front());
    read_ends_.pop_front();
  }
  maybe_flush();
  begin_parts();
}

void DiskWorker::take_block_ends() {
  block_ends_.clear();
  disk_->take_ended(block_ends_);
  std::uint32_t reads = 0;
  for (const BlockEnd& end : block_ends_) {
    const Running* const running = parts_[end.cookie].running;
    if (running != nullptr && running->job.kind != Job::Kind::kWrite) {
      read_ends_.push_back(end);
      ++reads;
    } else {
      end_part(end);
    }
  }
  if (reads == 0) return;
  reads_on_disk_ -= reads;
  reads_at_once_ += (static_cast<float>(reads) - reads_at_once_) / kBurstsOfMean;
}

void DiskWorker::begin_parts() {
  // One operation stays for a flush.
  while (free_parts_.size() > 1) {
    Running* const running = next_running();
    if (running == nullptr || !begin_part(*running)) break;
  }
}

std::uint64_t DiskWorker::next_work_ns() const {
  if (!read_ends_.empty()) return 0;
  if (flushing_ || written_.empty() || flush_waits_for_a_write()) return UINT64_MAX;
  return oldest_written_ns_ + kFlushDelayNs;
}

std::list<DiskWorker::Running>& DiskWorker::queue_of(const Job& job) {
  const bool write = job.kind == Job::Kind::kWrite;
  return waiting_[write ? kUrgencies : static_cast<std::size_t>(job.urgency)];
}

bool DiskWorker::may_read() const {
  const auto most_reads = static_cast<std::uint32_t>(parts_.size()) - kWritesBesideReads - 1;
  if (read_parts_ >= most_reads) return false;
  const std::uint64_t all = read_parts_ + waiting_reads_;
  const std::uint64_t kept_back = std::min(all, static_cast<std::uint64_t>(reads_at_once_)) / 4;
  return reads_on_disk_ + kept_back < all;
}

DiskWorker::Running* DiskWorker::next_running() {
  for (std::size_t urgency = 0; urgency < kUrgencies && may_read(); ++urgency) {
    if (!waiting_[urgency].empty()) return &waiting_[urgency].front();
  }
  const bool may_write = writes_under_way_ < (reads_ == 0 ? kMostWrites : kWritesBesideReads);
  auto& writes = waiting_[kUrgencies];
  return may_write && !writes.empty() ? &writes.front() : nullptr;
}

std::uint64_t DiskWorker::parts_to_begin(const Running& running) {
  return (running.end - running.submitted + kPartBytes - 1) / kPartBytes;
}

void DiskWorker::leave_queue(Running& running) {
  begun_.splice(begun_.end(), queue_of(running.job), running.self);
}

void DiskWorker::give_up() {
  const MutexLock lock(pieces_);
  gave_up_ = true;
}

// Returns false if the caller has given up.
bool DiskWorker::begin_part(Running& running) {
  const std::uint64_t bytes = std::min(kPartBytes, running.end - running.submitted);
  const bool write = running.job.kind == Job::Kind::kWrite;
  std::byte* const buffer = take_buffer(bytes);
  if (write && !gather(running, running.submitted - running.begin, buffer, bytes)) {
    buffers_for(bytes).push_back(buffer);
    return false;
  }
  const std::uint32_t cookie = free_parts_.back();
  free_parts_.pop_back();
  Part& part = parts_[cookie];
  part = {.running = &running, .offset = running.submitted, .bytes = bytes, .buffer = buffer};
  if (write) {
    if (running.number == 0) {
      running.number = next_number_++;
      writing_[running.number] = &running;
    }
    ++writes_under_way_;
  } else {
    ++read_parts_;
    ++reads_on_disk_;
    --waiting_reads_;
  }
  running.submitted += bytes;
  ++running.under_way;
  if (running.submitted == running.end) leave_queue(running);
  disk_->submit({.kind = write ? BlockOperation::Kind::kWrite : BlockOperation::Kind::kRead,
                 .offset = part.offset,
                 .memory = buffer,
                 .bytes = bytes,
                 .cookie = cookie});
  return true;
}

bool DiskWorker::gather(const Running& running, std::uint64_t from, std::byte* to,
                        std::uint64_t bytes) {
  const MutexLock lock(pieces_);
  if (gave_up_) return false;
  std::uint64_t at = 0;  // of the piece, in the job
  for (const Piece& piece : running.job.pieces) {
    if (bytes == 0) break;
    if (from < at + piece.bytes) {
      const std::uint64_t in_piece = from - at;
      const std::uint64_t count = std::min(bytes, piece.bytes - in_piece);
      if (piece.data == nullptr) {
        std::memset(to, 0, count);
      } else {
        std::memcpy(to, piece.data + in_piece, count);
      }
      to += count;
      from += count;
      bytes -= count;
    }
    at += piece.bytes;
  }
  return true;
}

void DiskWorker::end_part(const BlockEnd& end) {
  const auto cookie = static_cast<std::uint32_t>(end.cookie);
  Part& part = parts_[cookie];
  Running* const running = part.running;
  if (running == nullptr) {
    free_parts_.push_back(cookie);
    return end_flush(end.error);
  }
  --running->under_way;
  if (end.error != 0 && running->error == 0) {
    running->error = end.error;
    if (running->submitted != running->end) {
      if (running->job.kind != Job::Kind::kWrite) waiting_reads_ -= parts_to_begin(*running);
      leave_queue(*running);
    }
  }
  if (running->job.kind == Job::Kind::kWrite) {
    --writes_under_way_;
    buffers_for(part.bytes).push_back(part.buffer);
    free_parts_.push_back(cookie);
  } else {
    running->arrived[part.offset] = cookie;
    take_read(*running);
  }
  const bool all = running->submitted == running->end || running->error != 0;
  if (all && running->under_way == 0) finish(*running);
}

// Takes the parts of a read in their order.
void DiskWorker::take_read(Running& running) {
  while (!running.arrived.empty()) {
    const auto next = running.arrived.begin();
    // After an error, parts only give back their buffers.
    if (next->first != running.processed && running.error == 0) return;
    Part& part = parts_[next->second];
    if (running.error == 0 && !running.damaged) {
      if (running.job.kind == Job::Kind::kRead) {
        running.result.insert(running.result.end(), part.buffer, part.buffer + part.bytes);
      } else {
        take_record_bytes(running, part.buffer, part.offset, part.bytes);
      }
    }
    running.processed = part.offset + part.bytes;
    buffers_for(part.bytes).push_back(part.buffer);
    free_parts_.push_back(next->second);
    --read_parts_;
    running.arrived.erase(next);
  }
}

void DiskWorker::take_record_bytes(Running& running, const std::byte* bytes, std::uint64_t from,
                                   std::uint64_t count) {
  if (from == running.begin) {
    const std::uint64_t skip = running.job.offset - running.begin;
    bytes += skip;
    count -= skip;
    if (!take_front(running, bytes, count)) {
      running.damaged = true;
      return;
    }
    bytes += running.front_bytes;
    count -= running.front_bytes;
  }
  copy_out(running, bytes, std::min(count, running.job.expected.length - running.copied));
}

bool DiskWorker::take_front(Running& running, const std::byte* bytes, std::uint64_t count) {
  const auto front = read_record({bytes, count}, running.job.stamp);
  if (!front) return false;
  const RecordHeader& header = front->header;
  const TierEntry& expected = running.job.expected;
  if (header.kind != RecordKind::kObject || header.tier_key() != expected.key() ||
      header.place() != expected.place || header.key_bytes != expected.key_bytes ||
      header.length != expected.length || header.version != expected.version) {
    return false;
  }
  running.front_bytes = header.front_bytes();
  running.sum = header.sum_seed;
  running.wanted_sum = header.checksum;
  const auto& seed = running.job.sum_seed;
  if (seed && *seed != header.sum_seed) running.sum_for_caller = seed;
  running.result.assign(bytes, bytes + sizeof(RecordHeader) + header.key_bytes);
  return running.front_bytes <= count;
}

void DiskWorker::copy_out(Running& running, const std::byte* bytes, std::uint64_t count) {
  const MutexLock lock(pieces_);
  if (gave_up_) return;
  while (count > 0) {
    const Piece& piece = running.job.pieces[running.piece];
    const std::uint64_t some = std::min(count, piece.bytes - running.in_piece);
    running.sum = copy_out_and_checksum(running.sum, piece.data + running.in_piece, bytes, some);
    if (auto& sum = running.sum_for_caller) sum = checksum(*sum, bytes, some);
    running.in_piece += some;
    running.copied += some;
    bytes += some;
    count -= some;
    if (running.in_piece == piece.bytes) {
      ++running.piece;
      running.in_piece = 0;
    }
  }
}

void DiskWorker::finish(Running& running) {
  if (running.job.kind == Job::Kind::kWrite) return settle_write(running);
  if (running.error != 0) return end(running, JobEnd::Outcome::kFailed);
  const bool record = running.job.kind == Job::Kind::kReadRecord;
  const bool whole = running.copied == running.job.expected.length;
  const bool damaged = running.damaged || (record && (!whole || running.sum != running.wanted_sum));
  end(running, damaged ? JobEnd::Outcome::kDamaged : JobEnd::Outcome::kDone);
}

void DiskWorker::settle_write(Running& running) {
  writing_.erase(running.number);
  if (running.error != 0) return end(running, JobEnd::Outcome::kFailed);
  if (!running.job.durable) return end(running, JobEnd::Outcome::kDone);
  if (written_.empty()) oldest_written_ns_ = now_ns_;
  written_[running.number] = &running;
  written_bytes_ += running.job.bytes;
  flush_soon_ = flush_soon_ || running.job.soon;
}

// A write that began before is under way: a flush would not make the later one count.
bool DiskWorker::flush_waits_for_a_write() const {
  return !writing_.empty() && writing_.begin()->first < written_.begin()->first;
}

bool DiskWorker::flush_is_due() const {
  if (flushing_ || written_.empty() || flush_waits_for_a_write()) return false;
  return flush_soon_ || written_bytes_ >= kFlushBytes || writing_.empty() ||
         now_ns_ >= oldest_written_ns_ + kFlushDelayNs;
}

void DiskWorker::maybe_flush() {
  if (!flush_is_due() || free_parts_.empty()) return;
  const std::uint32_t cookie = free_parts_.back();
  free_parts_.pop_back();
  parts_[cookie] = {};
  flushing_ = true;
  flush_soon_ = false;
  flush_covers_ = writing_.empty() ? next_number_ : writing_.begin()->first;
  disk_->submit({.kind = BlockOperation::Kind::kFlush, .cookie = cookie});
}

void DiskWorker::end_flush(int error) {
  flushing_ = false;
  // The kernel may have dropped the bytes of any write that waited, and the next flush would succeed
  // without them. So a failed flush fails all of these writes.
  const auto end_of_covered = error != 0 ? written_.end() : written_.lower_bound(flush_covers_);
  for (auto next = written_.begin(); next != end_of_covered;) {
    Running& running = *next->second;
    next = written_.erase(next);
    written_bytes_ -= running.job.bytes;
    running.error = error;
    end(running, error != 0 ? JobEnd::Outcome::kFailed : JobEnd::Outcome::kDone);
  }
  oldest_written_ns_ = now_ns_;
  for (const auto& [number, running] : written_) flush_soon_ = flush_soon_ || running->job.soon;
}

void DiskWorker::end(Running& running, JobEnd::Outcome outcome) {
  ended_.push_back({.id = running.job.id,
                    .outcome = outcome,
                    .error = running.error,
                    .bytes = std::move(running.result),
                    .checksum = running.sum_for_caller.value_or(running.sum)});
  --active_;
  if (running.job.kind != Job::Kind::kWrite) --reads_;
  begun_.erase(running.self);
}

std::vector<std::byte*>& DiskWorker::buffers_for(std::uint64_t bytes) {
  return bytes <= kSmallBufferBytes ? small_buffers_ : large_buffers_;
}

std::byte* DiskWorker::take_buffer(std::uint64_t bytes) {
  auto& buffers = buffers_for(bytes);
  std::byte* const buffer = buffers.back();
  buffers.pop_back();
  return buffer;
}

}  // namespace mc::tier
