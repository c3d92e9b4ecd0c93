// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/record_walk.h"

#include <algorithm>

#include "libmc/base/checksum.h"

namespace mc::tier {

std::optional<RecordWalk> RecordWalk::over_footer(const Segment& segment,
                                                  std::vector<std::byte> region) {
  if (region.size() < kBlockBytes) return std::nullopt;
  const std::size_t footer_end = region.size() - kBlockBytes;
  const auto trailer = read_trailer(std::span(region).subspan(footer_end), segment.life);
  if (!trailer || trailer->sequence != segment.sequence ||
      footer_region_bytes(trailer->footer_bytes) != region.size()) {
    return std::nullopt;
  }
  RecordWalk walk(segment, std::move(region));
  walk.footer_ = true;
  walk.end_ = trailer->footer_bytes;
  walk.missing_ = trailer->records;
  walk.sum_ = walk.stamp_;
  walk.wanted_sum_ = trailer->footer_checksum;
  return walk;
}

RecordWalk RecordWalk::over_segment(const Segment& segment, std::vector<std::byte> bytes) {
  RecordWalk walk(segment, std::move(bytes));
  walk.at_ = kHeaderBytes;
  walk.end_ = walk.bytes_.size();
  return walk;
}

std::optional<RecordWalk::Found> RecordWalk::next() {
  return footer_ ? next_in_footer() : next_in_segment();
}

bool RecordWalk::is_ours(const RecordHeader& header) const {
  return header.segment == segment_.id &&
         header.unit * kUnitBytes + header.record_bytes() <= segment_.bytes;
}

bool RecordWalk::is_known_removal(const RecordHeader& header) {
  return header.kind == RecordKind::kRemoval && !removals_.insert(header.order).second;
}

std::optional<RecordWalk::Found> RecordWalk::next_in_footer() {
  if (done()) return std::nullopt;
  const auto front = read_record({bytes_.data() + at_, end_ - at_}, stamp_);
  if (!front || !is_ours(front->header) || missing_ == 0) {
    // Nothing tells where the next record begins.
    missing_ = std::max<std::uint64_t>(missing_, 1);
    at_ = end_;
    return std::nullopt;
  }
  at_ += front->header.front_bytes();
  --missing_;
  const std::uint64_t header_checksum = front->header.header_checksum;
  sum_ = checksum(sum_, &header_checksum, sizeof(header_checksum));
  if (is_known_removal(front->header)) return std::nullopt;
  return Found{.header = front->header, .key = front->key, .bytes = {}};
}

std::optional<RecordWalk::Found> RecordWalk::next_in_segment() {
  const std::uint64_t stop = std::min(end_, at_ + kStepBytes);
  for (; at_ < stop; at_ += kUnitBytes) {
    const auto front = read_record({bytes_.data() + at_, end_ - at_}, stamp_);
    if (!front || front->header.unit * kUnitBytes != at_ || !is_ours(front->header) ||
        front->header.record_bytes() > end_ - at_) {
      continue;  // zeros, damage, or the rest of a damaged record
    }
    const RecordHeader& header = front->header;
    const std::byte* const object = bytes_.data() + at_ + header.front_bytes();
    at_ += header.record_bytes();
    end_bytes_ = at_;
    if (is_known_removal(header)) return std::nullopt;  // the second copy
    return Found{.header = header, .key = front->key, .bytes = {object, header.length}};
  }
  return std::nullopt;
}

}  // namespace mc::tier
