// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/departures.h"

#include <gtest/gtest.h>

namespace mc::agent {
namespace {

TEST(Departures, TellTheLatestReasonAndTimeOfAKey) {
  Departures departures(5);
  departures.note_removal(1);
  departures.note_eviction(2, EvictionReason::kShrink);
  departures.tick(9);
  departures.note_eviction(1, EvictionReason::kRoom);
  departures.note_damage(3);
  departures.note_drop(4);
  ASSERT_TRUE(departures.find(1));
  EXPECT_EQ(departures.find(1)->reason, "evicted for room");
  EXPECT_EQ(departures.find(1)->at_ns, 9u);
  EXPECT_EQ(departures.find(2)->reason, "evicted by a shrinking pool");
  EXPECT_EQ(departures.find(2)->at_ns, 5u);
  EXPECT_EQ(departures.find(3)->reason, "dropped because its bytes were damaged");
  EXPECT_TRUE(departures.find(4)->reason.starts_with("dropped by order of the cluster"));
  EXPECT_FALSE(departures.find(5));
  EXPECT_EQ(departures.complete_since_ns(), 5u);
}

TEST(Departures, KeepTheLatestAndTellSinceWhen) {
  Departures departures(0);
  for (std::uint64_t number = 0; number < Departures::kMost + 2; ++number) {
    departures.tick(100 + number);
    departures.note_removal(number);
  }
  EXPECT_FALSE(departures.find(0));
  EXPECT_FALSE(departures.find(1));
  ASSERT_TRUE(departures.find(2));
  EXPECT_EQ(departures.find(Departures::kMost + 1)->at_ns, 100 + Departures::kMost + 1);
  EXPECT_EQ(departures.complete_since_ns(), 102u);
}

}  // namespace
}  // namespace mc::agent
