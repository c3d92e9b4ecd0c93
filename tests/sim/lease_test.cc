// SPDX-License-Identifier: Apache-2.0
//
// Readers that know the place of an object, and holders that a master no longer counts.
#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

class Leases : public FleetTest {
 protected:
  using FleetTest::FleetTest;
  void let_third_know_the_place(const std::string& key) {
    ASSERT_EQ(end_of(fleet_.put(writer(), key, kBytes)), MC_OK);
    ASSERT_EQ(length_read(third(), key), kBytes);
    ASSERT_FALSE(holds(third(), key));
  }
};

TEST_F(Leases, AKnownPlaceIsReadWithoutTheMasterOnlyWhileTheLeaseHolds) {
  let_third_know_the_place("key");
  fleet_.cut(third(), fleet_.master(), true);
  EXPECT_EQ(read(third(), "key"), MC_OK);
  turn_for(400 * kMs);
  EXPECT_EQ(read(third(), "key"), MC_NO_MASTER);
  fleet_.cut(third(), fleet_.master(), false);
  turn_for(2'000 * kMs);
  EXPECT_EQ(read(third(), "key"), MC_OK);
}

TEST_F(Leases, AnUpsertWaitsForAHolderWithoutALink) {
  let_third_know_the_place("key");
  fleet_.cut(writer(), fleet_.master(), true);
  fleet_.break_links(writer());
  turn_for(10 * kMs);
  ASSERT_EQ(end_of(fleet_.put(other(), "key", 2 * kBytes, 1, true)), MC_OK);
  EXPECT_EQ(length_read(third(), "key"), 2 * kBytes);
}

// The holder drops the replaced object as soon as the holder has a link again.
TEST_F(Leases, AnUpsertIsCompleteWhenTheHolderHasJoinedAgain) {
  let_third_know_the_place("key");
  fleet_.break_links(writer());
  const auto upsert = fleet_.put(other(), "key", 2 * kBytes, 1, true);
  ASSERT_TRUE(fleet_.turn_until([&] { return upsert->over(); }, 200 * kMs));
  EXPECT_FALSE(holds(writer(), "key"));
  EXPECT_EQ(length_read(third(), "key"), 2 * kBytes);
}

// The reader hears of no removal.
TEST_F(Leases, AHostWithoutAMasterDoesNotSayThatARemovedObjectExists) {
  let_third_know_the_place("key");
  fleet_.cut(third(), fleet_.master(), true);
  fleet_.break_links(third());
  turn_for(500 * kMs);
  ASSERT_EQ(end_of(fleet_.remove(other(), "key")), MC_OK);
  EXPECT_EQ(end_of(fleet_.exists(third(), "key")), MC_NO_MASTER);
}

// reads_without_lease = miss, and serve.
TEST_F(Leases, AHostWithoutTheLeaseReadsItsOwnObjectsOnlyIfTheNamespaceAllowsThat) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  writer().tenant()->reads_need_lease = true;
  EXPECT_EQ(read(writer(), "key"), MC_OK);
  fleet_.cut(writer(), fleet_.master(), true);
  turn_for(400 * kMs);
  EXPECT_EQ(read(writer(), "key"), MC_NO_MASTER);
  EXPECT_LT(writer().store().index().header().readable_until_ns.load_relaxed(), now_ns());
  writer().tenant()->reads_need_lease = false;
  EXPECT_EQ(read(writer(), "key"), MC_OK);
  writer().tenant()->reads_need_lease = true;
  fleet_.cut(writer(), fleet_.master(), false);
  turn_for(2'000 * kMs);
  EXPECT_EQ(read(writer(), "key"), MC_OK);
  EXPECT_GT(writer().store().index().header().readable_until_ns.load_relaxed(), now_ns());
}

class LeasesOfPartitions : public Leases {
 protected:
  LeasesOfPartitions() : Leases({.partitions = 2, .masters = 2}) {}
};

// The master of the other partition still hears the holder.
TEST_F(LeasesOfPartitions, AHolderThatTheMasterOfTheKeyDoesNotHearIsNotReadFrom) {
  let_both_masters_lead();
  const std::string key = key_of_partition(1);
  let_third_know_the_place(key);
  fleet_.cut(writer(), fleet_.master(fleet_.leader_of(1)), true);
  turn_for(1'500 * kMs);
  ASSERT_EQ(end_of(fleet_.put(other(), key, 2 * kBytes, 1, true)), MC_OK);
  turn_for(500 * kMs);
  EXPECT_EQ(length_read(third(), key), 2 * kBytes);
}

// The next leader hears neither the holder nor the reader, which still has a lease of the last leader.
TEST_F(LeasesOfPartitions, TheNextLeaderWaitsForTheLeasesOfTheLastOne) {
  let_both_masters_lead();
  const std::uint64_t next = fleet_.leader_of(1);
  const auto next_leads = [&] { return fleet_.leader_of(1) == next; };
  fleet_.master(next).stop();
  ASSERT_TRUE(fleet_.turn_until([&] { return !next_leads(); }, kSoonNs));
  turn_for(1'000 * kMs);
  const std::string key = key_of_partition(1);
  let_third_know_the_place(key);
  fleet_.cut(writer(), fleet_.master(next), true);
  fleet_.cut(third(), fleet_.master(next), true);
  fleet_.master(next).start();  // the leader of both partitions soon gives this one up
  ASSERT_TRUE(fleet_.turn_until(next_leads, 10'000 * kMs));
  ASSERT_TRUE(fleet_.turn_until([&] { return other().ready(); }, 1'000 * kMs));
  const auto create = fleet_.put(other(), key_of_partition(1, 1), kBytes);
  EXPECT_TRUE(fleet_.turn_until([&] { return create->over(); }, 10 * kMs)) << "replaces nothing";
  ASSERT_EQ(end_of(fleet_.put(other(), key, 2 * kBytes, 1, true)), MC_OK);
  EXPECT_EQ(length_read(third(), key), 0u);
}

}  // namespace
}  // namespace mc::sim
