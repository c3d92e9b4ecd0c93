// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/record_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "agent/tier/log/segment_writer.h"

namespace mc::tier {
namespace {

constexpr RecordWalk::Segment kSegment{
    .id = 3, .sequence = 9, .life = 5, .bytes = kSmallestSegmentBytes};
constexpr std::uint64_t kRemovals = 40;  // their footer takes two blocks

// The footer and the trailer of a segment with removals of these orders.
std::vector<std::byte> footer_of(std::uint64_t first_order) {
  SegmentWriter writer(kSegment.id, kSegment.sequence,
                       {.offset = 0, .bytes = kSegment.bytes, .life = kSegment.life});
  std::deque<NewRecord> queue;
  for (std::uint64_t i = 0; i < kRemovals; ++i) {
    NewRecord record;
    record.header.kind = RecordKind::kRemoval;
    record.header.order = first_order + i;
    queue.push_back(std::move(record));
  }
  while (!queue.empty()) writer.make_batch(queue, 1 << 20);
  Job job = writer.make_footer(1'000);
  return std::move(job.own);
}

struct Walked {
  std::vector<std::uint64_t> orders;
  bool complete = false;
};

Walked walk(std::vector<std::byte> region) {
  auto records = RecordWalk::over_footer(kSegment, std::move(region));
  Walked walked;
  if (!records) return walked;
  while (!records->done()) {
    if (const auto found = records->next()) walked.orders.push_back(found->header.order);
  }
  walked.complete = records->complete();
  return walked;
}

TEST(RecordWalk, AFooterHasEachRecordOnce) {
  const Walked walked = walk(footer_of(1));
  EXPECT_TRUE(walked.complete);
  ASSERT_EQ(walked.orders.size(), kRemovals);
  for (std::uint64_t i = 0; i < kRemovals; ++i) EXPECT_EQ(walked.orders[i], 1 + i);
}

// A footer may have been written, and lost with its trailer, before the segment got further records.
TEST(RecordWalk, ABlockOfAnEarlierFooterOfTheSegmentIsFound) {
  for (const std::uint64_t block : {0u, 1u}) {
    std::vector<std::byte> region = footer_of(101);
    const std::vector<std::byte> earlier = footer_of(1);
    const auto at = static_cast<std::ptrdiff_t>(block * kBlockBytes);
    std::copy_n(earlier.begin() + at, kBlockBytes, region.begin() + at);
    const Walked walked = walk(region);
    EXPECT_EQ(walked.orders.size(), kRemovals) << "each record is right by itself";
    EXPECT_FALSE(walked.complete) << block;
  }
}

TEST(RecordWalk, ADamagedRecordEndsTheWalkOverAFooter) {
  std::vector<std::byte> region = footer_of(1);
  region[20 * 128 + 70] ^= std::byte{4};
  const Walked walked = walk(region);
  EXPECT_EQ(walked.orders.size(), 20u);
  EXPECT_FALSE(walked.complete);
}

}  // namespace
}  // namespace mc::tier
