// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/segment_table.h"

#include <algorithm>

namespace mc::tier {

void SegmentTable::free(std::uint32_t number) {
  Segment& segment = segments_[number];
  if (segment.clean_first) --clean_first_;
  segment = {.readers = segment.readers, .state = SegmentState::kFree};
  free_.push_back(number);
}

void SegmentTable::set_clean_first(std::uint32_t number) {
  Segment& segment = segments_[number];
  if (segment.clean_first || segment.state == SegmentState::kFree) return;
  segment.clean_first = true;
  ++clean_first_;
}

std::uint32_t SegmentTable::next_to_open() const {
  const auto found = std::find_if(free_.begin(), free_.end(), [this](std::uint32_t number) {
    return segments_[number].readers == 0;
  });
  return found == free_.end() ? kNone : *found;
}

std::uint32_t SegmentTable::open(std::uint64_t sequence) {
  const std::uint32_t number = next_to_open();
  free_.erase(std::find(free_.begin(), free_.end(), number));
  segments_[number] = {.sequence = sequence, .state = SegmentState::kOpen};
  return number;
}

}  // namespace mc::tier
