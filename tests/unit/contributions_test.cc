// SPDX-License-Identifier: Apache-2.0
//
// Contributions of processes to a pool, and the time for which a contribution stays.
#include "agent/server/contributions.h"

#include <gtest/gtest.h>

namespace mc::agent {
namespace {

constexpr std::uint64_t kEnd = 1000;

TEST(Contributions, AreSummedAndReplaced) {
  Contributions of;
  of.set(1, {100, 7});
  of.set(2, {50, 9});
  EXPECT_EQ(of.bytes(), 150u);
  EXPECT_EQ(of.largest_buffer_bytes(), 9u);
  of.set(1, {10, 0});
  EXPECT_EQ(of.bytes(), 60u);
  of.set(2, {});
  EXPECT_EQ(of.bytes(), 10u);
  EXPECT_EQ(of.largest_buffer_bytes(), 0u);
}

TEST(Contributions, AGoodbyeWithdrawsAtOnce) {
  Contributions of;
  of.set(1, {100, 0});
  of.end(1, 0);
  EXPECT_TRUE(of.empty());
}

TEST(Contributions, MemoryOfALostProcessStaysUntilItsTime) {
  Contributions of;
  of.set(1, {100, 0});
  of.end(1, kEnd);
  EXPECT_TRUE(of.changed(0));
  EXPECT_FALSE(of.changed(kEnd - 1));
  EXPECT_EQ(of.bytes(), 100u);
  EXPECT_TRUE(of.changed(kEnd));
  EXPECT_TRUE(of.empty());
}

TEST(Contributions, NothingStaysOfALostProcessWithABufferAlone) {
  Contributions of;
  of.set(1, {0, 7});
  of.set(2, {1, 7});
  of.end(1, kEnd);
  of.end(2, kEnd);
  EXPECT_EQ(of.bytes(), 1u);
  EXPECT_EQ(of.largest_buffer_bytes(), 0u);
  EXPECT_TRUE(of.changed(kEnd));
  EXPECT_TRUE(of.empty());
}

TEST(Contributions, ARestartedProcessTakesOverTheMemoryOfTheLostOne) {
  Contributions of;
  of.set(1, {100, 0});
  of.set(2, {30, 0});
  of.end(1, kEnd);
  of.set(3, {80, 0});
  EXPECT_EQ(of.bytes(), 130u) << "80 of the 100 bytes are the new process's";
  of.set(4, {40, 0});
  EXPECT_EQ(of.bytes(), 150u);
  EXPECT_TRUE(of.changed(kEnd));
  EXPECT_EQ(of.bytes(), 150u);
}

TEST(Contributions, OnlyGrowthTakesOverMemoryOfALostProcess) {
  Contributions of;
  of.set(1, {100, 0});
  of.set(2, {50, 0});
  of.end(2, kEnd);
  of.set(1, {100, 0});
  of.set(1, {60, 0});
  EXPECT_EQ(of.bytes(), 110u);
  of.set(1, {80, 0});
  EXPECT_EQ(of.bytes(), 110u) << "20 of the 50 bytes";
}

TEST(Contributions, BytesOfAnEarlierAgentAreMemoryOfALostProcess) {
  Contributions of;
  of.keep(100, kEnd);
  of.set(1, {100, 0});
  EXPECT_EQ(of.bytes(), 100u);
  EXPECT_TRUE(of.changed(kEnd));
  EXPECT_FALSE(of.changed(2 * kEnd));
}

TEST(Contributions, AnUnknownSessionChangesNothing) {
  Contributions of;
  of.end(9, 0);
  EXPECT_FALSE(of.changed(0));
}

}  // namespace
}  // namespace mc::agent
