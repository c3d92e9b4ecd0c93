// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/disk_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace mc::tier {

namespace {

// Segments that new records leave free: one for copies of the cleaner, one for new records meanwhile, and on
// a larger disk more. A crash during cleaning costs a segment until the cleaner comes to it.
std::uint32_t reserved_segments(std::uint32_t segments) {
  return std::clamp(segments / 64, 2u, 6u);
}

std::uint32_t low_watermark(std::uint32_t segments) {
  return std::max(reserved_segments(segments) + 1, segments / 64);
}

}  // namespace

DiskLog::DiskLog(DiskJobs& jobs, Catalog& catalog, const Superblock& superblock, bool empty,
                 const Config& config)
    : jobs_(jobs),
      catalog_(catalog),
      superblock_(superblock),
      geometry_{.disk = superblock.disk,
                .segment_bytes = superblock.segment_bytes,
                .life = superblock.life},
      config_(config),
      segments_(static_cast<std::uint32_t>(superblock.segment_count)),
      recovery_(new_recovery()),
      cleaner_(catalog, segments_, geometry_),
      batches_of_(superblock.segment_count) {
  catalog_.add_disk(superblock.disk, segments_.count());
  if (empty) recovery_->begin_empty();
}

std::unique_ptr<Recovery> DiskLog::new_recovery() {
  return std::make_unique<Recovery>(catalog_, segments_, geometry_);
}

void DiskLog::begin_run(std::uint64_t run, std::uint64_t served_run, std::uint64_t members) {
  superblock_.run = run;
  superblock_.served_run = served_run;
  superblock_.members = members;
  write_superblock();
}

// One copy after the other, so that a power cut leaves one of them whole. A change meanwhile begins anew.
void DiskLog::write_superblock() {
  tier::seal(superblock_);
  superblock_again_ = superblock_jobs_ > 0;
  if (superblock_again_) return;
  ++superblock_jobs_;
  write_superblock_copy(kSuperblocks - 1);
}

void DiskLog::write_superblock_copy(std::uint64_t copy) {
  std::vector<std::byte> own(kBlockBytes);
  std::memcpy(own.data(), &superblock_, sizeof(superblock_));
  Job job{.kind = Job::Kind::kWrite,
          .offset = copy * kBlockBytes,
          .bytes = kBlockBytes,
          .pieces = {{own.data(), own.size()}},
          .durable = true,
          .soon = true};
  job.own = std::move(own);
  submit(std::move(job),
         {.kind = Task::Kind::kSuperblock, .mark = copy, .voids = superblock_.life == 0});
}

bool DiskLog::has_room_for(const RecordHeader& header) const {
  return outstanding_bytes() == 0 || outstanding_bytes() + header.record_bytes() <= kWaitingBytes;
}

void DiskLog::append(NewRecord record) {
  record.since_ns = now_ns_;
  if (failed_) return end_record(record, Class::kNew);
  waiting_bytes_ += record.header.record_bytes();
  open(Class::kNew).waiting.push_back(std::move(record));
}

void DiskLog::read(std::uint64_t ticket, std::uint32_t entry, std::string key,
                   std::vector<Piece> to, Urgency urgency, std::uint64_t sum_seed) {
  TierEntry& found = catalog_.at(entry);
  if (found.uses < kMostUses) ++found.uses;
  ++segments_.at(number_of(found.place.segment)).readers;
  ++counters_.reads;
  Job job{.kind = Job::Kind::kReadRecord,
          .urgency = urgency,
          .offset = kFirstSegmentOffset +
                    number_of(found.place.segment) * superblock_.segment_bytes +
                    found.place.unit * kUnitBytes,
          .bytes = found.record_bytes(),
          .pieces = std::move(to),
          .expected = found,
          .sum_seed = sum_seed,
          .stamp = stamp_of(geometry_.life, segments_.at(number_of(found.place.segment)).sequence)};
  submit(std::move(job),
         {.kind = Task::Kind::kRead, .mark = ticket, .key = std::move(key), .entry = found});
}

std::shared_ptr<DiskLog::WalkRead> DiskLog::read_for_walk(std::uint32_t number,
                                                          std::uint64_t offset,
                                                          std::uint64_t bytes) {
  if (!walk_read_.expired()) return nullptr;
  auto read = std::make_shared<WalkRead>();
  walk_read_ = read;
  ++segments_.at(number).readers;
  submit({.kind = Job::Kind::kRead,
          .urgency = Urgency::kLog,
          .offset = geometry_.offset_of(number) + offset,
          .bytes = bytes},
         {.kind = Task::Kind::kWalk, .mark = number, .walk = read});
  return read;
}

void DiskLog::submit(Job job, Task task) {
  job.id = next_job_++;
  task.bytes = job.bytes;
  task.write = job.kind == Job::Kind::kWrite;
  if (task.write) {
    counters_.written_bytes += job.bytes;
    ++writes_under_way_;
  }
  tasks_.emplace(job.id, std::move(task));
  jobs_.submit(std::move(job));
}

// Counts only time in which the agent runs.
void DiskLog::watch_silence(std::uint64_t passed_ns) {
  const bool a_write = std::any_of(new_ends_.begin(), new_ends_.end(), [this](const JobEnd& end) {
    const auto task = tasks_.find(end.id);
    return task != tasks_.end() && task->second.write;
  });
  silent_ns_ = new_ends_.empty() && !tasks_.empty() ? silent_ns_ + passed_ns : 0;
  writes_silent_ns_ = !a_write && writes_under_way_ > 0 ? writes_silent_ns_ + passed_ns : 0;
  if (gave_up_ || std::max(silent_ns_, writes_silent_ns_) <= kAnswerNs) return;
  gave_up_ = true;
  jobs_.give_up();
  for (const auto& [id, task] : tasks_) {
    job_ends_.push_back({.id = id, .outcome = JobEnd::Outcome::kFailed, .error = ETIMEDOUT});
  }
  if (!failed_) fail(ETIMEDOUT);
}

void DiskLog::do_work(std::uint64_t now_ns) {
  if (writing_bytes_ > 0) busy_ns_ += now_ns - now_ns_;
  if (done_bytes_ > kSpeedBytes) {
    done_bytes_ /= 2;
    busy_ns_ /= 2;
  }
  const std::uint64_t passed_ns = std::min(now_ns - now_ns_, kLongestStepNs);
  now_ns_ = now_ns;
  new_ends_.clear();
  jobs_.take_ended(new_ends_);
  watch_silence(passed_ns);
  std::move(new_ends_.begin(), new_ends_.end(), std::back_inserter(job_ends_));
  for (std::size_t records = 0; records < kStepRecords && !job_ends_.empty();) {
    records += take_job(std::move(job_ends_.front()));
    job_ends_.pop_front();
  }
  if (failed_) {
    end_some_waiting();
    erase_some();
    return;
  }
  if (!serving_ || !superblock_is_durable()) return;
  if (must_empty() && !begin_new_life()) return;
  recover_some();
  if (!recovery_->knows_segments()) return;
  seal_marked();
  if (recovery_->done()) clean_some();
  write_batch(Class::kCopy);
  write_batch(Class::kNew);
  write_footers();
}

// Goes on with erasing all entries of this disk. Returns true at the end.
bool DiskLog::erase_some() {
  if (next_erased_ == kNoEntry) return true;
  std::vector<TierEntry> erased;
  next_erased_ = catalog_.erase_some(segment_id(superblock_.disk, Catalog::kAllSegments),
                                     next_erased_, kStepRecords, erased);
  for (const TierEntry& entry : erased) {
    dropped_.push_back({.key = entry.key(),
                        .namespace_id = catalog_.namespace_of(entry),
                        .version = entry.version});
  }
  return next_erased_ == kNoEntry;
}

// The disk goes on without objects. Returns true at the end.
bool DiskLog::begin_new_life() {
  if (!emptying_) {
    emptying_ = true;
    ++emptied_;
    ++superblock_.life;
    write_superblock();
    return false;
  }
  // Reads that are under way end first.
  if (!tasks_.empty() || !erase_some()) return false;
  next_erased_ = 0;
  for (Open& open : open_) open.writer.reset();
  open(Class::kCopy).waiting.clear();
  sealing_.clear();
  catalog_.forget_disk(superblock_.disk);
  segments_ = SegmentTable(segments_.count());
  recovery_ = new_recovery();
  recovery_->begin_empty();
  geometry_.life = superblock_.life;
  cleaner_.begin_life();
  nothing_to_clean_ = no_room_for_removals_ = false;
  emptying_ = false;
  return true;
}

// Returns the number of records, at least 1.
std::size_t DiskLog::take_job(JobEnd end) {
  auto node = tasks_.extract(end.id);
  if (node.empty()) return 1;  // given up
  Task& task = node.mapped();
  if (task.write) --writes_under_way_;
  const JobEnd::Outcome outcome = end.outcome;
  const std::size_t records = std::max<std::size_t>(1, task.records.size());
  if (task.write && end.outcome == JobEnd::Outcome::kFailed && !failed_) fail(end.error);
  switch (task.kind) {
    case Task::Kind::kBatch:
      end_batch(std::move(task));
      break;
    case Task::Kind::kFooter: {
      const auto number = static_cast<std::uint32_t>(task.mark);
      std::erase_if(sealing_, [number](const Sealing& sealing) {
        return number_of(sealing.writer.segment()) == number;
      });
      segments_.at(number).state = SegmentState::kSealed;
      nothing_to_clean_ = false;
      break;
    }
    case Task::Kind::kRecovery:
      recovery_->take_end(task.mark, std::move(end));
      break;
    case Task::Kind::kCleaner:
      cleaner_.take_end(std::move(end), task.entry);
      break;
    case Task::Kind::kRead:
      end_read(task, std::move(end));
      break;
    case Task::Kind::kWalk:
      --segments_.at(static_cast<std::uint32_t>(task.mark)).readers;
      task.walk->end = std::move(end);
      task.walk->done = true;
      break;
    case Task::Kind::kSuperblock:
      if (task.voids && outcome == JobEnd::Outcome::kDone) void_copies_ |= 1u << task.mark;
      if (gave_up_) {
        superblock_jobs_ = 0;
      } else if (task.mark > 0 && !superblock_again_) {
        write_superblock_copy(task.mark - 1);
      } else {
        --superblock_jobs_;
        if (superblock_again_) write_superblock();
      }
      break;
  }
  return records;
}

void DiskLog::end(std::uint64_t ticket, LogEnd::Outcome outcome, int error) {
  ended_.push_back({.ticket = ticket, .outcome = outcome, .error = error, .header = {}});
}

void DiskLog::end_read(const Task& task, JobEnd end) {
  --segments_.at(number_of(task.entry.place.segment)).readers;
  const std::uint32_t number = catalog_.find_any(task.entry.key());
  const bool live = number != kNoEntry && catalog_.at(number).place == task.entry.place;
  if (end.outcome == JobEnd::Outcome::kFailed) {
    if (live) catalog_.at(number).flags |= kEntryRefused;
    ++counters_.failed;
    return this->end(task.mark, LogEnd::Outcome::kFailed, end.error);
  }
  if (end.outcome == JobEnd::Outcome::kDamaged) {
    if (live) catalog_.at(number).flags |= kEntryDamaged;
    ++counters_.damaged;
    return this->end(task.mark, LogEnd::Outcome::kDamaged);
  }
  if (live) catalog_.at(number).flags &= kEntryDamaged;  // not kEntryRefused
  LogEnd done{.ticket = task.mark};
  std::memcpy(&done.header, end.bytes.data(), sizeof(done.header));
  const std::string_view key(reinterpret_cast<const char*>(end.bytes.data()) + sizeof(done.header),
                             done.header.key_bytes);
  if (!task.key.empty() && key != task.key) return this->end(task.mark, LogEnd::Outcome::kGone);
  done.key = key;
  done.checksum = end.checksum;
  ended_.push_back(done);
}

void DiskLog::end_batch(Task task) {
  writing_bytes_ -= task.bytes;
  done_bytes_ += task.bytes;
  if (!task.records.empty()) {
    const std::uint32_t number = number_of(task.records.front().header.segment);
    --batches_of_[number];
  }
  for (const NewRecord& record : task.records) end_record(record, task.of);
}

void DiskLog::end_record(const NewRecord& record, Class of) {
  const RecordHeader& header = record.header;
  const bool removal = header.kind == RecordKind::kRemoval;
  if (removal && !failed_) {
    catalog_.count_removal(header);
  }
  if (of == Class::kCopy) {
    if (!removal && !failed_) catalog_.commit_copy(header, record.from);
    return cleaner_.end_copy(record);
  }
  LogEnd::Outcome outcome = LogEnd::Outcome::kDone;
  if (failed_) {
    outcome = LogEnd::Outcome::kFailed;
  } else if (removal) {
    ++counters_.removals;
  } else if (catalog_.commit(header)) {
    ++counters_.puts;
    counters_.new_bytes += header.length;
  } else {
    outcome = LogEnd::Outcome::kGone;
  }
  // The tier ends a removal when it is durable on all its disks.
  if (!removal) catalog_.end(header.tier_key(), header.order);
  end(record.ticket, outcome, failed_ ? error_ : 0);
}

bool DiskLog::is_outdated(const NewRecord& record, Class of) const {
  if (record.header.kind == RecordKind::kRemoval) return false;
  const TierKey key = record.header.tier_key();
  if (of == Class::kCopy) {
    const std::uint32_t number = catalog_.find_any(key);
    return number == kNoEntry || catalog_.at(number).place != record.from;
  }
  const Catalog::Unfinished* const latest = catalog_.unfinished(key);
  return latest == nullptr || latest->order != record.header.order;
}

// A removal is kept only while there are segments that were opened before the removal. So an outdated
// record must not be written into a segment that was opened later.
void DiskLog::leave_out_outdated(Class of) {
  auto& waiting = open(of).waiting;
  std::vector<NewRecord> kept;
  std::uint64_t bytes = 0;
  // The next batch takes no more than these.
  for (std::size_t seen = 0; seen < kStepRecords && kept.size() < SegmentWriter::kMostInBatch &&
                             bytes < config_.batch_bytes && !waiting.empty();
       ++seen) {
    NewRecord record = std::move(waiting.front());
    waiting.pop_front();
    if (!is_outdated(record, of)) {
      bytes += record.header.record_bytes();
      kept.push_back(std::move(record));
    } else if (of == Class::kCopy) {
      cleaner_.end_copy(record);
    } else {
      waiting_bytes_ -= record.header.record_bytes();
      catalog_.end(record.header.tier_key(), record.header.order);
      end(record.ticket, LogEnd::Outcome::kGone);
    }
  }
  std::move(kept.rbegin(), kept.rend(), std::front_inserter(waiting));
}

// Copies wait for all copies that come by themselves: each batch is rounded up to a block, and the copies of
// a segment have to fit into another one.
bool DiskLog::batch_is_due(Class of) const {
  const Open& open = open_[static_cast<std::size_t>(of)];
  if (open.waiting.empty()) return false;
  if (of == Class::kCopy && !cleaner_.has_more_copies()) return true;
  if (of == Class::kNew && now_ns_ >= open.waiting.front().since_ns + config_.linger_ns)
    return true;
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (const NewRecord& record : open.waiting) {
    bytes += record.header.record_bytes();
    if (record.soon || bytes >= config_.batch_bytes) return true;
    if (++count == SegmentWriter::kMostInBatch) return true;
  }
  return false;
}

bool DiskLog::may_open(Class of) const {
  return segments_.free_count() >= (of == Class::kNew ? reserved_segments(segments_.count()) : 1) &&
         segments_.next_to_open() != SegmentTable::kNone;
}

// The open segment for the next waiting record; null: none has room, and none can be opened now. Without a
// free segment, copies go to the segment of new records.
SegmentWriter* DiskLog::writer_for(Class of) {
  Open& own = open(of);
  const NewRecord& next = own.waiting.front();
  if (own.writer != nullptr && own.writer->fits(next)) return own.writer.get();
  if (may_open(of)) {
    if (own.writer != nullptr) seal(std::move(own.writer));
    open_segment(of);
    return own.writer.get();
  }
  SegmentWriter* const shared = open(Class::kNew).writer.get();
  return shared != nullptr && shared->fits(next) ? shared : nullptr;
}

void DiskLog::write_batch(Class of) {
  Open& open = this->open(of);
  if (writing_bytes_ >= kWritingBytes || !batch_is_due(of)) return;
  leave_out_outdated(of);
  if (open.waiting.empty()) return;
  SegmentWriter* const writer = writer_for(of);
  if (writer == nullptr) {
    if (of == Class::kCopy && segments_.free_count() == 0) give_up_copies();
    return;
  }
  SegmentWriter::Batch batch = writer->make_batch(open.waiting, config_.batch_bytes);
  writing_bytes_ += batch.job.bytes;
  ++batches_of_[number_of(writer->segment())];
  if (of == Class::kCopy) segments_.at(number_of(writer->segment())).has_copies = true;
  if (of == Class::kNew) {
    for (const NewRecord& record : batch.records) waiting_bytes_ -= record.header.record_bytes();
  }
  submit(std::move(batch.job),
         {.kind = Task::Kind::kBatch, .of = of, .records = std::move(batch.records)});
}

// Objects that were to stay leave. Only removals must have room.
void DiskLog::give_up_copies() {
  Open& open = this->open(Class::kCopy);
  std::deque<NewRecord> removals;
  for (; !open.waiting.empty(); open.waiting.pop_front()) {
    NewRecord& copy = open.waiting.front();
    if (copy.header.kind == RecordKind::kRemoval) {
      removals.push_back(std::move(copy));
    } else {
      cleaner_.give_up_copy(copy);
    }
  }
  open.waiting = std::move(removals);
  no_room_for_removals_ = !open.waiting.empty() && writer_for(Class::kCopy) == nullptr;
}

// A segment that has to be cleaned is not written on.
void DiskLog::seal_marked() {
  if (!segments_.any_clean_first()) return;
  for (Open& open : open_) {
    if (open.writer == nullptr) continue;
    if (segments_.at(number_of(open.writer->segment())).clean_first) seal(std::move(open.writer));
  }
}

std::uint64_t DiskLog::next_work_ns() const {
  if (!job_ends_.empty()) return 0;
  if (failed_) {
    const bool waits = !open_[0].waiting.empty() || !open_[1].waiting.empty();
    return next_erased_ == kNoEntry && !waits ? UINT64_MAX : 0;
  }
  if (!serving_ || !superblock_is_durable()) return UINT64_MAX;
  if (must_empty()) return emptying_ && !tasks_.empty() ? UINT64_MAX : 0;
  if (recovery_->has_step() || cleaner_.has_step()) return 0;
  if (!recovery_->knows_segments()) return UINT64_MAX;
  if (recovery_->done() && !cleaner_.active() && should_clean()) return 0;
  std::uint64_t next = UINT64_MAX;
  for (const Class of : {Class::kNew, Class::kCopy}) {
    const Open& open = open_[static_cast<std::size_t>(of)];
    if (open.waiting.empty() || writing_bytes_ >= kWritingBytes) continue;
    const bool has_place = open.writer != nullptr && open.writer->fits(open.waiting.front());
    const bool gives_up = of == Class::kCopy && segments_.free_count() == 0;
    if (!has_place && !may_open(of) && !gives_up) continue;
    if (batch_is_due(of)) return 0;
    if (of == Class::kNew) {
      next = std::min(next, open.waiting.front().since_ns + config_.linger_ns);
    }
  }
  return next;
}

void DiskLog::open_segment(Class of) {
  const std::uint64_t sequence = catalog_.take_order();
  const std::uint32_t number = segments_.open(sequence);
  open(of).writer =
      std::make_unique<SegmentWriter>(geometry_.id_of(number), sequence,
                                      SegmentWriter::Geometry{.offset = geometry_.offset_of(number),
                                                              .bytes = superblock_.segment_bytes,
                                                              .life = superblock_.life,
                                                              .copies = of == Class::kCopy});
}

void DiskLog::seal(std::unique_ptr<SegmentWriter> writer) {
  Segment& segment = segments_.at(number_of(writer->segment()));
  segment.state = SegmentState::kSealing;
  segment.sealed_order = last_sealed_order_ = catalog_.take_order();
  segment.footer_bytes = writer->footer_bytes();
  segment.removals = writer->removals();
  sealing_.push_back({.writer = std::move(*writer)});
}

void DiskLog::write_footers() {
  for (Sealing& sealing : sealing_) {
    const std::uint32_t number = number_of(sealing.writer.segment());
    if (sealing.written || batches_of_[number] > 0) continue;
    sealing.written = true;
    Job job = sealing.writer.make_footer(segments_.at(number).sealed_order);
    submit(std::move(job), {.kind = Task::Kind::kFooter, .mark = number});
  }
}

void DiskLog::recover_some() {
  if (recovery_->done()) {
    recovery_->step();
    return;
  }
  while (auto next = recovery_->next_job()) {
    submit(std::move(next->job), {.kind = Task::Kind::kRecovery, .mark = next->mark});
  }
  recovery_->step();
  if (!recovery_->done()) return;
  // An open segment is written on: a crash during cleaning must not cost free segments.
  for (SegmentWriter& writer : recovery_->take_unsealed()) {
    Segment& segment = segments_.at(number_of(writer.segment()));
    Open& open = this->open(writer.copies() ? Class::kCopy : Class::kNew);
    if (open.writer == nullptr && !segment.clean_first && writer.may_go_on()) {
      segment.state = SegmentState::kOpen;
      open.writer = std::make_unique<SegmentWriter>(std::move(writer));
    } else {
      sealing_.push_back({.writer = std::move(writer)});
    }
  }
}

bool DiskLog::should_clean() const {
  return !nothing_to_clean_ &&
         (segments_.any_clean_first() || segments_.free_count() < low_watermark(segments_.count()));
}

void DiskLog::clean_some() {
  if (!cleaner_.active()) {
    if (!should_clean()) return;
    cleaner_.begin(counters_.new_bytes, settled_);
  }
  cleaner_.step();
  nothing_to_clean_ = cleaner_.found_nothing();
  while (auto job = cleaner_.next_job()) {
    const TierEntry expected = job->expected;
    submit(std::move(*job), {.kind = Task::Kind::kCleaner, .entry = expected});
  }
  while (auto copy = cleaner_.next_copy()) {
    copy->since_ns = now_ns_;
    open(Class::kCopy).waiting.push_back(std::move(*copy));
  }
  for (Dropped& dropped : cleaner_.take_dropped()) dropped_.push_back(std::move(dropped));
}

void DiskLog::fail(int error) {
  failed_ = true;
  error_ = error;
  for (Open& open : open_) open.writer.reset();
  sealing_.clear();
  catalog_.forget_shadowed(superblock_.disk);
  superblock_.life = 0;
  if (!gave_up_) write_superblock();
}

void DiskLog::end_some_waiting() {
  for (const Class of : {Class::kNew, Class::kCopy}) {
    auto& waiting = open(of).waiting;
    for (std::size_t i = 0; i < kStepRecords && !waiting.empty(); ++i) {
      const NewRecord record = std::move(waiting.front());
      waiting.pop_front();
      if (of == Class::kNew) waiting_bytes_ -= record.header.record_bytes();
      end_record(record, of);
    }
  }
}

void DiskLog::take_ended(std::vector<LogEnd>& ended) {
  std::move(ended_.begin(), ended_.end(), std::back_inserter(ended));
  ended_.clear();
}

void DiskLog::take_dropped(std::vector<Dropped>& dropped) {
  std::move(dropped_.begin(), dropped_.end(), std::back_inserter(dropped));
  dropped_.clear();
}

bool DiskLog::idle() const {
  return tasks_.empty() && open_[0].waiting.empty() && open_[1].waiting.empty() &&
         (failed_ || (recovery_->done() && sealing_.empty() && !cleaner_.active() &&
                      !should_clean() && !catalog_.has_shadowed(superblock_.disk)));
}

}  // namespace mc::tier
