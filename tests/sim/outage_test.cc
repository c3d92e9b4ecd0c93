// SPDX-License-Identifier: Apache-2.0
//
// Leaders and members while the cluster store serves some or no masters.
#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

// The store is out of reach, so calls fail at once, or the store is silent, so each call waits until its
// deadline and may be executed later.
enum class Outage : std::uint8_t { kOutOfReach, kSilent };

class StoreOutage : public FleetTest, public testing::WithParamInterface<Outage> {
 protected:
  StoreOutage() : StoreOutage(1) {}
  explicit StoreOutage(std::uint64_t masters) : FleetTest({.masters = masters}) {}

  void let_store_be_away(bool away) {
    for (std::uint64_t i = 0; i < masters_; ++i) take_store_away(i, away);
  }
  void take_store_away(std::uint64_t master, bool away) {
    const HostId host = fleet_.master(master).host();
    if (GetParam() == Outage::kSilent) return fleet_.store().set_silent(host, away);
    fleet_.store().set_reachable(host, !away);
  }
  std::uint64_t masters_ = 1;
};

class StoreOutageOfTwoMasters : public StoreOutage {
 protected:
  StoreOutageOfTwoMasters() : StoreOutage(2) { masters_ = 2; }
  std::uint64_t leader() const { return fleet_.leader_of(0); }
  std::uint64_t standby() const { return 1 - leader(); }
};

const auto kOutages = testing::Values(Outage::kOutOfReach, Outage::kSilent);
const auto kOutageName = [](const testing::TestParamInfo<Outage>& info) {
  return std::string(info.param == Outage::kSilent ? "Silent" : "OutOfReach");
};
INSTANTIATE_TEST_SUITE_P(, StoreOutage, kOutages, kOutageName);
INSTANTIATE_TEST_SUITE_P(, StoreOutageOfTwoMasters, kOutages, kOutageName);

TEST_P(StoreOutage, UnknownPlacesAreFoundAndRemovalsAreCompleteForAMinute) {
  const std::uint64_t epoch = fleet_.master().epoch(0);
  ASSERT_EQ(end_of(fleet_.put(writer(), "old", kBytes)), MC_OK);
  let_store_be_away(true);
  for (unsigned i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    turn_for(3'000 * kMs);
    const std::string key = "key-" + std::to_string(i);
    ASSERT_EQ(end_of(fleet_.put(other(), key, kBytes)), MC_OK);
    EXPECT_EQ(read(third(), key), MC_OK);
    EXPECT_EQ(end_of(fleet_.remove(writer(), key)), MC_OK);
    EXPECT_EQ(read(third(), key), MC_NOT_FOUND);
    EXPECT_EQ(end_of(fleet_.put(third(), "old", kBytes / 2 + i, 1, true)), MC_OK);
    EXPECT_EQ(length_read(writer(), "old"), kBytes / 2 + i);
  }
  let_store_be_away(false);
  turn_for(2'500 * kMs);
  EXPECT_EQ(fleet_.master().epoch(0), epoch);
  EXPECT_EQ(length_read(other(), "old"), kBytes / 2 + 19);
}

TEST_P(StoreOutage, AnAgentMayStartAgainMeanwhile) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  let_store_be_away(true);
  turn_for(3'000 * kMs);
  fleet_.break_links(other());
  turn_for(3'000 * kMs);
  EXPECT_TRUE(other().ready());
  EXPECT_EQ(read(other(), "key"), MC_OK);
}

// The member may attend another leader, so the old leader must not decide alone any more.
TEST_P(StoreOutage, ALeaderThatLosesAMemberMeanwhileStopsUntilTheStoreIsBack) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  let_store_be_away(true);
  turn_for(1'500 * kMs);
  fleet_.cut(other(), fleet_.master(), true);
  turn_for(3'000 * kMs);
  EXPECT_EQ(fleet_.master().epoch(0), 0U);
  let_store_be_away(false);
  turn_for(4'000 * kMs);
  EXPECT_EQ(read(third(), "key"), MC_OK);
}

TEST_P(StoreOutage, AStoreThatReturnsWithoutItsContentGetsTheMembersAgain) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  let_store_be_away(true);
  turn_for(3'000 * kMs);
  fleet_.store().lose();
  let_store_be_away(false);
  turn_for(4'000 * kMs);
  EXPECT_EQ(read(third(), "key"), MC_OK);
  const auto members = fleet_.store().content().list("members/", UINT64_MAX);
  ASSERT_TRUE(members);
  EXPECT_EQ(members->size(), 3U);
}

// The store names no members, and the holder keeps its promise to the last leader for longer than recover_ms.
TEST_P(StoreOutage, NoObjectIsMissedAfterTheStoreHasLostItsContent) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  let_store_be_away(true);
  turn_for(3'000 * kMs);
  fleet_.cut(third(), fleet_.master(), true);  // so the promise of the reader's host ends first
  fleet_.break_links(third());
  turn_for(300 * kMs);
  fleet_.cut(third(), fleet_.master(), false);
  fleet_.store().lose();
  let_store_be_away(false);
  ASSERT_TRUE(fleet_.turn_until([&] { return third().ready() && !writer().ready(); }, kSoonNs));
  EXPECT_NE(read(third(), "key"), MC_NOT_FOUND);
  turn_for(2'000 * kMs);
  EXPECT_EQ(read(third(), "key"), MC_OK);
}

TEST_P(StoreOutageOfTwoMasters, TheLeaderGoesOnUnderItsEpochWhenTheStoreIsBack) {
  const std::uint64_t leads = leader();
  const std::uint64_t epoch = fleet_.master(leads).epoch(0);
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  let_store_be_away(true);
  turn_for(5'000 * kMs);
  EXPECT_EQ(read(third(), "key"), MC_OK);
  let_store_be_away(false);
  turn_for(5'000 * kMs);
  EXPECT_EQ(fleet_.master(leads).epoch(0), epoch);
  EXPECT_EQ(fleet_.master(1 - leads).epoch(0), 0U);
}

// Only the leader is cut off from the store. The standby is elected and gets no member until the old
// leader has stopped.
TEST_P(StoreOutageOfTwoMasters, TwoLeadersNeverHaveMembersAtOnce) {
  const std::uint64_t old = leader();
  const std::uint64_t next = standby();
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  take_store_away(old, true);
  turn_for(4'000 * kMs);
  ASSERT_NE(fleet_.master(next).epoch(0), 0U);
  ASSERT_NE(fleet_.master(old).epoch(0), 0U);
  EXPECT_EQ(length_read(third(), "key"), kBytes);
  fleet_.cut(other(), fleet_.master(old), true);  // the host finds the next leader in the store
  fleet_.break_links(other());
  turn_for(10 * kMs);
  ASSERT_FALSE(other().ready());
  const std::uint64_t length = kBytes / 2;
  auto upsert = fleet_.put(writer(), "key", length, 1, true);
  bool old_leads = true;
  ASSERT_TRUE(fleet_.turn_until(
      [&] {
        old_leads &= fleet_.master(old).epoch(0) != 0;
        EXPECT_FALSE(other().ready() && old_leads);
        return upsert->over() && !old_leads && writer().ready() && other().ready() &&
               third().ready();
      },
      10'000 * kMs));
  EXPECT_EQ(upsert->items[0].status, MC_OK);
  EXPECT_EQ(length_read(third(), "key"), length);
  turn_for(5'000 * kMs);
  EXPECT_EQ(fleet_.master(old).epoch(0), 0U);
  EXPECT_EQ(length_read(third(), "key"), length);
  EXPECT_EQ(length_read(other(), "key"), length);
}

// The new process does not know what the process before has promised.
TEST_P(StoreOutageOfTwoMasters, ANewProcessOfAMemberJoinsTheNextLeaderAfterTheOldLeaderHasStopped) {
  const std::uint64_t old = leader();
  const std::uint64_t next = standby();
  take_store_away(old, true);
  turn_for(6'000 * kMs);  // beyond recover_ms of the next leader
  ASSERT_NE(fleet_.master(next).epoch(0), 0U);
  ASSERT_NE(fleet_.master(old).epoch(0), 0U);
  other().kill(true);
  other().start();
  bool old_leads = true;
  ASSERT_TRUE(fleet_.turn_until(
      [&] {
        old_leads = fleet_.master(old).epoch(0) != 0;
        EXPECT_FALSE(other().ready() && old_leads);
        return other().ready();
      },
      10'000 * kMs));
  EXPECT_FALSE(old_leads);
}

TEST_P(StoreOutageOfTwoMasters, AMemberThatTheLastLeaderDidNotHaveWaitsForOneThatItHad) {
  const std::uint64_t old = leader();
  const std::uint64_t next = standby();
  fleet_.cut(other(), fleet_.master(old), true);
  turn_for(3'000 * kMs);  // gone
  take_store_away(old, true);
  turn_for(1'600 * kMs);
  ASSERT_NE(fleet_.master(next).epoch(0), 0U);
  ASSERT_NE(fleet_.master(old).epoch(0), 0U);
  EXPECT_FALSE(other().ready());
  turn_for(1'500 * kMs);  // beyond recover_ms
  EXPECT_TRUE(other().ready());
}

}  // namespace
}  // namespace mc::sim
