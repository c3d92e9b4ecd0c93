// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/cleaner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "libmc/base/failpoint.h"

namespace mc::tier {

namespace {

constexpr double kMostlyDead = 0.5;  // live share below which all live records of a segment stay
constexpr double kCopyShare = 0.25;  // bytes that copies may take, of the bytes of puts
constexpr std::uint64_t kCopiedSegments = 4;  // that copies may take beside, from the start on
constexpr std::uint64_t kRemovalShare = 512;  // removals take at most 1/512 of a disk

}  // namespace

double Cleaner::copies_left_bytes() const {
  const auto granted = static_cast<double>(kCopiedSegments * place_.segment_bytes);
  return granted + kCopyShare * static_cast<double>(new_bytes_) -
         static_cast<double>(counters_.copied_bytes);
}

bool Cleaner::may_copy() const { return segments_.free_count() > 0 && copies_left_bytes() > 0; }

// The fewer bytes are left for copies, the more reads a record needs. A reader of a chain reads its first objects in
// each case, so the ends of chains leave first.
std::uint32_t Cleaner::uses_to_stay() const {
  const double left = copies_left_bytes();
  auto enough = static_cast<double>(kCopiedSegments * place_.segment_bytes);
  std::uint32_t uses = 1;
  for (; left < enough && uses <= kMostUses / 2; enough /= 2) uses *= 2;
  return uses;
}

// Whether the copies of all live records, with their headers in a footer, leave half of the segment.
bool Cleaner::gains(std::uint32_t number) const {
  const std::uint64_t live = catalog_.live_units(place_.id_of(number)) * kUnitBytes;
  return static_cast<double>(live + segments_.at(number).footer_bytes) <
         kMostlyDead * static_cast<double>(place_.segment_bytes);
}

void Cleaner::begin(std::uint64_t new_bytes, bool settled) {
  new_bytes_ = new_bytes;
  settled_ = settled;
  found_nothing_ = false;
  evicting_ = settled && segments_.free_count() == 0;
  seen_ = {};
  state_ = State::kChoosing;
}

void Cleaner::see(std::uint32_t number) {
  const Segment& segment = segments_.at(number);
  if (segment.state == SegmentState::kFree) return;
  seen_.second = std::min(seen_.second, std::max(segment.sequence, seen_.lowest));
  seen_.lowest = std::min(seen_.lowest, segment.sequence);
  if (segment.clean_first && seen_.marked == SegmentTable::kNone) seen_.marked = number;
  if (segment.state != SegmentState::kSealed) return;
  seen_.removals += segment.removals;
  const auto better = [](std::uint32_t& best, std::uint32_t candidate, const auto& value) {
    if (best == SegmentTable::kNone || value(candidate) < value(best)) best = candidate;
  };
  const auto live = [this](std::uint32_t each) { return catalog_.live_units(place_.id_of(each)); };
  const auto sequence = [this](std::uint32_t each) { return segments_.at(each).sequence; };
  const auto sealed = [this](std::uint32_t each) { return segments_.at(each).sealed_order; };
  better(seen_.emptiest, number, live);
  better(seen_.opened_first, number, sequence);
  better(seen_.oldest, number, sealed);
  if (segment.removals == 0) better(seen_.without_removals, number, sealed);
}

std::uint32_t Cleaner::choose() {
  constexpr std::uint32_t kNone = SegmentTable::kNone;
  if (seen_.marked != kNone) {
    // An open segment is sealed first.
    return segments_.at(seen_.marked).state == SegmentState::kSealed ? seen_.marked : kNone;
  }
  if (seen_.emptiest == kNone) return kNone;
  const std::uint32_t live = catalog_.live_units(place_.id_of(seen_.emptiest));
  if (live == 0) return seen_.emptiest;
  const std::uint64_t disk_bytes = segments_.count() * place_.segment_bytes;
  const bool many_removals = seen_.removals * sizeof(RecordHeader) > disk_bytes / kRemovalShare;
  const bool worth_copies = gains(seen_.emptiest) && may_copy();
  if (!settled_) return worth_copies ? seen_.emptiest : kNone;
  if (!many_removals && worth_copies) return seen_.emptiest;
  // Removals that stay need room for their copies.
  if (evicting_ && seen_.without_removals != kNone) return seen_.without_removals;
  // Removals leave when all segments that are older than they have left.
  evicting_ = evicting_ || !many_removals || !may_copy();
  return many_removals ? seen_.opened_first : seen_.oldest;
}

void Cleaner::begin_with(std::uint32_t victim) {
  victim_ = victim;
  Segment& segment = segments_.at(victim_);
  segment.state = SegmentState::kCleaning;
  const bool empty = catalog_.live_units(victim_id()) == 0;
  MC_FAILPOINT("clean.chosen");
  state_ = empty ? State::kVoiding : State::kReading;
  job_given_ = read_all_ = footer_damaged_ = false;
  next_erased_ = removals_found_ = 0;
  lowest_other_ = segment.sequence == seen_.lowest ? seen_.second : seen_.lowest;
  if (!settled_) lowest_other_ = 0;  // all removals stay
  ++counters_.segments;
}

void Cleaner::begin_life() {
  state_ = State::kIdle;
  lost_removals_ = found_nothing_ = false;
  walk_.reset();
  reads_.clear();
  copies_.clear();
  buffers_.clear();
  leaving_.clear();
  copies_under_way_ = 0;
  bytes_under_way_ = 0;
}

std::optional<Job> Cleaner::next_job() {
  Job job{.urgency = Urgency::kCleaning};
  if (state_ == State::kReading && !job_given_) {
    job_given_ = true;
    job.kind = Job::Kind::kRead;
    const std::uint64_t region = footer_region_bytes(segments_.at(victim_).footer_bytes);
    job.bytes = read_all_ ? place_.segment_bytes - region : region;
    job.offset = place_.offset_of(victim_) + (read_all_ ? 0 : place_.segment_bytes - region);
    return job;
  }
  if (state_ == State::kCopying && !reads_.empty()) {
    job = std::move(reads_.front());
    reads_.pop_front();
    return job;
  }
  if (state_ == State::kVoiding && !job_given_) {
    job_given_ = true;
    job.kind = Job::Kind::kWrite;
    job.offset = place_.offset_of(victim_);
    job.bytes = kHeaderBytes;
    job.pieces.push_back({nullptr, kHeaderBytes});
    job.durable = true;
    return job;
  }
  return std::nullopt;
}

void Cleaner::take_end(JobEnd end, const TierEntry& expected) {
  if (state_ == State::kReading) return take_footer(std::move(end));
  if (state_ == State::kVoiding) {
    MC_FAILPOINT("clean.voided");
    state_ = State::kErasing;
    return;
  }
  // A record that stays.
  auto buffer = buffers_.extract(expected.place.unit);
  const std::uint32_t number = catalog_.find_any(expected.key());
  const bool live = number != kNoEntry && catalog_.at(number).place == expected.place;
  if (end.outcome != JobEnd::Outcome::kDone || !live) {
    if (live) {
      leaving_.push_back({.key = expected.key(), .unit = expected.place.unit});
      ++(end.outcome == JobEnd::Outcome::kFailed ? counters_.failed : counters_.damaged);
    }
    --copies_under_way_;
    bytes_under_way_ -= buffer.mapped().bytes;
    return;
  }
  NewRecord copy;
  std::memcpy(&copy.header, end.bytes.data(), sizeof(copy.header));
  copy.key.assign(reinterpret_cast<const char*>(end.bytes.data()) + sizeof(copy.header),
                  copy.header.key_bytes);
  copy.own = std::move(buffer.mapped().data);
  copy.pieces.push_back({copy.own.get(), buffer.mapped().bytes});
  copy.from = expected.place;
  copies_.push_back(std::move(copy));
}

void Cleaner::take_footer(JobEnd end) {
  Segment& segment = segments_.at(victim_);
  const RecordWalk::Segment what{.id = victim_id(),
                                 .sequence = segment.sequence,
                                 .life = place_.life,
                                 .bytes = place_.segment_bytes};
  const bool read = end.outcome == JobEnd::Outcome::kDone;
  if (!read_all_) {
    if (read) walk_ = RecordWalk::over_footer(what, std::move(end.bytes));
    if (!walk_) return read_all();
  } else if (read || segment.removals == 0) {
    // Without readable bytes no object can stay.
    walk_ = RecordWalk::over_segment(what, std::move(end.bytes));
  } else {
    // Without its removals, records of other segments would count again.
    lost_removals_ = true;
    return;
  }
  state_ = State::kCopying;
}

// The footer is damaged: all bytes before tell the same. Records that were found already are found again.
void Cleaner::read_all() {
  read_all_ = true;
  job_given_ = footer_damaged_ = false;
  removals_found_ = 0;
  state_ = State::kReading;
}

bool Cleaner::stays(const TierEntry& entry) const {
  if ((entry.flags & kEntryDamaged) != 0) return false;
  if (!evicting_) return true;
  return entry.uses >= uses_to_stay() && may_copy();
}

void Cleaner::look_at(const RecordWalk::Found& found) {
  const RecordHeader& header = found.header;
  if (header.kind == RecordKind::kRemoval) {
    ++removals_found_;
    // An earlier segment may have a record of the key.
    if (lowest_other_ >= header.order) return;
    counters_.copied_bytes += header.record_bytes();
    NewRecord copy{.header = header, .key = std::string(found.key), .from = header.place()};
    ++copies_under_way_;
    copies_.push_back(std::move(copy));
    return;
  }
  const std::uint32_t number = catalog_.find_any(header.tier_key());
  if (number == kNoEntry || catalog_.at(number).place != header.place()) return;
  const TierEntry& entry = catalog_.at(number);
  if (!stays(entry)) {
    leaving_.push_back({.key = entry.key(), .unit = header.unit});
    return;
  }
  Buffer buffer{.data = std::make_unique_for_overwrite<std::byte[]>(entry.length),
                .bytes = entry.length};
  Job job{.kind = Job::Kind::kReadRecord,
          .urgency = Urgency::kCleaning,
          .offset = place_.offset_of(victim_) + header.unit * kUnitBytes,
          .bytes = header.record_bytes(),
          .expected = entry,
          .stamp = stamp_of(place_.life, segments_.at(victim_).sequence)};
  job.pieces.push_back({buffer.data.get(), buffer.bytes});
  ++copies_under_way_;
  bytes_under_way_ += buffer.bytes;
  counters_.copied_bytes += header.record_bytes();
  buffers_[header.unit] = std::move(buffer);
  reads_.push_back(std::move(job));
}

void Cleaner::look_at_records() {
  for (std::uint32_t i = 0; i < kStepRecords && may_look(); ++i) {
    if (const auto found = walk_->next()) {
      look_at(*found);
      continue;
    }
    if (!walk_->done()) return;
    const bool complete = walk_->complete();
    walk_.reset();
    footer_damaged_ = !read_all_ && !complete;
    if (!footer_damaged_) lost_removals_ = removals_found_ < segments_.at(victim_).removals;
    return;
  }
}

std::optional<NewRecord> Cleaner::next_copy() {
  if (copies_.empty()) return std::nullopt;
  NewRecord copy = std::move(copies_.front());
  copies_.pop_front();
  return copy;
}

void Cleaner::end_copy(const NewRecord& copy) {
  --copies_under_way_;
  if (copy.own != nullptr) bytes_under_way_ -= copy.header.length;
}

void Cleaner::give_up_copy(const NewRecord& copy) {
  leaving_.push_back({.key = copy.header.tier_key(), .unit = copy.from.unit});
  end_copy(copy);
}

void Cleaner::step() {
  if (lost_removals_) return;
  if (state_ == State::kChoosing) {
    const std::uint32_t end = std::min(segments_.count(), seen_.next + kStepSegments);
    while (seen_.next < end) see(seen_.next++);
    if (end < segments_.count()) return;
    const std::uint32_t victim = choose();
    found_nothing_ = victim == SegmentTable::kNone;
    state_ = State::kIdle;
    if (!found_nothing_) begin_with(victim);
  } else if (state_ == State::kCopying) {
    if (walk_) return look_at_records();
    if (copies_under_way_ > 0) return;
    if (footer_damaged_) return read_all();
    MC_FAILPOINT("clean.copied");
    state_ = State::kVoiding;
    job_given_ = false;
  } else if (state_ == State::kErasing) {
    erase_some();
  }
}

void Cleaner::drop(const TierEntry& entry) {
  dropped_.push_back(
      {.key = entry.key(), .namespace_id = catalog_.namespace_of(entry), .version = entry.version});
  ++counters_.dropped;
}

void Cleaner::erase_some() {
  for (std::uint32_t i = 0; i < kStepRecords && !leaving_.empty(); ++i) {
    const Leaving& leaving = leaving_.front();
    const std::uint32_t number = catalog_.find_any(leaving.key);
    if (number != kNoEntry &&
        catalog_.at(number).place == Place{.segment = victim_id(), .unit = leaving.unit}) {
      drop(catalog_.at(number));
      catalog_.erase(number);
    }
    leaving_.pop_front();
  }
  if (!leaving_.empty()) return;
  if (read_all_ && next_erased_ != kNoEntry) {
    // Damaged records were not found in the segment, but the catalog may know them.
    std::vector<TierEntry> erased;
    next_erased_ = catalog_.erase_some(victim_id(), next_erased_, kStepRecords * 16, erased);
    for (const TierEntry& entry : erased) drop(entry);
    return;
  }
  catalog_.forget_segment(victim_id());
  segments_.free(victim_);
  state_ = State::kIdle;
}

}  // namespace mc::tier
