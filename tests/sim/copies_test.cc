// SPDX-License-Identifier: Apache-2.0
//
// Copies that the master orders. The time is simulated, so these tests assert times.
#include <algorithm>

#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

class Copies : public FleetTest {
 protected:
  static constexpr unsigned kObjects = 1000;

  static std::string key_of(unsigned number) { return "key-" + std::to_string(number); }
  void put_all(std::uint8_t replicas) {
    for (unsigned first = 0; first < kObjects; first += 50) {
      std::vector<Fleet::RemoteRequestPointer> puts;
      for (unsigned i = first; i < first + 50; ++i) {
        puts.push_back(fleet_.put(writer(), key_of(i), 64, replicas));
      }
      ASSERT_TRUE(fleet_.turn_until(
          [&] { return std::ranges::all_of(puts, [](const auto& put) { return put->over(); }); },
          kSoonNs));
    }
  }
  unsigned copied() {
    unsigned count = 0;
    for (unsigned i = 0; i < kObjects; ++i) {
      count += holds(other(), key_of(i)) || holds(third(), key_of(i)) ? 1 : 0;
    }
    return count;
  }
};

TEST_F(Copies, OfAThousandNewObjectsTakeAFifthOfASecond) {
  put_all(2);
  turn_for(200 * kMs);
  EXPECT_EQ(copied(), kObjects);
}

TEST_F(Copies, OfAThousandObjectsOfADrainedHostTakeAFifthOfASecond) {
  put_all(1);
  ASSERT_EQ(copied(), 0u);
  ask("drain", R"({"node":)" + std::to_string(writer().id()) + "}");
  turn_for(200 * kMs);
  EXPECT_EQ(copied(), kObjects);
}

// The bytes of the copies do not come. All copies are under way at one host.
TEST_F(Copies, UnderWayAtAHostLeaveRoomForRemovals) {
  ASSERT_EQ(end_of(fleet_.put(other(), "removed", kBytes)), MC_OK);
  ask("drain", R"({"node":)" + std::to_string(third().id()) + "}");
  other().set_plan({.lose = 1});
  put_all(2);
  const auto removal = fleet_.remove(writer(), "removed");
  EXPECT_TRUE(fleet_.turn_until([&] { return removal->over(); }, 100 * kMs));
  EXPECT_EQ(removal->items[0].status, MC_OK);
  EXPECT_FALSE(holds(other(), "removed"));
}

// Puts that end when several hosts hold the object.
class AwaitedReplicas : public FleetTest {
 protected:
  unsigned holders(const std::string& key) {
    return static_cast<unsigned>(holds(writer(), key)) +
           static_cast<unsigned>(holds(other(), key)) + static_cast<unsigned>(holds(third(), key));
  }
  Fleet::RemoteRequestPointer put_and_await(const std::string& key, std::uint8_t replicas) {
    EXPECT_EQ(end_of(fleet_.put(writer(), key, kBytes, replicas)), MC_OK);
    return fleet_.await_replicas(writer(), key, replicas);
  }
  void be_alone(bool alone) {
    other().paused_until_ns = third().paused_until_ns = alone ? UINT64_MAX : 0;
    turn_for(1'500 * kMs);
  }
};

TEST_F(AwaitedReplicas, AreThereWhenTheRequestEnds) {
  for (const std::uint8_t replicas : {std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{3}}) {
    const std::string key = "key-" + std::to_string(replicas);
    const auto request = put_and_await(key, replicas);
    ASSERT_TRUE(fleet_.turn_until([&] { return request->over(); }, kSoonNs));
    EXPECT_EQ(request->items[0].status, MC_OK);
    EXPECT_GE(holders(key), replicas);
  }
}

TEST_F(AwaitedReplicas, OfAnObjectWithOneReplicaAreMade) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  turn_for(500 * kMs);
  ASSERT_EQ(holders("key"), 1u);
  EXPECT_EQ(end_of(fleet_.await_replicas(writer(), "key", 2)), MC_OK);
  EXPECT_GE(holders("key"), 2u);
}

// The put yields to the object of the other host.
TEST_F(AwaitedReplicas, OfAnotherHostsObjectAreMade) {
  ASSERT_EQ(end_of(fleet_.put(other(), "key", kBytes)), MC_OK);
  EXPECT_EQ(end_of(put_and_await("key", 3)), MC_OK);
  EXPECT_EQ(holders("key"), 3u);
}

// The link to the master has places for 192 requests.
TEST_F(AwaitedReplicas, ThatCannotBeMadeLeaveTheLinkToOtherRequests) {
  be_alone(true);
  std::vector<Fleet::RemoteRequestPointer> waits;
  for (unsigned i = 0; i < 400; ++i) waits.push_back(put_and_await("key-" + std::to_string(i), 2));
  const auto exists = fleet_.exists(writer(), "key-nowhere");
  EXPECT_TRUE(fleet_.turn_until([&] { return exists->over(); }, 50 * kMs));
  EXPECT_EQ(exists->items[0].status, MC_NOT_FOUND);
  for (const auto& wait : waits) EXPECT_EQ(end_of(wait), MC_TIMEOUT);
}

TEST_F(AwaitedReplicas, ThatCannotBeMadeEndAtTheDeadline) {
  be_alone(true);
  EXPECT_EQ(end_of(put_and_await("key", 2)), MC_TIMEOUT);
  EXPECT_EQ(read(writer(), "key"), MC_OK);
}

TEST_F(AwaitedReplicas, OfAnObjectThatIsRemovedEnd) {
  be_alone(true);
  const auto request = put_and_await("key", 2);
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  EXPECT_EQ(end_of(request), MC_NOT_FOUND);
}

TEST_F(AwaitedReplicas, AreCountedByTheNextLeader) {
  be_alone(true);
  const auto request = put_and_await("key", 2);
  fleet_.master().stop();
  turn_for(100 * kMs);
  fleet_.master().start();
  be_alone(false);
  EXPECT_EQ(end_of(request), MC_OK);
  EXPECT_GE(holders("key"), 2u);
}

// The master orders no copies to hosts that are silent for a moment.
TEST_F(AwaitedReplicas, AreMadeAsSoonAsHostsThatStoodStillGoOn) {
  other().paused_until_ns = third().paused_until_ns = UINT64_MAX;
  turn_for(350 * kMs);
  const auto request = put_and_await("key", 2);
  ASSERT_FALSE(request->over());
  other().paused_until_ns = third().paused_until_ns = 0;
  EXPECT_EQ(end_of(request), MC_OK);
  EXPECT_GE(holders("key"), 2u);
}

TEST_F(AwaitedReplicas, AreMadeAsSoonAsAHostIsNoLongerDrained) {
  const auto drain = [&](SimNode& node, const std::string& stop) {
    ask("drain", R"({"node":)" + std::to_string(node.id()) + R"(,"stop":)" + stop + "}");
  };
  drain(other(), "false");
  drain(third(), "false");
  const auto request = put_and_await("key", 2);
  turn_for(500 * kMs);
  ASSERT_FALSE(request->over());
  drain(third(), "true");
  EXPECT_EQ(end_of(request), MC_OK);
  EXPECT_TRUE(holds(third(), "key"));
}

TEST_F(AwaitedReplicas, WithoutAMasterAreUnknown) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes, 2)), MC_OK);
  fleet_.master().stop();
  turn_for(500 * kMs);
  EXPECT_EQ(end_of(fleet_.await_replicas(writer(), "key", 2)), MC_NO_MASTER);
}

}  // namespace
}  // namespace mc::sim
