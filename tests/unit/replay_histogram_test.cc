// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/report/histogram.h"

#include <gtest/gtest.h>

namespace mc::ctl {
namespace {

TEST(LatencyHistogram, AnEmptyOneHasNoLatency) {
  EXPECT_EQ(LatencyHistogram().percentile_ns(0.5), 0);
}

TEST(LatencyHistogram, SmallValuesAreExact) {
  LatencyHistogram histogram;
  for (std::uint64_t ns = 1; ns <= 50; ++ns) histogram.add(ns);
  EXPECT_EQ(histogram.percentile_ns(0), 1);
  EXPECT_EQ(histogram.percentile_ns(0.5), 25);
  EXPECT_EQ(histogram.percentile_ns(1), 50);
}

TEST(LatencyHistogram, LargeValuesAreWithinAThirtySecondPart) {
  for (std::uint64_t ns = 65; ns < (std::uint64_t{1} << 43); ns = ns * 9 / 7) {
    LatencyHistogram histogram;
    histogram.add(ns);
    EXPECT_NEAR(histogram.percentile_ns(0.5), static_cast<double>(ns),
                static_cast<double>(ns) / 32);
  }
}

TEST(LatencyHistogram, PercentilesFollowTheCounts) {
  LatencyHistogram histogram;
  histogram.add(10, 990);
  histogram.add(1'000'000, 10);
  EXPECT_EQ(histogram.count(), 1000u);
  EXPECT_EQ(histogram.percentile_ns(0.99), 10);
  EXPECT_NEAR(histogram.percentile_ns(0.991), 1e6, 1e6 / 32);
}

TEST(LatencyHistogram, BucketsLieEndToEnd) {
  for (std::size_t i = 0; i + 1 < LatencyHistogram::kBuckets; ++i) {
    LatencyHistogram histogram;
    const std::uint64_t last = LatencyHistogram::bucket_floor_ns(i + 1) - 1;
    ASSERT_LE(LatencyHistogram::bucket_floor_ns(i), last);
    histogram.add(last);
    ASSERT_EQ(histogram.bucket_count(i), 1u) << i;
  }
}

TEST(LatencyHistogram, AValueBeyondAllBucketsCountsInTheLast) {
  LatencyHistogram histogram;
  histogram.add(~std::uint64_t{0});
  EXPECT_EQ(histogram.bucket_count(LatencyHistogram::kBuckets - 1), 1u);
  EXPECT_GT(histogram.percentile_ns(1), 1e13);
}

TEST(LatencyHistogram, MergedOnesCountTogether) {
  LatencyHistogram a;
  LatencyHistogram b;
  a.add(10, 3);
  b.add(20, 7);
  a.merge(b);
  EXPECT_EQ(a.count(), 10u);
  EXPECT_EQ(a.percentile_ns(0.5), 20);
}

}  // namespace
}  // namespace mc::ctl
