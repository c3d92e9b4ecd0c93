// SPDX-License-Identifier: Apache-2.0
//
// Members that were away while objects were removed or replaced, and that come back to a new
// leader.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "libmc/base/clock.h"
#include "shm/pins.h"
#include "sim/fleet.h"

namespace mc::sim {
namespace {

constexpr std::uint64_t kSoonNs = 3'000 * kMs;
constexpr std::uint64_t kBytes = 1000;

struct Quiet {
  Quiet() { spdlog::set_level(spdlog::level::off); }
};

class Absence : public testing::Test, private Quiet {
 protected:
  SimNode& writer() { return fleet_.node(0); }
  SimNode& other() { return fleet_.node(1); }

  static bool holds(SimNode& node, const std::string& key) {
    return node.store().index().find(key, node.store().index().hash(key)).has_value();
  }
  mc_status end_of(const Fleet::RemoteRequestPointer& remote_request) {
    EXPECT_TRUE(fleet_.turn_until([&] { return remote_request->over(); }, kSoonNs));
    return remote_request->items[0].status;
  }
  void put_on_all(const std::string& key) {
    ASSERT_EQ(end_of(fleet_.put(writer(), key, kBytes, 3)), MC_OK);
    ASSERT_TRUE(fleet_.turn_until([&] { return holds(other(), key) && holds(fleet_.node(2), key); },
                                  kSoonNs));
    turn_for(200 * kMs);  // until the verdict has come
  }
  // The other host stands still until the master no longer counts the host as a member.
  void let_other_be_away() {
    other().paused_until_ns = UINT64_MAX;
    turn_for(1'500 * kMs);
  }
  void let_other_come_back() {
    other().paused_until_ns = 0;
    turn_for(4'000 * kMs);
    ASSERT_TRUE(other().ready());
  }
  void change_leader(bool keeps_store = true) {
    fleet_.master().stop();
    turn_for(300 * kMs);
    fleet_.master().start(keeps_store, fleet_.now_ns());
    turn_for(2'000 * kMs);
  }
  void turn_for(std::uint64_t ns) {
    fleet_.turn_until([] { return false; }, ns);
  }
  mc_status read(SimNode& node, const std::string& key) {
    shm::Word64 pin{};
    const mc_status status = end_of(fleet_.get(node, key, pin));
    shm::clear_pin(pin);
    return status;
  }

  Fleet fleet_{3};
};

TEST_F(Absence, AnObjectRemovedMeanwhileDoesNotComeBackToTheNextLeader) {
  put_on_all("key");
  let_other_be_away();
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  change_leader();
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "key"));
  EXPECT_EQ(read(fleet_.node(2), "key"), MC_NOT_FOUND);
}

TEST_F(Absence, NorToALaterLeaderAndNotBeforeTheMemberHasReported) {
  put_on_all("key");
  let_other_be_away();
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  change_leader();
  change_leader();
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "key"));
  // From then on the host is a member like any other.
  put_on_all("later");
  change_leader();
  EXPECT_TRUE(holds(other(), "later"));
  EXPECT_EQ(read(fleet_.node(2), "later"), MC_OK);
}

TEST_F(Absence, ARemovalUnderALeaderThatTheMemberNeverMetCountsAsWell) {
  put_on_all("key");
  let_other_be_away();
  change_leader();
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  change_leader();
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "key"));
}

TEST_F(Absence, CostsNothingWhereNothingWasRemoved) {
  put_on_all("key");
  let_other_be_away();
  change_leader();
  let_other_come_back();
  EXPECT_TRUE(holds(other(), "key"));
  EXPECT_EQ(read(fleet_.node(2), "key"), MC_OK);
}

TEST_F(Absence, AnAbsentMemberKeepsObjectsThatOthersHold) {
  put_on_all("kept");
  put_on_all("key");
  let_other_be_away();
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  change_leader();
  let_other_come_back();
  EXPECT_TRUE(holds(other(), "kept"));
  EXPECT_FALSE(holds(other(), "key"));
}

// The store names the removed objects. All other objects stay, even without another holder.
TEST_F(Absence, AnObjectWithoutAnotherHolderStays) {
  put_on_all("key");
  ASSERT_EQ(end_of(fleet_.put(other(), "only there", kBytes)), MC_OK);
  let_other_be_away();
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  change_leader();
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "key"));
  EXPECT_TRUE(holds(other(), "only there"));
  EXPECT_EQ(read(fleet_.node(2), "only there"), MC_OK);
}

// The store has this mark after removals by pattern, or after very many removals.
TEST_F(Absence, AMemberThatMissedUnnamedRemovalsKeepsOnlyObjectsThatOthersHold) {
  put_on_all("kept");
  ASSERT_EQ(end_of(fleet_.put(other(), "only there", kBytes)), MC_OK);
  let_other_be_away();
  ASSERT_EQ(fleet_.master().store().count("away/2"), 1u);
  fleet_.master().store()["away/2"] = "missed removals";
  change_leader();
  let_other_come_back();
  EXPECT_TRUE(holds(other(), "kept"));
  EXPECT_FALSE(holds(other(), "only there"));
  EXPECT_EQ(fleet_.master().store().count("away/2"), 0u);
}

// An object that no master has known cannot be the target of a removal.
TEST_F(Absence, AnObjectPutWhileAwayStays) {
  put_on_all("key");
  other().paused_until_ns = UINT64_MAX;
  const auto alone = fleet_.put(other(), "alone", kBytes);  // nobody hears of it
  turn_for(1'500 * kMs);
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  change_leader();
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "key"));
  EXPECT_TRUE(holds(other(), "alone"));
  EXPECT_EQ(read(fleet_.node(2), "alone"), MC_OK);
}

// Only the store knows of removals. Without the store no object is removed, for all may be valid.
TEST_F(Absence, WithAnEmptyStoreNothingIsLost) {
  put_on_all("key");
  let_other_be_away();
  change_leader(false);
  let_other_come_back();
  EXPECT_TRUE(holds(other(), "key"));
  EXPECT_TRUE(holds(writer(), "key"));
}

// Shows that these tests can fail.
TEST_F(Absence, ALeaderThatForgetsAbsentMembersBringsTheObjectBack) {
  fleet_.master().forgets_who_was_away = true;
  put_on_all("key");
  let_other_be_away();
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  change_leader();
  let_other_come_back();
  EXPECT_TRUE(holds(other(), "key"));
}

}  // namespace
}  // namespace mc::sim
