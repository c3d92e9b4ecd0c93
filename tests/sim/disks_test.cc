// SPDX-License-Identifier: Apache-2.0
//
// Hosts with disks: courses of events at the edge of a power cut. The time is simulated.
#include <vector>

#include "agent/pool/evictor.h"
#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

class Disks : public FleetTest {
 protected:
  static constexpr unsigned kObjects = 8;

  Disks() : FleetTest({.disk_bytes = 4u << 20}) {}
  static std::string key_of(unsigned number) { return "key-" + std::to_string(number); }
  // The pool's objects go to the disk of their host.
  void evict_all(SimNode& node) {
    node.store().set_capacity(1);
    ASSERT_TRUE(fleet_.turn_until(
        [&] { return node.store().live_bytes() == 0 && node.store().limbo_count() == 0; },
        kSoonNs));
    node.store().set_capacity(agent::Evictor::kUnlimited);
    turn_for(200 * kMs);  // until the verdicts have come
  }
  void put_on_the_disk_of(SimNode& node) {
    for (unsigned i = 0; i < kObjects; ++i) {
      ASSERT_EQ(end_of(fleet_.put(node, key_of(i), kBytes)), MC_OK);
    }
    evict_all(node);
    ASSERT_EQ(node.disk_objects(), kObjects);
  }
  static std::string replicated(const std::string& key) {
    return std::string(R"({"namespace":")") + kNameSpace + R"(","replicas":2,"key":")" + key +
           R"("})";
  }
  void power_cut(SimNode& node) {
    node.kill(false);
    turn_for(2'000 * kMs);
    node.start();
    ASSERT_TRUE(fleet_.turn_until([&] { return node.ready(); }, kSoonNs));
    turn_for(1'000 * kMs);
  }
};

TEST_F(Disks, HaveNoObjectThatAHeldUpsertHasReplaced) {
  put_on_the_disk_of(other());
  other().disk().set_slowness(100);
  std::vector<Fleet::RemoteRequestPointer> puts;
  for (unsigned i = 0; i < kObjects; ++i) {
    puts.push_back(fleet_.put_at(writer(), other(), key_of(i), 2 * kBytes, true));
  }
  for (const auto& put : puts) ASSERT_EQ(end_of(put), MC_OK);
  ASSERT_EQ(length_read(third(), key_of(0)), 2 * kBytes);
  power_cut(other());
  for (unsigned i = 0; i < kObjects; ++i) EXPECT_NE(length_read(writer(), key_of(i)), kBytes) << i;
}

// Its objects go to the pools of other hosts.
TEST_F(Disks, OfADrainedHostBecomeEmpty) {
  put_on_the_disk_of(other());
  ask("drain", R"({"node":)" + std::to_string(other().id()) + "}");
  EXPECT_TRUE(fleet_.turn_until(
      [&] { return other().disk_objects() == 0 && other().store().live_bytes() == 0; }, kSoonNs));
  other().kill(false);
  turn_for(1'500 * kMs);
  for (unsigned i = 0; i < kObjects; ++i) {
    EXPECT_TRUE(holds(writer(), key_of(i)) || holds(third(), key_of(i))) << i;
    EXPECT_EQ(length_read(writer(), key_of(i)), kBytes) << i;
  }
}

TEST_F(Disks, GetTheReplicasOfTheirObjectsMade) {
  put_on_the_disk_of(writer());
  for (unsigned i = 0; i < kObjects; ++i) {
    EXPECT_EQ(ask("replicate", replicated(key_of(i))), "{}");
  }
  EXPECT_TRUE(fleet_.turn_until(
      [&] {
        for (unsigned i = 0; i < kObjects; ++i) {
          if (!holds(other(), key_of(i)) && !holds(third(), key_of(i))) return false;
        }
        return true;
      },
      kSoonNs));
  EXPECT_NE(ask("replicate", replicated("nowhere")), "{}");
}

// The answer to the order comes too late for the master that gave the order.
TEST_F(Disks, HaveNoObjectOfADropThatOutlivesTheLinkToTheMaster) {
  put_on_the_disk_of(other());
  other().disk().set_slowness(100);
  std::vector<Fleet::RemoteRequestPointer> removals;
  for (unsigned i = 0; i < kObjects; ++i) removals.push_back(fleet_.remove(writer(), key_of(i)));
  turn_for(10 * kMs);
  for (const auto& removal : removals) EXPECT_FALSE(removal->over()) << "the disk is slow";
  fleet_.break_links(other());
  for (const auto& removal : removals) {
    ASSERT_TRUE(fleet_.turn_until([&] { return removal->over(); }, kSoonNs));
  }
  power_cut(other());
  EXPECT_EQ(other().disk_objects(), 0u);
  for (unsigned i = 0; i < kObjects; ++i) EXPECT_EQ(read(writer(), key_of(i)), MC_NOT_FOUND) << i;
}

TEST_F(Disks, OfAHostThatIsKilledDuringADropHaveNoRemovedObject) {
  put_on_the_disk_of(other());
  other().disk().set_slowness(100);
  std::vector<Fleet::RemoteRequestPointer> removals;
  for (unsigned i = 0; i < kObjects; ++i) removals.push_back(fleet_.remove(writer(), key_of(i)));
  turn_for(10 * kMs);
  power_cut(other());
  for (const auto& removal : removals) EXPECT_TRUE(removal->over());
  EXPECT_EQ(other().disk_objects(), 0u);
  for (unsigned i = 0; i < kObjects; ++i) EXPECT_EQ(read(other(), key_of(i)), MC_NOT_FOUND) << i;
}

// The removals come while no master hears the host, and while its lease is over.
TEST_F(Disks, OfAHostThatWasAwayLongerThanItsLeaseLoseTheRemovedObjects) {
  put_on_the_disk_of(other());
  ASSERT_EQ(end_of(fleet_.put(other(), "in the pool", kBytes)), MC_OK);
  for (const bool dies : {false, true}) {
    const std::string removed = key_of(dies ? 1 : 0);
    if (dies) {
      other().kill(false);
      turn_for(2'000 * kMs);
    } else {
      let_other_be_away();
    }
    EXPECT_EQ(end_of(fleet_.remove(writer(), removed)), MC_HOLDER_AWAY);
    if (dies) {
      other().start();
      ASSERT_TRUE(fleet_.turn_until([&] { return other().ready(); }, kSoonNs));
    } else {
      let_other_come_back();
    }
    for (SimNode* const node : {&writer(), &other()}) EXPECT_EQ(read(*node, removed), MC_NOT_FOUND);
    EXPECT_EQ(length_read(third(), key_of(2)), kBytes) << "the others are there";
  }
  power_cut(other());
  for (const unsigned i : {0u, 1u}) EXPECT_EQ(read(other(), key_of(i)), MC_NOT_FOUND) << i;
  EXPECT_EQ(other().disk_objects(), kObjects - 2);
}

}  // namespace
}  // namespace mc::sim
