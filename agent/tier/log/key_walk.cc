// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/key_walk.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace mc::tier {

KeyWalk::Next KeyWalk::go_on(const Visit& visit) {
  if (disk_.failed() || disk_.geometry().life != life_) return Next::kOver;
  if (disk_.must_empty()) return Next::kWaits;
  switch (phase_) {
    case Phase::kCollecting:
      return collect();
    case Phase::kSealed:
      return go_on_sealed(visit);
    case Phase::kOpen:
      break;
  }
  return visit_open(visit);
}

void KeyWalk::begin_collecting() {
  phase_ = Phase::kCollecting;
  from_order_ = until_order_;
  until_order_ = catalog_.next_order();
  next_collected_ = 0;
}

KeyWalk::Next KeyWalk::collect() {
  const SegmentTable& segments = disk_.segments();
  const std::uint32_t end = std::min(segments.count(), next_collected_ + kStepSegments);
  for (; next_collected_ < end; ++next_collected_) {
    const Segment& segment = segments.at(next_collected_);
    if (segment.state == SegmentState::kFree || segment.state == SegmentState::kOpen) continue;
    if (segment.sealed_order < from_order_ || segment.sealed_order >= until_order_) continue;
    if (!may_have_earlier(segment)) continue;
    sealed_.push_back({segment.sealed_order, next_collected_});
    std::ranges::push_heap(sealed_, std::greater());
  }
  if (end == segments.count()) phase_ = Phase::kSealed;
  return Next::kMore;
}

KeyWalk::Next KeyWalk::go_on_sealed(const Visit& visit) {
  switch (part_) {
    case Part::kNone:
      break;
    case Part::kFooter:
      return take_footer();
    case Part::kRecords:
      return visit_records(visit);
    case Part::kFronts:
      return visit_fronts(visit);
  }
  if (!sealed_.empty()) return begin_segment();
  phase_ = Phase::kOpen;
  return visit_open(visit);
}

KeyWalk::Next KeyWalk::begin_segment() {
  const auto [order, number] = sealed_.front();
  number_ = number;
  // A free segment has another order, so the cleaner has moved its objects.
  if (segment().sealed_order == order) {
    if (segment().state == SegmentState::kSealing) return Next::kWaits;
    const std::uint64_t region = footer_region_bytes(segment().footer_bytes);
    read_ = disk_.read_for_walk(number_, disk_.geometry().segment_bytes - region, region);
    if (!read_) return Next::kWaits;
    sequence_ = segment().sequence;
    part_ = Part::kFooter;
  }
  std::ranges::pop_heap(sealed_, std::greater());
  sealed_.pop_back();
  return Next::kMore;
}

KeyWalk::Next KeyWalk::take_footer() {
  if (!read_->done) return Next::kWaits;
  if (read_->end.outcome == JobEnd::Outcome::kDone) {
    records_ = RecordWalk::over_footer({.id = disk_.geometry().id_of(number_),
                                        .sequence = sequence_,
                                        .life = life_,
                                        .bytes = disk_.geometry().segment_bytes},
                                       std::move(read_->end.bytes));
  }
  part_ = records_ ? Part::kRecords : Part::kFronts;
  next_entry_ = 0;
  if (!records_) read_.reset();
  return Next::kMore;
}

KeyWalk::Next KeyWalk::visit_records(const Visit& visit) {
  for (std::uint32_t i = 0; i < kStepRecords; ++i) {
    if (const auto found = records_->next()) {
      look_at(found->header, found->key, visit);
      continue;
    }
    if (!records_->done()) continue;
    part_ = records_->complete() ? Part::kNone : Part::kFronts;
    records_.reset();
    read_.reset();
    break;
  }
  return Next::kMore;
}

void KeyWalk::look_at(const RecordHeader& header, std::string_view key, const Visit& visit) {
  if (header.kind == RecordKind::kRemoval) return;
  const std::uint32_t number = catalog_.find(header.tier_key());
  if (number == kNoEntry || catalog_.at(number).place != header.place()) return;
  visit({.entry = catalog_.at(number), .namespace_id = header.namespace_id, .key = key});
}

// The catalog knows the objects of the segment.
KeyWalk::Next KeyWalk::visit_fronts(const Visit& visit) {
  if (read_) {
    if (!read_->done) return Next::kWaits;
    visit_front(visit);
    read_.reset();
    front_.reset();
    return Next::kMore;
  }
  for (std::uint32_t i = 0; i < kStepEntries && !front_ && next_entry_ != kNoEntry; ++i) {
    next_entry_ = catalog_.walk(next_entry_, 1, [this](const TierEntry& entry) {
      if (entry.place.segment == disk_.geometry().id_of(number_)) front_ = entry;
    });
  }
  if (segment().sequence != sequence_ || (!front_ && next_entry_ == kNoEntry)) {
    front_.reset();
    part_ = Part::kNone;
  } else if (front_) {
    const std::uint64_t begin = front_->place.unit * kUnitBytes;
    const std::uint64_t end = begin + sizeof(RecordHeader) + front_->key_bytes;
    const std::uint64_t first = begin / kBlockBytes * kBlockBytes;
    read_ = disk_.read_for_walk(number_, first, round_up(end, kBlockBytes) - first);
    if (!read_) return Next::kWaits;
  }
  return Next::kMore;
}

void KeyWalk::visit_front(const Visit& visit) {
  const std::uint32_t number = catalog_.find(front_->key());
  if (number == kNoEntry || catalog_.at(number).place != front_->place) return;
  if (segment().sequence != sequence_) return;
  const TierEntry& entry = catalog_.at(number);
  if (read_->end.outcome == JobEnd::Outcome::kDone) {
    const auto record = read_record(
        std::span(read_->end.bytes).subspan(entry.place.unit * kUnitBytes % kBlockBytes),
        stamp_of(life_, sequence_));
    if (record && record->header.tier_key() == entry.key() &&
        record->header.place() == entry.place) {
      return look_at(record->header, record->key, visit);
    }
  }
  visit({.entry = entry, .namespace_id = catalog_.namespace_of(entry)});
}

// A segment that is sealed meanwhile comes again, as a sealed one.
KeyWalk::Next KeyWalk::visit_open(const Visit& visit) {
  std::uint32_t left = kStepRecords;
  for (std::size_t i = 0; i < opened_.size(); ++i) {
    const SegmentWriter* const writer = disk_.open_writer(i);
    if (writer == nullptr) continue;
    if (!may_have_earlier(disk_.segments().at(number_of(writer->segment())))) continue;
    Opened& opened = opened_[i];
    if (opened.sequence != writer->sequence()) opened = {.sequence = writer->sequence()};
    const std::span<const std::byte> headers = writer->headers();
    for (; opened.at < headers.size() && left > 0; --left) {
      RecordHeader header;
      const std::byte* const begin = headers.data() + opened.at;
      std::memcpy(&header, begin, sizeof(header));
      opened.at += header.front_bytes();
      look_at(header, {reinterpret_cast<const char*>(begin) + sizeof(header), header.key_bytes},
              visit);
    }
    if (opened.at < headers.size()) return Next::kMore;
  }
  if (disk_.last_sealed_order() < until_order_) return Next::kOver;
  begin_collecting();
  return Next::kMore;
}

}  // namespace mc::tier
