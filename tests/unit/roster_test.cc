// SPDX-License-Identifier: Apache-2.0
//
// The choice of partitions that a master should lead, from the masters' entries in the cluster
// store.
#include "metadata/master/roster.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "libmc/base/clock.h"
#include "metadata/store/leader_lock.h"
#include "metadata/store/memory/memory_store.h"
#include "patience.h"

namespace mc::metadata {
namespace {

constexpr std::uint32_t kPartitions = 4;
const auto kTtlMs = static_cast<std::uint32_t>(kSecondNs / 1'000'000);
constexpr std::uint64_t kLongNs = 3'600'000'000'000;

class RosterTest : public ::testing::Test {
 protected:
  std::unique_ptr<Roster> sign_up(const std::string& address) {
    return std::make_unique<Roster>(store(), address, kPartitions, kTtlMs, start_store_thread);
  }
  std::unique_ptr<ClusterStore> store() { return std::make_unique<MemoryStore>(state_, "test"); }
  void lead(std::uint32_t partition, const std::string& who) {
    ASSERT_TRUE(store()->put(leader_key(partition), who, kNoLease, now_ns() + kLongNs).has_value());
  }
  static unsigned may_take(const Roster& roster) {
    unsigned count = 0;
    for (std::uint32_t partition = 0; partition < kPartitions; ++partition)
      count += roster.may_take(partition, 0);
    return count;
  }

  std::shared_ptr<MemoryState> state_ = MemoryStore::make_state();
};

TEST_F(RosterTest, OneMasterTakesAllAndTwoTakeHalfEach) {
  const auto one = sign_up("one");
  EXPECT_TRUE(until([&] { return may_take(*one) == kPartitions; }));
  auto two = sign_up("two");
  EXPECT_TRUE(until([&] { return may_take(*one) == 2 && may_take(*two) == 2; }));
  for (std::uint32_t partition = 0; partition < kPartitions; ++partition) {
    EXPECT_NE(one->may_take(partition, 0), two->may_take(partition, 0)) << partition;
  }
  // The master stops, and announces the stop.
  two.reset();
  EXPECT_TRUE(until([&] { return may_take(*one) == kPartitions; }));
}

TEST_F(RosterTest, AnyMasterMayTakeAPartitionLongWithoutALeader) {
  const auto one = sign_up("one");
  const auto two = sign_up("two");
  for (std::uint32_t partition = 0; partition < kPartitions; ++partition) {
    EXPECT_TRUE(one->may_take(partition, kLongNs));
    EXPECT_TRUE(two->may_take(partition, kLongNs));
  }
}

TEST_F(RosterTest, AMasterThatLeadsTooMuchGivesUpOnePartitionAtATime) {
  for (std::uint32_t partition = 0; partition < kPartitions; ++partition) lead(partition, "one");
  const auto one = sign_up("one");
  const auto two = sign_up("two");
  ASSERT_TRUE(until([&] { return may_take(*two) == 2; }));
  ASSERT_TRUE(until([&] { return may_take(*one) == 2; }));
  const std::uint64_t later_ns = now_ns() + kLongNs;
  EXPECT_FALSE(one->gives_up(0, later_ns)) << "it keeps its part";
  EXPECT_FALSE(one->gives_up(1, later_ns));
  EXPECT_TRUE(one->gives_up(2, later_ns));
  EXPECT_FALSE(one->gives_up(3, later_ns)) << "the share before has hardly moved";
  EXPECT_TRUE(one->gives_up(3, later_ns + kLongNs));
}

}  // namespace
}  // namespace mc::metadata
