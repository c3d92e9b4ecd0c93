// SPDX-License-Identifier: Apache-2.0
//
// Members that were away while objects were removed or replaced, and that come back to a new
// leader.
#include <gmock/gmock.h>

#include "sim/fleet_fixture.h"

namespace mc::sim {
namespace {

using ::testing::HasSubstr;

using Absence = FleetTest;

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
  ASSERT_TRUE(fleet_.store().content().get("away/2", 0).has_value());
  ASSERT_TRUE(fleet_.store().content().put("away/2", "missed removals", 0, 0).has_value());
  change_leader();
  let_other_come_back();
  EXPECT_TRUE(holds(other(), "kept"));
  EXPECT_FALSE(holds(other(), "only there"));
  EXPECT_FALSE(fleet_.store().content().get("away/2", 0).has_value());
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

TEST_F(Absence, AMemberWhoseReportDoesNotEndDelaysMissesAndRemovalsOfOthersOnlyOnceAndForAWhile) {
  put_on_all("key");
  const auto time_of_miss = [&] {
    const std::uint64_t begin_ns = fleet_.now_ns();
    EXPECT_EQ(read(writer(), "absent"), MC_NOT_FOUND);
    return fleet_.now_ns() - begin_ns;
  };
  const std::uint64_t before_ns = time_of_miss();
  other().never_end_reports(true);
  fleet_.break_links(other());
  turn_for(500 * kMs);
  EXPECT_NE(read(writer(), "absent"), MC_NOT_FOUND) << "the member may hold the object";
  turn_for(10'000 * kMs);
  EXPECT_EQ(time_of_miss(), before_ns);
  EXPECT_EQ(end_of(fleet_.remove(writer(), "absent")), MC_NOT_FOUND);
  fleet_.break_links(other());
  turn_for(500 * kMs);
  EXPECT_FALSE(other().ready());
  EXPECT_EQ(time_of_miss(), before_ns);
  EXPECT_EQ(end_of(fleet_.remove(third(), "key")), MC_OK);
  EXPECT_FALSE(holds(other(), "key"));
  other().never_end_reports(false);
  turn_for(1'000 * kMs);
  EXPECT_TRUE(other().ready());
}

// The clock of the absent member is ahead, so the member's object has a later version by that clock.
TEST_F(Absence, AnUpsertMadeMeanwhileWinsWhateverTheClocksSay) {
  other().wall_offset_ns = 5'000 * kMs;
  ASSERT_EQ(end_of(fleet_.put(other(), "key", kBytes)), MC_OK);
  let_other_be_away();
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", 2 * kBytes, 1, true)), MC_OK);
  let_other_come_back();
  for (SimNode* const node : {&writer(), &other(), &third()}) {
    EXPECT_EQ(length_read(*node, "key"), 2 * kBytes);
  }
}

TEST_F(Absence, NodesShowsHowFarTheClocksOfOtherHostsAreAhead) {
  other().wall_offset_ns = 5'000 * kMs;
  third().wall_offset_ns = -3'000'000'000;
  turn_for(500 * kMs);
  const std::string nodes = ask("nodes", "{}");
  EXPECT_THAT(nodes, HasSubstr("\"clock_ahead_ms\":5000,"));
  EXPECT_THAT(nodes, HasSubstr("\"clock_ahead_ms\":-3000,"));
  EXPECT_THAT(nodes, HasSubstr("\"clock_ahead_ms\":0,"));
}

// The next leader has never met the absent member.
TEST_F(Absence, AnUpsertMadeMeanwhileUnderTheNextLeaderWinsAsWell) {
  other().wall_offset_ns = 5'000 * kMs;
  ASSERT_EQ(end_of(fleet_.put(other(), "key", kBytes)), MC_OK);
  turn_for(300 * kMs);
  let_other_be_away();
  change_leader();
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", 2 * kBytes, 1, true)), MC_OK);
  let_other_come_back();
  for (SimNode* const node : {&writer(), &other(), &third()}) {
    EXPECT_EQ(length_read(*node, "key"), 2 * kBytes);
  }
}

// The absent member's put was accepted just before the last leader was lost, so no other member has heard of the
// version. The next leader must cover the version all the same.
class PutThatOnlyTheLastLeaderHeard : public FleetTest {
 protected:
  void put_and_change_the_leader() {
    ASSERT_EQ(end_of(fleet_.put(other(), "key", kBytes)), MC_OK);
    other().paused_until_ns = UINT64_MAX;
    change_leader();
  }
};

TEST_F(PutThatOnlyTheLastLeaderHeard, IsCoveredByARemoval) {
  put_and_change_the_leader();
  EXPECT_EQ(end_of(fleet_.remove(writer(), "key")), MC_HOLDER_AWAY);
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "key"));
  EXPECT_EQ(read(third(), "key"), MC_NOT_FOUND);
}

TEST_F(PutThatOnlyTheLastLeaderHeard, IsCoveredByAnUpsertOfAHostWithASlowClock) {
  writer().wall_offset_ns = -5'000'000'000;
  put_and_change_the_leader();
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", 2 * kBytes, 1, true)), MC_OK);
  let_other_come_back();
  for (SimNode* const node : {&writer(), &other(), &third()}) {
    EXPECT_EQ(length_read(*node, "key"), 2 * kBytes);
  }
}

class AbsenceWithAStoreThatFails : public FleetTest,
                                   public testing::WithParamInterface<mc_status> {};

INSTANTIATE_TEST_SUITE_P(, AbsenceWithAStoreThatFails,
                         testing::Values(MC_NO_SPACE, MC_PERMISSION_DENIED, MC_UNSUPPORTED,
                                         MC_CORRUPT, MC_TOO_LARGE, MC_AGENT_UNAVAILABLE,
                                         MC_TIMEOUT),
                         [](const auto& code) { return mc_status_name(code.param); });

// The removal ends with MC_TIMEOUT: the object may come back. The note reaches the store later.
TEST_P(AbsenceWithAStoreThatFails, ARemovalEndsAndLaterOnesSucceed) {
  put_on_all("first");
  put_on_all("later");
  let_other_be_away();
  fleet_.store().set_write_error(GetParam());
  EXPECT_EQ(end_of(fleet_.remove(writer(), "first")), MC_TIMEOUT);
  EXPECT_FALSE(holds(writer(), "first"));
  fleet_.store().set_write_error(MC_OK);
  EXPECT_EQ(end_of(fleet_.remove(writer(), "later")), MC_OK);
  change_leader();
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "first"));
  EXPECT_FALSE(holds(other(), "later"));
}

TEST_P(AbsenceWithAStoreThatFails, AnUpsertEndsAndLasts) {
  put_on_all("key");
  let_other_be_away();
  fleet_.store().set_write_error(GetParam());
  EXPECT_EQ(end_of(fleet_.put(writer(), "key", 2 * kBytes, 1, true)), MC_OK);
  fleet_.store().set_write_error(MC_OK);
  let_other_come_back();
  EXPECT_EQ(length_read(other(), "key"), 2 * kBytes);
}

// Shows that these tests can fail.
TEST_F(Absence, ALeaderThatForgetsAbsentMembersBringsTheObjectBack) {
  fleet_.store().hides_absence = true;
  put_on_all("key");
  let_other_be_away();
  ASSERT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  change_leader();
  let_other_come_back();
  EXPECT_TRUE(holds(other(), "key"));
}

// The only holder is gone when the object is removed.
class RemovalMeanwhile : public FleetTest {
 protected:
  void remove_while_the_holder_is_away() {
    ASSERT_EQ(end_of(fleet_.put(other(), "key", kBytes)), MC_OK);
    ASSERT_EQ(end_of(fleet_.put(other(), "kept", kBytes)), MC_OK);
    turn_for(500 * kMs);
    let_other_be_away();
    EXPECT_EQ(read(writer(), "key"), MC_NOT_FOUND);
    EXPECT_EQ(end_of(fleet_.remove(writer(), "key")), MC_HOLDER_AWAY);
  }
  void expect_removed() {
    EXPECT_FALSE(holds(other(), "key"));
    EXPECT_TRUE(holds(other(), "kept"));
    EXPECT_EQ(read(writer(), "key"), MC_NOT_FOUND);
    EXPECT_EQ(read(writer(), "kept"), MC_OK);
    EXPECT_EQ(end_of(fleet_.remove(writer(), "nowhere")), MC_NOT_FOUND) << "nobody is away";
  }
  void drain_other() {
    const auto done = [&] {
      return ask("drain", R"({"node":)" + id() + "}").find("\"done\":true") != std::string::npos;
    };
    ASSERT_TRUE(fleet_.turn_until(done, 10 * kSoonNs));
  }
  // The operator does not expect the host back.
  std::string give_up_other() { return ask("drain", R"({"dead":true,"node":)" + id() + "}"); }
  bool nodes_show_that_other_is_down() {
    const std::string nodes = ask("nodes", "{}");
    const std::size_t down = nodes.find("\"down\":");
    return down != std::string::npos && nodes.find(id(), down) != std::string::npos;
  }
  std::string id() { return std::to_string(other().id()); }
};

TEST_F(RemovalMeanwhile, IsDoneWhenTheHolderReturns) {
  remove_while_the_holder_is_away();
  let_other_come_back();
  expect_removed();
}

TEST_F(RemovalMeanwhile, IsDoneUnderTheNextLeader) {
  remove_while_the_holder_is_away();
  change_leader();
  let_other_come_back();
  expect_removed();
}

TEST_F(RemovalMeanwhile, LeavesALaterPut) {
  remove_while_the_holder_is_away();
  ASSERT_EQ(end_of(fleet_.put(writer(), "key", 2 * kBytes)), MC_OK);
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "key"));
  EXPECT_EQ(length_read(third(), "key"), 2 * kBytes);
}

// The upsert was acknowledged while its host had no master, and is announced after a later put of the key has gone
// with its holder.
class RemovalOfAnOlderUpsert : public RemovalMeanwhile {
 protected:
  void upsert_without_a_master_and_put_elsewhere() {
    fleet_.cut(writer(), fleet_.master(), true);
    fleet_.break_links(writer());
    turn_for(1'500 * kMs);
    ASSERT_EQ(end_of(fleet_.put(writer(), "key", kBytes / 2, 1, true)), MC_OK);
    turn_for(100 * kMs);
    ASSERT_EQ(end_of(fleet_.put(other(), "key", kBytes, 1, true)), MC_OK);
    turn_for(500 * kMs);
    let_other_be_away();
  }
  void announce_and_remove() {
    fleet_.cut(writer(), fleet_.master(), false);
    ASSERT_TRUE(fleet_.turn_until([&] { return writer().ready(); }, kSoonNs));
    ASSERT_EQ(length_read(third(), "key"), kBytes / 2);
    ASSERT_EQ(end_of(fleet_.remove(third(), "key")), MC_OK);
    EXPECT_FALSE(holds(writer(), "key"));
  }
  void expect_no_object_when_other_comes_back() {
    let_other_come_back();
    EXPECT_FALSE(holds(other(), "key"));
    EXPECT_EQ(read(third(), "key"), MC_NOT_FOUND);
  }
};

TEST_F(RemovalOfAnOlderUpsert, CoversTheAbsentHostsObject) {
  upsert_without_a_master_and_put_elsewhere();
  announce_and_remove();
  expect_no_object_when_other_comes_back();
}

TEST_F(RemovalOfAnOlderUpsert, CoversTheAbsentHostsObjectUnderTheNextLeader) {
  upsert_without_a_master_and_put_elsewhere();
  announce_and_remove();
  change_leader();
  expect_no_object_when_other_comes_back();
}

TEST_F(RemovalOfAnOlderUpsert, ThatTheNextLeaderHeardOfCoversTheAbsentHostsObject) {
  upsert_without_a_master_and_put_elsewhere();
  change_leader();
  announce_and_remove();
  expect_no_object_when_other_comes_back();
}

TEST_F(RemovalMeanwhile, OfAHostThatIsGivenUpFindsNothingToWaitFor) {
  remove_while_the_holder_is_away();
  EXPECT_NE(give_up_other().find("\"done\":true"), std::string::npos);
  EXPECT_EQ(end_of(fleet_.remove(writer(), "kept")), MC_NOT_FOUND);
  change_leader();
  EXPECT_EQ(end_of(fleet_.remove(writer(), "nowhere")), MC_NOT_FOUND);
  EXPECT_NE(give_up_other().find("MC_NOT_FOUND"), std::string::npos)
      << "the host is given up already";
  let_other_come_back();
  EXPECT_FALSE(holds(other(), "key"));
  EXPECT_FALSE(holds(other(), "kept")) << "the next leader does not know what the host missed";
  EXPECT_NE(give_up_other().find("MC_NOT_FOUND"), std::string::npos) << "the host is up";
}

TEST_F(RemovalMeanwhile, OfAHostThatIsGivenUpHoldsUnderTheSameLeaderWhenTheHostReturns) {
  remove_while_the_holder_is_away();
  EXPECT_NE(give_up_other().find("\"done\":true"), std::string::npos);
  EXPECT_EQ(end_of(fleet_.remove(writer(), "kept")), MC_NOT_FOUND);
  let_other_come_back();
  for (const char* const key : {"key", "kept"}) {
    EXPECT_FALSE(holds(other(), key));
    EXPECT_EQ(read(writer(), key), MC_NOT_FOUND);
  }
}

TEST_F(RemovalMeanwhile, EndsLikeThatUnderEachLaterLeaderAndNodesShowsTheHost) {
  remove_while_the_holder_is_away();
  for (unsigned leaders = 0; leaders < 2; ++leaders) {
    change_leader();
    EXPECT_TRUE(nodes_show_that_other_is_down());
    EXPECT_EQ(end_of(fleet_.remove(writer(), "nowhere")), MC_HOLDER_AWAY);
  }
  EXPECT_NE(give_up_other().find("\"done\":true"), std::string::npos);
  EXPECT_FALSE(nodes_show_that_other_is_down());
  EXPECT_EQ(end_of(fleet_.remove(writer(), "nowhere")), MC_NOT_FOUND);
}

TEST_F(RemovalMeanwhile, OfAHostThatWasDrainedFindsNothingToWaitFor) {
  ASSERT_EQ(end_of(fleet_.put(other(), "key", kBytes)), MC_OK);
  drain_other();
  let_other_be_away();
  EXPECT_FALSE(nodes_show_that_other_is_down());
  EXPECT_EQ(end_of(fleet_.remove(writer(), "nowhere")), MC_NOT_FOUND);
  EXPECT_EQ(read(writer(), "key"), MC_OK);
}

// While the master recovers, the drain goes no further.
TEST_F(RemovalMeanwhile, OfAHostThatHasPutAnObjectAfterTheDrainLeavesTheObject) {
  drain_other();
  third().never_end_reports(true);
  fleet_.break_links(third());
  turn_for(100 * kMs);
  ASSERT_EQ(end_of(fleet_.put(other(), "late", kBytes)), MC_OK);
  let_other_be_away();
  EXPECT_TRUE(nodes_show_that_other_is_down());
  third().never_end_reports(false);
  turn_for(1'000 * kMs);
  EXPECT_EQ(end_of(fleet_.remove(writer(), "nowhere")), MC_HOLDER_AWAY);
  let_other_come_back();
  EXPECT_EQ(read(writer(), "late"), MC_OK);
}

}  // namespace
}  // namespace mc::sim
