// SPDX-License-Identifier: Apache-2.0
#include "transport/rails.h"

#include <gtest/gtest.h>

#include "transport/limits.h"

namespace mc::transport {
namespace {

Rails up(std::size_t count) {
  Rails rails(count);
  for (std::size_t i = 0; i < count; ++i) rails.on_up(i);
  return rails;
}

TEST(Rails, WorkGoesWhereItWillBeDoneFirst) {
  Rails rails = up(2);
  for (int i = 0; i < 50; ++i) {
    rails.on_measured(0, 1u << 20, 1'000'000);
    rails.on_measured(1, 1u << 20, 250'000);
  }
  std::uint64_t given[2] = {};
  for (int i = 0; i < 5; ++i) {
    const auto rail = rails.choose(kMinSliceBytes);
    ASSERT_TRUE(rail);
    rails.on_sent(*rail, kMinSliceBytes);
    ++given[*rail];
  }
  EXPECT_EQ(given[0], 1u);
  EXPECT_EQ(given[1], 4u);
}

TEST(Rails, AFullWindowTakesNoMoreUntilSomethingIsDone) {
  Rails rails = up(1);
  std::uint32_t sent = 0;
  while (const auto rail = rails.choose(kMinSliceBytes)) {
    rails.on_sent(*rail, kMinSliceBytes);
    ASSERT_LT(++sent, 1000u);
  }
  EXPECT_GT(sent, 0u);
  rails.on_done(0, kMinSliceBytes);
  EXPECT_TRUE(rails.choose(kMinSliceBytes));
}

TEST(Rails, AnEmptyRailTakesAnySlice) {
  Rails rails = up(1);
  EXPECT_TRUE(rails.choose(1ull << 40));
}

TEST(Rails, AFailedRailIsLeftAtOnceAndProbedAfterGrowingPauses) {
  Rails rails = up(2);
  rails.on_sent(0, 100);
  rails.on_failed(0, 1'000);
  EXPECT_EQ(rails.up_count(), 1u);
  EXPECT_EQ(rails.outstanding_bytes(0), 0u);
  for (int i = 0; i < 10; ++i) {
    const auto rail = rails.choose(1);
    ASSERT_TRUE(rail);
    EXPECT_EQ(*rail, 1u);
  }
  EXPECT_FALSE(rails.probe(1'000));
  std::uint64_t now_ns = rails.next_probe_ns();
  EXPECT_EQ(now_ns, 1'000 + kRedialMinNs);
  std::uint64_t pause_ns = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(rails.probe(now_ns), std::optional<std::size_t>(0));
    EXPECT_FALSE(rails.probe(now_ns)) << "one try at a time";
    rails.on_failed(0, now_ns);
    const std::uint64_t next_ns = rails.next_probe_ns();
    EXPECT_GE(next_ns - now_ns, pause_ns);
    EXPECT_LE(next_ns - now_ns, kRedialMaxNs);
    pause_ns = next_ns - now_ns;
    now_ns = next_ns;
  }
  EXPECT_EQ(pause_ns, kRedialMaxNs);
  rails.on_up(0);
  EXPECT_EQ(rails.up_count(), 2u);
}

TEST(Rails, SlicesFollowTheBandwidthWithinTheLimits) {
  Rails rails = up(1);
  for (int i = 0; i < 100; ++i) rails.on_measured(0, 1u << 20, 1'000'000'000);
  EXPECT_EQ(rails.slice_bytes(1u << 30), kMinSliceBytes);
  for (int i = 0; i < 100; ++i) rails.on_measured(0, 1u << 20, 10'000);
  EXPECT_EQ(rails.slice_bytes(1u << 30), kMaxSliceBytes);
}

TEST(Rails, ATransferIsSpreadOverTheRailsThatAreUp) {
  Rails rails = up(4);
  for (std::size_t i = 0; i < 4; ++i) {
    for (int k = 0; k < 100; ++k) rails.on_measured(i, 1u << 20, 10'000);
  }
  EXPECT_EQ(rails.slice_bytes(1u << 30), kMaxSliceBytes);
  EXPECT_LE(rails.slice_bytes(1u << 20), 512u * 1024);
  rails.on_failed(0, 0);
  rails.on_failed(1, 0);
  rails.on_failed(2, 0);
  EXPECT_EQ(rails.slice_bytes(1u << 20), kMaxSliceBytes);
}

TEST(Rails, SmallPartsDoNotCountAsMeasurements) {
  Rails rails = up(1);
  const double before = rails.bytes_per_ns(0);
  rails.on_measured(0, kMinSliceBytes - 1, 1'000'000'000);
  EXPECT_EQ(rails.bytes_per_ns(0), before);
  rails.on_measured(0, kMinSliceBytes, 1'000'000'000);
  EXPECT_LT(rails.bytes_per_ns(0), before);
}

}  // namespace
}  // namespace mc::transport
