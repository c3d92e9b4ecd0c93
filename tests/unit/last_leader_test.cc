// SPDX-License-Identifier: Apache-2.0
//
// When members may join the next leader. Times are in nanoseconds.
#include "metadata/master/last_leader.h"

#include <gtest/gtest.h>

namespace mc::metadata {
namespace {

constexpr std::uint64_t kPromiseNs = 2'000;
constexpr std::uint64_t kRecoveredNs = 1'500;

class LastLeaderTest : public ::testing::Test {
 protected:
  LastLeaderTest() {
    last_leader_.had(1, 10);
    last_leader_.had(2, 20);
  }
  bool admits(NodeId node, Incarnation incarnation, std::uint64_t now_ns) {
    return last_leader_.admits_at(node, incarnation, kRecoveredNs, now_ns) <= now_ns;
  }

  LastLeader last_leader_{kPromiseNs};
};

TEST_F(LastLeaderTest, AMemberThatHasKeptItsPromiseOpensTheWayForAll) {
  EXPECT_FALSE(admits(2, 21, 0));
  EXPECT_FALSE(admits(3, 30, 0));
  EXPECT_TRUE(admits(1, 10, 1));
  EXPECT_TRUE(admits(2, 21, 1));
  EXPECT_TRUE(admits(3, 30, 1));
}

TEST_F(LastLeaderTest, ANewProcessWaitsForTheTimeOfAPromiseAlsoAfterTheRecovery) {
  EXPECT_FALSE(admits(1, 11, 5'000));
  EXPECT_FALSE(admits(1, 11, 6'999));
  EXPECT_TRUE(admits(1, 11, 7'000));
  EXPECT_TRUE(admits(2, 21, 7'000)) << "the last leader has missed a member, and stopped";
}

// The process before may have joined the last leader and promised.
TEST_F(LastLeaderTest, EachNewProcessWaitsAnew) {
  EXPECT_FALSE(admits(1, 11, 0));
  EXPECT_FALSE(admits(1, 12, 2'500));
  EXPECT_TRUE(admits(1, 12, 4'500));
}

TEST_F(LastLeaderTest, AnotherNodeWaitsForTheRecoveryAndOpensTheWayForNobody) {
  EXPECT_FALSE(admits(3, 30, 1'499));
  EXPECT_TRUE(admits(3, 30, 1'500));
  EXPECT_FALSE(admits(1, 11, 1'500));
}

TEST_F(LastLeaderTest, WithoutALastLeaderAllJoinAtOnce) {
  LastLeader none(kPromiseNs);
  EXPECT_LE(none.admits_at(1, 10, kRecoveredNs, 0), 0U);
}

}  // namespace
}  // namespace mc::metadata
