// SPDX-License-Identifier: Apache-2.0
//
// Walks over the records of a segment: over the footer of a sealed segment, or, without a good footer,
//   over all bytes from unit to unit. Damage of a record costs this record alone.
// Threads: the agent's loop.
// Owns: the bytes.
// Trusts: nothing. Only records of this use of the segment count, at the right place and within it. The
//   bytes of objects are not compared with their checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "agent/tier/layout/layout.h"

namespace mc::tier {

class RecordWalk {
 public:
  struct Segment {
    std::uint32_t id = 0;
    std::uint64_t sequence = 0;
    std::uint64_t life = 0;
    std::uint64_t bytes = 0;
  };
  struct Found {
    RecordHeader header;
    std::string_view key;              // points into the walk
    std::span<const std::byte> bytes;  // of the object; empty in a footer
  };

  // region: the last bytes of the segment, with the whole footer. Nothing if the trailer is damaged or
  // is not the one of this sequence.
  static std::optional<RecordWalk> over_footer(const Segment& segment,
                                               std::vector<std::byte> region);
  // bytes: the segment from its start on.
  static RecordWalk over_segment(const Segment& segment, std::vector<std::byte> bytes);

  // The next record; each removal comes once. Nothing: at the end, or after a bounded number of bytes without a record.
  std::optional<Found> next();
  bool done() const { return at_ >= end_; }
  // REQUIRES: done(). All records of the footer were found.
  bool complete() const { return missing_ == 0 && sum_ == wanted_sum_; }
  // End of the last record that was found.
  std::uint64_t end_bytes() const { return end_bytes_; }

 private:
  static constexpr std::uint64_t kStepBytes = 256 * 1024;
  RecordWalk(const Segment& segment, std::vector<std::byte> bytes)
      : segment_(segment),
        stamp_(stamp_of(segment.life, segment.sequence)),
        bytes_(std::move(bytes)) {}
  std::optional<Found> next_in_footer();
  std::optional<Found> next_in_segment();
  bool is_ours(const RecordHeader& header) const;
  bool is_known_removal(const RecordHeader& header);

  Segment segment_;
  std::uint64_t stamp_;
  std::vector<std::byte> bytes_;
  bool footer_ = false;
  std::uint64_t at_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t missing_ = 0;  // records of the footer that were not found
  std::uint64_t sum_ = 0, wanted_sum_ = 0;
  std::uint64_t end_bytes_ = 0;                 // of the last record
  std::unordered_set<std::uint64_t> removals_;  // orders that were found
};

}  // namespace mc::tier
