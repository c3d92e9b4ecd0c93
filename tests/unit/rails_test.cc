// SPDX-License-Identifier: Apache-2.0
#include "transport/rails/rails.h"

#include <gtest/gtest.h>

#include "transport/limits.h"
#include "transport/rails/rail_pairs.h"

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

TEST(Rails, ARunIsAsLongAsItsRailWouldBeChosenAgain) {
  Rails rails = up(3);
  for (std::size_t rail = 0; rail < 3; ++rail) {
    for (int i = 0; i < 50; ++i) rails.on_measured(rail, 1u << 20, rail == 1 ? 250'000 : 1'000'000);
  }
  int runs = 0;
  while (const auto run = rails.choose_run(kMinSliceBytes)) {
    ASSERT_LT(++runs, 1000);
    for (std::uint64_t sent = 0; sent + kMinSliceBytes <= run->bytes; sent += kMinSliceBytes) {
      const auto rail = rails.choose(kMinSliceBytes);
      ASSERT_TRUE(rail);
      EXPECT_EQ(*rail, run->rail);
      rails.on_sent(*rail, kMinSliceBytes);
    }
  }
  EXPECT_FALSE(rails.choose(kMinSliceBytes));
}

TEST(Rails, AfterARunOfTheOnlyRailThereIsRoomNowhere) {
  for (const std::size_t count : {1u, 2u}) {
    Rails rails = up(count);
    if (count == 2) {
      while (rails.choose(kMinSliceBytes, 1) == std::optional<std::size_t>(0)) {
        rails.on_sent(0, kMinSliceBytes);
      }
    }
    const auto run = rails.choose_run(kMinSliceBytes);
    ASSERT_TRUE(run);
    EXPECT_TRUE(run->is_only);
    rails.on_sent(run->rail, run->bytes);
    EXPECT_FALSE(rails.choose(kMinSliceBytes));
  }
}

TEST(Rails, APathOfItsOwnHasAWindowThatDoesNotLimitIt) {
  Rails rails(1, 4, Rails::Paths::kSeparate);
  rails.on_up(0);
  // 40 MB/s: the rate of four of the smallest slices when a turn of the loop takes 6 ms.
  for (int i = 0; i < 50; ++i) rails.on_measured(0, 256 * 1024, 6'500'000);
  EXPECT_GE(rails.window_bytes(0), 4u << 20);
}

TEST(Rails, SlicesToldTogetherCountOneByOne) {
  Rails rails = up(1);
  rails.on_sent(0, {4u << 16, 1'000, Priority::kForeground}, 4);
  rails.on_done(0, {2u << 16, 1'000, Priority::kForeground}, 2, 2'000);
  EXPECT_EQ(rails.status(0).done_slices, 2u);
  EXPECT_EQ(rails.outstanding_bytes(0), 2u << 16);
  rails.on_failed(0, 3'000);
  EXPECT_EQ(rails.status(0).taken_back_slices, 2u);
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

// Sends and gets a slice that takes as long as the bandwidth says.
std::uint64_t carry(Rails& rails, std::size_t rail, std::uint64_t bytes, double bytes_per_ns,
                    std::uint64_t now_ns) {
  const RailSlice slice{bytes, now_ns, Priority::kForeground};
  rails.on_sent(rail, slice);
  now_ns += static_cast<std::uint64_t>(static_cast<double>(bytes) / bytes_per_ns);
  rails.on_done(rail, slice, now_ns);
  return now_ns;
}

TEST(Rails, BandwidthIsMeasuredFromSlices) {
  Rails rails = up(1);
  std::uint64_t now_ns = 1;
  for (int i = 0; i < 50; ++i) now_ns = carry(rails, 0, 1u << 20, 12.5, now_ns);
  EXPECT_NEAR(rails.bytes_per_ns(0), 12.5, 0.5);
  EXPECT_EQ(rails.status(0).done_slices, 50u);
  EXPECT_EQ(rails.status(0).done_bytes, 50u << 20);
}

TEST(Rails, IdleTimeIsNotMeasured) {
  Rails rails = up(1);
  std::uint64_t now_ns = 1;
  for (int i = 0; i < 50; ++i) now_ns = carry(rails, 0, 1u << 20, 12.5, now_ns + 1'000'000'000);
  EXPECT_NEAR(rails.bytes_per_ns(0), 12.5, 0.5);
}

TEST(Rails, SlicesThatEndTogetherAreNoMeasurement) {
  Rails rails = up(1);
  std::uint64_t now_ns = 1;
  for (int i = 0; i < 50; ++i) {
    RailSlice slices[4];
    for (RailSlice& slice : slices) {
      slice = {1u << 20, now_ns, Priority::kForeground};
      rails.on_sent(0, slice);
    }
    // A single turn of the loop reads all four slices: the last three took no time at all.
    now_ns += 4 * 83'886;
    for (const RailSlice& slice : slices) rails.on_done(0, slice, now_ns);
  }
  EXPECT_NEAR(rails.bytes_per_ns(0), 12.5, 0.5);
  EXPECT_LE(rails.status(0).latency_ns, 4u * 83'886);
}

TEST(Rails, LatencyIsThatOfASliceAlone) {
  Rails rails = up(2);
  const RailSlice first{64, 1'000'000, Priority::kForeground};
  rails.on_sent(0, first);
  rails.on_done(0, first, 1'050'000);
  EXPECT_NEAR(static_cast<double>(rails.status(0).latency_ns), 50'000, 100);
  const RailSlice second{64, 2'000'000, Priority::kForeground};
  rails.on_sent(0, second);
  rails.on_sent(1, second);
  rails.on_done(0, second, 2'010'000);
  rails.on_done(1, second, 9'000'000);
  EXPECT_NEAR(static_cast<double>(rails.status(0).latency_ns), 50'000, 100);
  EXPECT_EQ(rails.status(1).latency_ns, 0u) << "it was not alone";
}

TEST(Rails, NearOnesAreFilledBeforeFarOnesAreUsed) {
  Rails rails = up(4);
  const std::uint64_t near = 0b0100;
  std::uint64_t given[4] = {};
  for (int i = 0; i < 8; ++i) {
    const auto rail = rails.choose(kMinSliceBytes, near);
    ASSERT_TRUE(rail);
    const bool near_full = rails.outstanding_bytes(2) + kMinSliceBytes > rails.window_bytes(2);
    EXPECT_TRUE(*rail == 2 || near_full);
    rails.on_sent(*rail, kMinSliceBytes);
    ++given[*rail];
  }
  EXPECT_GE(given[2], 4u);
}

TEST(Rails, BackgroundReadsLeaveRoom) {
  Rails rails = up(1);
  const std::uint64_t window = rails.window_bytes(0);
  std::uint64_t sent = 0;
  while (rails.choose(kMinSliceBytes, Rails::kAllNear, Priority::kMigration)) {
    rails.on_sent(0, RailSlice{kMinSliceBytes, 1, Priority::kMigration});
    sent += kMinSliceBytes;
  }
  EXPECT_EQ(sent, window / 4);
  while (rails.choose(kMinSliceBytes, Rails::kAllNear, Priority::kPrefetch)) {
    rails.on_sent(0, RailSlice{kMinSliceBytes, 1, Priority::kPrefetch});
    sent += kMinSliceBytes;
  }
  EXPECT_EQ(sent, window / 4 + window / 2);
  EXPECT_TRUE(rails.choose(kMinSliceBytes));
}

// Sends slices of the class until no window has room. Returns their bytes.
std::uint64_t fill(Rails& rails, Priority priority) {
  std::uint64_t sent = 0;
  for (; rails.choose(kMinSliceBytes, Rails::kAllNear, priority); sent += kMinSliceBytes) {
    rails.on_sent(0, kMinSliceBytes, priority);
  }
  return sent;
}

TEST(Rails, BackgroundReadsFillTheRailIfNoOtherClassSendsForLong) {
  Rails rails = up(1);
  const std::uint64_t window = rails.window_bytes(0);
  std::uint64_t outstanding = 0;
  for (int i = 0; i < 1024 && outstanding < window; ++i) {
    outstanding += fill(rails, Priority::kMigration);
    if (outstanding < window) {
      EXPECT_EQ(outstanding, window / 4);
      rails.on_done(0, kMinSliceBytes, Priority::kMigration);
      outstanding -= kMinSliceBytes;
    }
  }
  EXPECT_EQ(outstanding, window);
  // A slice of a higher class ends this at once.
  for (; outstanding > 0; outstanding -= kMinSliceBytes) {
    rails.on_done(0, kMinSliceBytes, Priority::kMigration);
  }
  rails.on_sent(0, kMinSliceBytes, Priority::kPrefetch);
  EXPECT_EQ(fill(rails, Priority::kMigration), window / 4);
  EXPECT_EQ(fill(rails, Priority::kPrefetch), window / 2 - kMinSliceBytes);
}

TEST(Rails, ASlowRailsWindowTakesNoLongerThanTheOthers) {
  Rails rails(2, 4, Rails::Paths::kSeparate);
  rails.set_traits(0, {.bytes_per_ns = 50});
  rails.set_traits(1, {.bytes_per_ns = 5});
  rails.on_up(0);
  rails.on_up(1);
  EXPECT_NEAR(static_cast<double>(rails.window_bytes(1)) * 10,
              static_cast<double>(rails.window_bytes(0)), 100);
  EXPECT_EQ(rails.status(1).health, RailHealth::kSlow);
  // If no other rail is left, the rail gets its own window.
  rails.on_failed(0, 1);
  EXPECT_GT(rails.window_bytes(1), 1u << 20);
  EXPECT_EQ(rails.status(1).health, RailHealth::kUp);
}

TEST(Rails, ALaneThatWasGivenLessKeepsItsWindow) {
  Rails lanes(2);
  lanes.set_traits(0, {.bytes_per_ns = 3});
  lanes.set_traits(1, {.bytes_per_ns = 0.3});
  lanes.on_up(0);
  lanes.on_up(1);
  EXPECT_GE(lanes.window_bytes(1), 4u * kMinSliceBytes);
}

TEST(Rails, ARailThatOwesAndBringsNothingIsNamed) {
  Rails rails = up(2);
  std::uint64_t now_ns = 1'000'000'000;
  rails.on_sent(1, RailSlice{kMinSliceBytes, now_ns, Priority::kForeground});
  EXPECT_FALSE(rails.stalled(now_ns + kRailStallNs - 1));
  EXPECT_EQ(rails.stalled(now_ns + kRailStallNs), std::optional<std::size_t>(1));
  rails.on_done(1, RailSlice{kMinSliceBytes, now_ns, Priority::kForeground}, now_ns + 1);
  EXPECT_FALSE(rails.stalled(now_ns + 10 * kRailStallNs)) << "it owes nothing";
}

TEST(Rails, ASlowSliceIsNotAStall) {
  Rails rails(1);
  rails.set_traits(0, {.bytes_per_ns = 0.01});  // 10 MB/s: 6.5 ms a slice
  rails.on_up(0);
  rails.on_sent(0, RailSlice{kMinSliceBytes, 1, Priority::kForeground});
  EXPECT_FALSE(rails.stalled(2 * kRailStallNs));
  EXPECT_TRUE(rails.stalled(20 * kRailStallNs));
}

TEST(Rails, OneThatFailedIsTakenBackGradually) {
  Rails rails = up(2);
  const std::uint64_t whole = rails.window_bytes(0);
  rails.on_failed(0, 1'000);
  rails.on_up(0);
  EXPECT_EQ(rails.status(0).health, RailHealth::kRecovering);
  EXPECT_EQ(rails.window_bytes(0), whole / 4);
  // The rail fails again before a success: the pause is twice as long.
  rails.on_failed(0, 2'000);
  EXPECT_EQ(rails.next_probe_ns(), 2'000 + 2 * kRedialMinNs);
  rails.on_up(0);
  std::uint64_t now_ns = 10'000;
  int slices = 0;
  for (; rails.status(0).health == RailHealth::kRecovering && slices < 100; ++slices) {
    now_ns = carry(rails, 0, kMinSliceBytes, 1, now_ns);
  }
  EXPECT_GT(slices, 4);
  EXPECT_LT(slices, 100);
  rails.on_failed(0, now_ns);
  EXPECT_EQ(rails.next_probe_ns(), now_ns + kRedialMinNs) << "its past is forgotten";
  EXPECT_EQ(rails.status(0).failures, 3u);
}

TEST(Rails, CreditsAreSharedByAllPeers) {
  Credits credits(1);
  credits.set_budget(0, 2 * kMinSliceBytes);
  Rails one = up(1), other = up(1);
  one.share(&credits);
  other.share(&credits);
  one.on_sent(0, kMinSliceBytes);
  one.on_sent(0, kMinSliceBytes);
  EXPECT_EQ(other.choose(kMinSliceBytes), std::nullopt);
  EXPECT_TRUE(other.lacks_credit(kMinSliceBytes));
  one.on_done(0, kMinSliceBytes);
  EXPECT_TRUE(other.choose(kMinSliceBytes));
  EXPECT_FALSE(other.lacks_credit(kMinSliceBytes));
  // The credit that a failed rail had requested is free again.
  other.on_sent(0, kMinSliceBytes);
  one.on_failed(0, 1);
  other.on_failed(0, 1);
  EXPECT_EQ(credits.outstanding_bytes(0), 0u);
}

TEST(Rails, AFullWindowIsNotALackOfCredit) {
  Rails rails = up(1);
  while (rails.choose(kMinSliceBytes)) rails.on_sent(0, kMinSliceBytes);
  EXPECT_FALSE(rails.lacks_credit(kMinSliceBytes));
}

TEST(Turns, EachClassThatWaitsGetsItsShare) {
  Turns turns;
  std::uint64_t took[kPriorityCount] = {};
  for (int i = 0; i < 37'000; ++i) {
    const auto priority = turns.next(0b111);
    ASSERT_TRUE(priority);
    turns.took(*priority, 1000);
    took[static_cast<std::size_t>(*priority)] += 1;
  }
  EXPECT_NEAR(static_cast<double>(took[0]), 32'000, 40);
  EXPECT_NEAR(static_cast<double>(took[1]), 4'000, 40);
  EXPECT_NEAR(static_cast<double>(took[2]), 1'000, 40);
  EXPECT_EQ(turns.next(0), std::nullopt);
}

TEST(Turns, ALateComerIsOwedNothing) {
  Turns turns;
  for (int i = 0; i < 1000; ++i) turns.took(Priority::kForeground, 1 << 20);
  turns.arrived(Priority::kMigration);
  std::uint64_t took = 0;
  for (int i = 0; i < 330; ++i) {
    const Priority priority = *turns.next(0b101);
    turns.took(priority, 1 << 20);
    took += priority == Priority::kMigration ? 1 : 0;
  }
  EXPECT_LE(took, 12u);
  EXPECT_GE(took, 8u);
}

TEST(RailPairs, NicsOfTheSameNameArePartners) {
  const std::vector<std::string> ours = {"mlx5_0", "mlx5_1", "mlx5_2"};
  const std::vector<std::string> theirs = {"mlx5_2", "mlx5_1", "mlx5_0"};
  const auto pairs = pair_rails(ours, theirs);
  EXPECT_EQ(pairs, (std::vector<RailPair>{{0, 2}, {1, 1}, {2, 0}}));
}

TEST(RailPairs, OtherNamesArePairedInOrderAndTheShorterSideAgain) {
  const std::vector<std::string> ours = {"a", "b", "c", "d"};
  const std::vector<std::string> theirs = {"x", "y"};
  const auto pairs = pair_rails(ours, theirs);
  EXPECT_EQ(pairs, (std::vector<RailPair>{{0, 0}, {1, 1}, {2, 0}, {3, 1}}));
  EXPECT_EQ(pair_rails(theirs, ours).size(), 4u);
  EXPECT_TRUE(pair_rails({}, ours).empty());
}

}  // namespace
}  // namespace mc::transport
