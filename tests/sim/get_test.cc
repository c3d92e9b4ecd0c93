// SPDX-License-Identifier: Apache-2.0
//
// Gets of other hosts' objects. The tests count the questions to holders and the objects that come with the answers.
#include <json/reader.h>

#include <sstream>

#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

class Guesses : public FleetTest {
 protected:
  explicit Guesses(const Fleet::Options& options = {.partitions = 2, .masters = 2})
      : FleetTest(options) {}

  // From now on the third host asks this host together with the master.
  void let_third_read_five_objects_of(SimNode& holder) {
    for (unsigned number = 0; number < 5; ++number) {
      const std::string key = "of the holder, " + std::to_string(number);
      ASSERT_EQ(end_of(fleet_.put(holder, key, kBytes)), MC_OK);
      ASSERT_EQ(length_read(third(), key), kBytes);
    }
  }
  std::uint64_t counter(const char* name) {
    Json::Value status;
    std::istringstream(third().cluster().status_text()) >> status;
    return status["counters"][name].asUInt64();
  }
};

TEST_F(Guesses, AnObjectOfTheGuessedHolderNeedsOneQuestion) {
  let_third_read_five_objects_of(writer());
  EXPECT_EQ(counter("guesses"), 1u);
  EXPECT_EQ(counter("right_guesses"), 1u);
  EXPECT_EQ(counter("asked"), 5u);
}

// The guessed holder has not heard of the replacement, and answers with the replaced object.
TEST_F(Guesses, AReplacedObjectOfTheGuessedHolderIsNotRead) {
  let_both_masters_lead();
  const std::string key = key_of_partition(1);
  ASSERT_EQ(end_of(fleet_.put(writer(), key, kBytes)), MC_OK);
  let_third_read_five_objects_of(writer());
  fleet_.cut(writer(), fleet_.master(fleet_.leader_of(1)), true);
  turn_for(1'500 * kMs);
  ASSERT_EQ(end_of(fleet_.put(other(), key, 2 * kBytes)), MC_OK);
  turn_for(500 * kMs);
  ASSERT_TRUE(holds(writer(), key));
  const std::uint64_t guesses = counter("guesses");
  EXPECT_EQ(length_read(third(), key), 2 * kBytes);
  EXPECT_EQ(counter("guesses"), guesses + 1);
}

class Gets : public Guesses {
 protected:
  Gets() : Guesses({.pool_bytes = 4u << 20}) {}
};

// At most 256 KiB come with the answers. The host reads the other objects at their places.
TEST_F(Gets, SmallObjectsOfABatchComeWithTheHoldersAnswers) {
  constexpr unsigned kCount = 80;
  constexpr std::uint64_t kLargeBytes = transport::kMaxNotificationBytes + 1;
  std::vector<shm::Word64> pins(kCount);
  const auto batch = std::make_shared<agent::RemoteRequest>();
  batch->kind = agent::RemoteRequest::Kind::kFetch;
  batch->tenant = third().tenant();
  batch->deadline_ns = fleet_.now_ns() + 10 * kSoonNs;
  for (unsigned i = 0; i < kCount; ++i) {
    agent::RemoteRequest::Item item;
    item.key = "key-" + std::to_string(i);
    item.pin = &pins[i];
    ASSERT_EQ(end_of(fleet_.put(writer(), item.key, i == 7 ? kLargeBytes : 4096)), MC_OK);
    batch->items.push_back(item);
  }
  third().cluster().begin(batch, fleet_.now_ns());
  EXPECT_TRUE(fleet_.turn_until([&] { return batch->over(); }, kSoonNs));
  for (const agent::RemoteRequest::Item& item : batch->items) EXPECT_EQ(item.status, MC_OK);
  for (shm::Word64& pin : pins) shm::clear_pin(pin);
  EXPECT_EQ(counter("came_with_answer"), (256u << 10) / 4096);
}

TEST_F(Gets, ASmallObjectOfAKnownHolderComesWithTheHoldersAnswer) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  ASSERT_EQ(length_read(third(), "key"), kBytes);
  ASSERT_EQ(length_read(third(), "key"), kBytes);
  EXPECT_EQ(counter("located"), 1u);
  EXPECT_EQ(counter("came_with_answer"), 2u);
}

TEST_F(Gets, AKnownHolderThatStandsStillIsLeftForAnotherHolder) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  ASSERT_EQ(length_read(third(), "key"), kBytes);
  while (!holds(other(), "key")) {
    ASSERT_EQ(length_read(other(), "key"), kBytes);
    turn_for(100 * kMs);
  }
  writer().paused_until_ns = UINT64_MAX;
  const std::uint64_t begin_ns = fleet_.now_ns();
  EXPECT_EQ(length_read(third(), "key"), kBytes);
  EXPECT_LT(fleet_.now_ns() - begin_ns, 600 * kMs);
}

// The object moves to another host with each upsert, so holders that a master has named do not have the object any
// more when they are asked.
TEST_F(Gets, AnObjectThatIsReplacedAllTheTimeIsNotMissed) {
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes)), MC_OK);
  Fleet::RemoteRequestPointer upsert;
  unsigned upserts = 0;
  for (unsigned reads = 0; reads < 500; ++reads) {
    shm::Word64 pin{};
    const auto get = fleet_.get(third(), "key", pin);
    ASSERT_TRUE(fleet_.turn_until(
        [&] {
          if (upsert == nullptr || upsert->over()) {
            upsert = fleet_.put(++upserts % 2 == 0 ? writer() : other(), "key", kBytes, 1, true);
          }
          return get->over();
        },
        kSoonNs));
    shm::clear_pin(pin);
    EXPECT_EQ(get->items[0].status, MC_OK) << reads << " reads, " << upserts << " upserts";
  }
  EXPECT_GT(upserts, 100u);
}

// The agent's loop polls for 30 us after traffic, and for 200 us if the traffic was dense.
TEST(Lively, ALoopPollsLongerWhileTrafficIsDense) {
  Fleet fleet({.size = 1});
  agent::Cluster& cluster = fleet.node(0).cluster();
  const auto request = [&](std::uint64_t at_ns) {
    const auto no_items = std::make_shared<agent::RemoteRequest>();
    no_items->tenant = fleet.node(0).tenant();
    no_items->kind = agent::RemoteRequest::Kind::kExists;
    no_items->deadline_ns = at_ns + kMs;
    cluster.begin(no_items, at_ns);
  };
  const std::uint64_t at_ns = fleet.now_ns() + 10 * kMs;
  request(at_ns);
  EXPECT_TRUE(cluster.lively(at_ns + 29'000));
  EXPECT_FALSE(cluster.lively(at_ns + 31'000));
  request(at_ns + 150'000);
  EXPECT_TRUE(cluster.lively(at_ns + 150'000 + 199'000));
  EXPECT_FALSE(cluster.lively(at_ns + 150'000 + 201'000));
}

}  // namespace
}  // namespace mc::sim
