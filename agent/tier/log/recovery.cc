// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/recovery.h"

#include <algorithm>
#include <utility>

#include "libmc/base/checksum.h"

namespace mc::tier {

Recovery::Recovery(Catalog& catalog, SegmentTable& segments, const DiskGeometry& geometry)
    : catalog_(catalog),
      segments_(segments),
      geometry_(geometry),
      looks_(segments.count()),
      looks_left_(2 * std::uint64_t{segments.count()}) {}

void Recovery::begin_empty() {
  for (std::uint32_t number = 0; number < segments_.count(); ++number) segments_.free(number);
  looks_ = {};
  phase_ = Phase::kDone;
}

bool Recovery::may_read() const {
  if (must_empty_) return false;
  if (phase_ == Phase::kHeaders) {
    return (next_look_ < 2 * looks_.size() || !more_.empty()) && reading_ < kHeadersAtOnce;
  }
  if (salvage_) {
    return salvage_->next < salvage_->bytes.size() / kBlockBytes && reading_ < kHeadersAtOnce;
  }
  if (phase_ != Phase::kRecords || unread_count() == 0) return false;
  // One whole segment at a time: it may have 256 MiB.
  const std::size_t most = whole_.empty() ? kReadsAtOnce : 1;
  return reading_ + arrived_.size() + (walk_ ? 1 : 0) < most;
}

std::optional<Recovery::MarkedJob> Recovery::next_look() {
  std::uint64_t mark = 0;
  if (!more_.empty()) {
    mark = more_.front();
    more_.pop_front();
  } else {
    mark = mark_of(next_look_ % 2 == 0 ? Read::kHeader : Read::kTrailer, next_look_ / 2);
    ++next_look_;
  }
  const auto read = static_cast<Read>(mark >> 32);
  Job job{.kind = Job::Kind::kRead, .urgency = Urgency::kLog};
  job.offset = geometry_.offset_of(static_cast<std::uint32_t>(mark));
  job.bytes = read == Read::kHeader ? kHeaderBytes : kBlockBytes;
  if (read == Read::kBlock1) job.offset += kBlockBytes;
  if (read == Read::kTrailer) job.offset += geometry_.segment_bytes - kBlockBytes;
  return MarkedJob{.job = std::move(job), .mark = mark};
}

std::optional<Recovery::MarkedJob> Recovery::next_job() {
  if (!may_read()) return std::nullopt;
  ++reading_;
  if (phase_ == Phase::kHeaders) return next_look();
  if (salvage_) return next_salvage();
  Job job{.kind = Job::Kind::kRead, .urgency = Urgency::kLog};
  Unread next;
  if (!whole_.empty()) {
    next = whole_.front();
    whole_.pop_front();
    job.offset = geometry_.offset_of(next.number);
    job.bytes = geometry_.segment_bytes - next.unreadable_end;
  } else {
    std::pop_heap(sealed_.begin(), sealed_.end(), comes_later);
    next = sealed_.back();
    sealed_.pop_back();
    job.bytes = footer_region_bytes(segments_.at(next.number).footer_bytes);
    job.offset = geometry_.offset_of(next.number) + geometry_.segment_bytes - job.bytes;
  }
  unread_[next.number] = next;
  return MarkedJob{.job = std::move(job), .mark = mark_of(Read::kRecords, next.number)};
}

void Recovery::take_end(std::uint64_t mark, JobEnd end) {
  const auto read = static_cast<Read>(mark >> 32);
  const auto number = static_cast<std::uint32_t>(mark);
  --reading_;
  if (read == Read::kBlock) return take_salvage(number, end);
  if (read == Read::kRecords) {
    arrived_[number] = std::move(end);
    return;
  }
  take_look(read, number, end);
  if (--looks_left_ == 0) begin_records();
}

void Recovery::take_look(Read read, std::uint32_t number, const JobEnd& end) {
  Look& look = looks_[number];
  const bool done = end.outcome == JobEnd::Outcome::kDone;
  if (read == Read::kTrailer) {
    look.trailer_unreadable = !done;
    if (done) look.trailer = read_trailer(end.bytes, geometry_.life);
  } else if (done) {
    for (std::uint64_t at = 0; at < end.bytes.size(); at += kBlockBytes) {
      look_at_header(number, std::span(end.bytes).subspan(at, kBlockBytes));
    }
  } else if (read == Read::kHeader) {
    more_.push_back(mark_of(Read::kBlock0, number));
    more_.push_back(mark_of(Read::kBlock1, number));
    looks_left_ += 2;
  } else {
    ++look.bad_blocks;
  }
}

void Recovery::look_at_header(std::uint32_t number, std::span<const std::byte> block) {
  Look& look = looks_[number];
  const auto header = read_segment_header(block);
  if (!header || (header->life == geometry_.life && header->segment != geometry_.id_of(number))) {
    const bool zeros = std::all_of(block.begin(), block.end(),
                                   [](std::byte byte) { return byte == std::byte{0}; });
    if (!zeros) ++look.bad_blocks;
  } else if (header->life == geometry_.life) {
    look.good_blocks = header->sequence == look.sequence ? look.good_blocks + 1 : 1;
    look.sequence = header->sequence;
    look.copies = header->copies != 0;
  }
}

// A block of zeros says that the segment is free. Two bad blocks say nothing: if the segment has a trailer
// of this life, it may have removals.
void Recovery::begin_records() {
  phase_ = Phase::kRecords;
  for (std::uint32_t number = 0; number < segments_.count(); ++number) {
    const Look& look = looks_[number];
    if (look.sequence == 0) {
      const bool unknown = look.bad_blocks == 2 && (look.trailer || look.trailer_unreadable);
      must_empty_ = must_empty_ || unknown;
      segments_.free(number);
      continue;
    }
    Segment& segment = segments_.at(number);
    segment.sequence = segment.sealed_order = look.sequence;
    Unread unread{.number = number, .copies = look.copies};
    unread.one_header = look.good_blocks < 2;
    unread.was_sealed = look.trailer_unreadable;
    const auto& trailer = look.trailer;
    if (trailer && trailer->sequence == look.sequence &&
        footer_region_bytes(trailer->footer_bytes) < geometry_.segment_bytes) {
      segment.footer_bytes = trailer->footer_bytes;
      segment.sealed_order = trailer->sealed_order;
      unread.max_order = trailer->max_order;
      unread.may_have_removals = trailer->removals > 0;
      unread.removals = trailer->removals;
      unread.was_sealed = true;
      sealed_.push_back(unread);
    } else {
      unread.unreadable_end = look.trailer_unreadable ? kBlockBytes : 0;
      unread.whole = true;
      whole_.push_back(unread);
    }
  }
  looks_ = {};
  std::make_heap(sealed_.begin(), sealed_.end(), comes_later);
}

std::uint64_t Recovery::unread_order() const {
  constexpr std::size_t kMostLooks = 64;
  if (phase_ == Phase::kHeaders || must_empty_ || whole_.size() > kMostLooks) return UINT64_MAX;
  std::uint64_t order = sealed_.empty() ? 0 : sealed_.front().max_order;
  for (const Unread& unread : whole_) order = std::max(order, unread.max_order);
  for (const auto& [number, unread] : unread_) order = std::max(order, unread.max_order);
  return order;
}

bool Recovery::has_step() const {
  if (must_empty_) return false;
  if (phase_ == Phase::kDone) return catalog_.has_shadowed(geometry_.disk);
  const bool all_read =
      phase_ == Phase::kRecords && unread_count() == 0 && reading_ == 0 && !salvage_;
  return walk_ || !arrived_.empty() || all_read || may_read();
}

// The footer is damaged: all bytes before tell the same.
void Recovery::read_whole(Unread unread) {
  unread_.erase(unread.number);
  Segment& segment = segments_.at(unread.number);
  catalog_.forget_removals(geometry_.id_of(unread.number), std::exchange(segment.removals, 0));
  unread.whole = true;
  whole_.push_back(unread);
}

void Recovery::begin_salvage(const Unread& unread) {
  salvage_.emplace(Salvage{.unread = unread});
  salvage_->bytes.resize(geometry_.segment_bytes - unread.unreadable_end);
  salvage_->left = static_cast<std::uint32_t>(salvage_->bytes.size() / kBlockBytes);
}

Recovery::MarkedJob Recovery::next_salvage() {
  const std::uint32_t block = salvage_->next++;
  return {.job = {.kind = Job::Kind::kRead,
                  .urgency = Urgency::kLog,
                  .offset = geometry_.offset_of(salvage_->unread.number) + block * kBlockBytes,
                  .bytes = kBlockBytes},
          .mark = mark_of(Read::kBlock, block)};
}

void Recovery::take_salvage(std::uint32_t block, const JobEnd& end) {
  Salvage& salvage = *salvage_;
  if (end.outcome == JobEnd::Outcome::kDone) {
    std::copy(end.bytes.begin(), end.bytes.end(),
              salvage.bytes.begin() + static_cast<std::ptrdiff_t>(block * kBlockBytes));
  } else {
    ++salvage.lost;
  }
  --salvage.left;
  // Two blocks may have both copies of a removal; the trailer would count it.
  const std::uint32_t most = salvage.unread.was_sealed ? kMostLost : 1;
  if (salvage.lost > most) salvage.next = static_cast<std::uint32_t>(salvage.bytes.size());
  const bool given_up = salvage.lost > most && reading_ == 0;
  if (salvage.left > 0 && !given_up) return;
  Salvage done = std::move(salvage);
  salvage_.reset();
  if (given_up) return end_unread(done.unread);
  begin_walk_over(done.unread, std::move(done.bytes));
}

// The segment cannot be read. Without removals, the cleaner takes it as it is.
void Recovery::end_unread(const Unread& unread) {
  if (unread.may_have_removals) must_empty_ = true;
  segments_.at(unread.number).state = SegmentState::kSealed;
  segments_.set_clean_first(unread.number);
  unread_.erase(unread.number);
}

RecordWalk::Segment Recovery::segment_of(std::uint32_t number) const {
  return {.id = geometry_.id_of(number),
          .sequence = segments_.at(number).sequence,
          .life = geometry_.life,
          .bytes = geometry_.segment_bytes};
}

// Returns false if there is no segment to walk over yet.
bool Recovery::begin_walk() {
  if (walk_) return true;
  if (salvage_) return false;
  if (arrived_.empty()) {
    const bool idle = unread_count() == 0 && reading_ == 0;
    if (idle) look_at_shadowed();
    if (idle && !catalog_.has_shadowed(geometry_.disk)) phase_ = Phase::kDone;
    return false;
  }
  // Not the first to arrive: later objects become known first.
  const auto latest = std::max_element(
      arrived_.begin(), arrived_.end(), [this](const auto& left, const auto& right) {
        return comes_later(unread_[left.first], unread_[right.first]);
      });
  auto [number, end] = std::move(*latest);
  arrived_.erase(latest);
  Unread unread = unread_[number];
  const bool read = end.outcome == JobEnd::Outcome::kDone;
  if (!unread.whole) {
    if (read) walk_ = RecordWalk::over_footer(segment_of(number), std::move(end.bytes));
    walking_ = number;
    if (walk_) return true;
    if (!read) {
      unread.unreadable_end = footer_region_bytes(segments_.at(number).footer_bytes);
    }
    read_whole(unread);
    return false;
  }
  if (!read) {
    begin_salvage(unread);
    return false;
  }
  begin_walk_over(unread, std::move(end.bytes));
  return true;
}

void Recovery::begin_walk_over(const Unread& unread, std::vector<std::byte> bytes) {
  walking_ = unread.number;
  walk_ = RecordWalk::over_segment(segment_of(unread.number), std::move(bytes));
  writer_.emplace(geometry_.id_of(unread.number), segments_.at(unread.number).sequence,
                  SegmentWriter::Geometry{.offset = geometry_.offset_of(unread.number),
                                          .bytes = geometry_.segment_bytes,
                                          .life = geometry_.life,
                                          .copies = unread.copies});
}

// Sums the bytes of the present record. Returns false if bytes are left for the next step.
bool Recovery::sum_some(std::uint64_t& bytes) {
  Summing& summing = *summing_;
  const auto rest = summing.record.bytes.subspan(summing.done);
  const std::uint64_t some = std::min<std::uint64_t>(rest.size(), kStepBytes - bytes);
  summing.sum = checksum(summing.sum, rest.data(), some);
  summing.done += some;
  bytes += some;
  if (summing.done < summing.record.bytes.size()) return false;
  // A torn record was never durable.
  if (summing.sum == summing.record.header.checksum) apply(summing.record);
  summing_.reset();
  return true;
}

void Recovery::step() {
  if (phase_ == Phase::kDone) return look_at_shadowed();
  if (must_empty_ || phase_ != Phase::kRecords || !begin_walk()) return;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < kStepRecords && bytes < kStepBytes; ++i) {
    if (!summing_) {
      const auto found = walk_->next();
      if (!found) {
        if (walk_->done()) end_segment();
        return;
      }
      const bool sums = writer_ && found->header.kind == RecordKind::kObject;
      if (!sums) {
        apply(*found);
        continue;
      }
      summing_ = {.record = *found, .sum = found->header.sum_seed};
    }
    if (!sum_some(bytes)) return;
  }
}

void Recovery::apply(const RecordWalk::Found& found) {
  const RecordHeader& header = found.header;
  if (writer_) writer_->add_to_footer(header, found.key);
  Segment& segment = segments_.at(walking_);
  if (header.kind == RecordKind::kRemoval) {
    if (!catalog_.recover_removal(header, geometry_.disk)) must_empty_ = true;
    catalog_.count_removal(header);
    ++segment.removals;
    return;
  }
  switch (catalog_.recover(header)) {
    case Catalog::Found::kLatest:
      ++counters_.objects;
      break;
    case Catalog::Found::kSame: {
      // The segment that was opened first is the one that the cleaner was copying.
      const Place known = catalog_.at(catalog_.find_any(header.tier_key())).place;
      if (disk_of(known.segment) != geometry_.disk || known.segment == header.segment) break;
      const std::uint32_t other = number_of(known.segment);
      if (segment.sequence > segments_.at(other).sequence) {
        catalog_.recover_instead(header);
        segments_.set_clean_first(other);
      } else {
        segments_.set_clean_first(walking_);
      }
      break;
    }
    case Catalog::Found::kFull:
      segments_.set_clean_first(walking_);
      ++counters_.outdated;
      break;
    case Catalog::Found::kReplaced:
    case Catalog::Found::kOutdated:
      ++counters_.outdated;
      break;
  }
}

// REQUIRES: all removals of the disk are known.
void Recovery::look_at_shadowed() {
  for (std::uint32_t i = 0; i < kStepShadowed; ++i) {
    const auto number = catalog_.next_shadowed(geometry_.disk);
    if (!number) return;
    segments_.set_clean_first(*number);
  }
}

void Recovery::end_segment() {
  const Unread unread = unread_[walking_];
  Segment& segment = segments_.at(walking_);
  const bool complete = walk_->complete();
  const std::uint64_t end_bytes = walk_->end_bytes();
  walk_.reset();
  if (!writer_ && !complete) return read_whole(unread);
  if (segment.removals < unread.removals) return end_unread(unread);
  ++counters_.segments;
  unread_.erase(walking_);
  segment.state = SegmentState::kSealed;
  // Another damaged block would cost the segment.
  if (unread.one_header) segments_.set_clean_first(walking_);
  if (!writer_) return;
  if (unread.was_sealed || unread.one_header) writer_->end_batches();
  writer_->set_end(end_bytes);
  segment.footer_bytes = writer_->footer_bytes();
  if (writer_->has_room_for_footer()) {
    segment.state = SegmentState::kSealing;
    unsealed_.push_back(std::move(*writer_));
  }
  writer_.reset();
}

}  // namespace mc::tier
