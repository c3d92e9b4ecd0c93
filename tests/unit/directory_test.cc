// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace mc::metadata {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

KeyHash key(std::uint64_t number) {
  static const KeyHasher hasher("secret");
  return hasher.hash("test", std::to_string(number));
}

PublishItem held(std::uint64_t number, std::uint64_t version = 1) {
  PublishItem item;
  item.hash = key(number);
  item.version = version;
  item.bytes = 4096;
  return item;
}

// A node's side of the stream.
class Agent {
 public:
  Agent(Directory* directory, NodeId id, Incarnation incarnation = 1)
      : directory_(directory), id_(id), incarnation_(incarnation) {
    EXPECT_TRUE(directory_->join(id, incarnation).ok());
  }
  StreamPosition next() { return {id_, incarnation_, ++sequence_}; }
  void begin() { EXPECT_EQ(directory_->begin_report(next()), StreamAnswer::kApplied); }
  void end() { EXPECT_EQ(directory_->end_report(next()), StreamAnswer::kApplied); }
  void report_nothing() {
    begin();
    end();
  }
  std::vector<Verdict> publish(const std::vector<PublishItem>& items) {
    return publish(items, directory_->removal());
  }
  std::vector<Verdict> publish(const std::vector<PublishItem>& items, std::uint64_t seen) {
    directory_->apply(
        {.position = next(), .removals_seen = seen, .items = items, .lost_up_to = lost_up_to_},
        answer_);
    EXPECT_EQ(answer_.stream, StreamAnswer::kApplied);
    return answer_.verdicts;
  }
  [[nodiscard]] const std::vector<Holding>& drops() const { return answer_.drops; }
  [[nodiscard]] std::uint64_t refused_up_to() const { return answer_.refused_up_to; }
  void lose_a_message() { ++sequence_; }
  void lose_up_to(std::uint64_t version) { lost_up_to_ = version; }

 private:
  Directory* directory_;
  NodeId id_;
  Incarnation incarnation_;
  std::uint64_t sequence_ = 0;
  std::uint64_t lost_up_to_ = 0;
  BatchAnswer answer_;
};

Lookup state_of(const Directory& directory, std::uint64_t number) {
  LocateAnswer answer;
  const KeyHash hash = key(number);
  directory.locate({&hash, 1}, answer);
  return answer.keys[0].state;
}

std::vector<NodeId> holders_of(const Directory& directory, std::uint64_t number) {
  LocateAnswer answer;
  const KeyHash hash = key(number);
  directory.locate({&hash, 1}, answer);
  return answer.holders;
}

TEST(Directory, AMissIsRecoveringUntilEveryKnownMemberHasReported) {
  Directory directory({});
  EXPECT_EQ(state_of(directory, 1), Lookup::kMiss);
  ASSERT_TRUE(directory.expect(7).ok());
  EXPECT_EQ(state_of(directory, 1), Lookup::kRecovering);
  Agent other(&directory, 8);
  other.begin();
  other.publish({held(2)});
  EXPECT_EQ(state_of(directory, 2), Lookup::kFound);
  other.end();
  EXPECT_EQ(state_of(directory, 1), Lookup::kRecovering);
  Agent expected(&directory, 7);
  expected.report_nothing();
  EXPECT_EQ(state_of(directory, 1), Lookup::kMiss);
  // This node does not report again. Its next report counts like any other.
  expected.begin();
  EXPECT_EQ(state_of(directory, 1), Lookup::kRecovering);
  directory.stop_waiting(7);
  EXPECT_EQ(state_of(directory, 1), Lookup::kMiss);
  EXPECT_FALSE(directory.reported(7));
  expected.end();
  EXPECT_TRUE(directory.reported(7));
  expected.begin();
  EXPECT_EQ(state_of(directory, 1), Lookup::kRecovering);
  expected.end();
  // This node never comes, and is given up.
  ASSERT_TRUE(directory.expect(9).ok());
  EXPECT_TRUE(directory.leave(9, 0));
  EXPECT_EQ(state_of(directory, 1), Lookup::kMiss);
}

TEST(Directory, AReportDropsWhatItDoesNotName) {
  Directory directory({});
  Agent agent(&directory, 1);
  agent.report_nothing();
  agent.publish({held(1), held(2)});
  agent.begin();
  agent.publish({held(2), held(3)});
  EXPECT_EQ(state_of(directory, 1), Lookup::kFound);  // not before the end
  agent.end();
  EXPECT_EQ(state_of(directory, 1), Lookup::kMiss);
  EXPECT_EQ(state_of(directory, 2), Lookup::kFound);
  EXPECT_EQ(state_of(directory, 3), Lookup::kFound);
  EXPECT_EQ(directory.entry_count(), 2u);
}

TEST(Directory, AGapAsksForAReportAndChangesNothing) {
  Directory directory({});
  Agent agent(&directory, 1);
  agent.report_nothing();
  agent.publish({held(1)});
  agent.lose_a_message();
  BatchAnswer answer;
  const PublishItem item = held(2);
  directory.apply({agent.next(), 0, {&item, 1}}, answer);
  EXPECT_EQ(answer.stream, StreamAnswer::kReportNeeded);
  EXPECT_EQ(state_of(directory, 2), Lookup::kRecovering);
  EXPECT_EQ(state_of(directory, 1), Lookup::kFound);
  agent.begin();
  agent.publish({held(1), held(2)});
  agent.end();
  EXPECT_EQ(state_of(directory, 2), Lookup::kFound);
}

TEST(Directory, EntriesDieWithTheirIncarnationAndComeBackWithTheReport) {
  Directory directory({});
  Agent first(&directory, 1, 1);
  first.report_nothing();
  first.publish({held(1), held(2)});
  Agent second(&directory, 1, 2);
  EXPECT_EQ(state_of(directory, 1), Lookup::kRecovering);
  EXPECT_EQ(directory.entry_count(), 0u);
  BatchAnswer answer;
  const PublishItem item = held(3);
  directory.apply({first.next(), 0, {&item, 1}}, answer);
  EXPECT_EQ(answer.stream, StreamAnswer::kStaleIncarnation);
  second.begin();
  second.publish({held(2)});
  second.end();
  EXPECT_EQ(state_of(directory, 1), Lookup::kMiss);
  EXPECT_THAT(holders_of(directory, 2), ElementsAre(1));
  EXPECT_FALSE(directory.leave(1, 1));  // of the earlier incarnation
  EXPECT_TRUE(directory.leave(1, 2));
  EXPECT_EQ(state_of(directory, 2), Lookup::kMiss);
  while (directory.unswept() != 0) directory.sweep(1000);
  EXPECT_EQ(directory.entry_count(), 0u);
}

TEST(Directory, AnUpsertReplacesTheOlderVersionEverywhere) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  Agent three(&directory, 3);
  for (Agent* agent : {&one, &two, &three}) agent->report_nothing();
  one.publish({held(1, 10)});
  two.publish({held(1, 10)});
  EXPECT_THAT(holders_of(directory, 1), UnorderedElementsAre(1, 2));
  EXPECT_THAT(three.publish({held(1, 11)}), ElementsAre(Verdict::kAccepted));
  EXPECT_THAT(three.drops(), UnorderedElementsAre(Holding{key(1), 10, 1}, Holding{key(1), 10, 2}));
  EXPECT_THAT(holders_of(directory, 1), ElementsAre(3));
  EXPECT_THAT(one.publish({held(1, 10)}), ElementsAre(Verdict::kRemoved));
  // Even when the newer version is lost.
  directory.leave(3, 1);
  EXPECT_THAT(one.publish({held(1, 10)}), ElementsAre(Verdict::kRemoved));
  EXPECT_THAT(one.publish({held(1, 12)}), ElementsAre(Verdict::kAccepted));
}

// A node offers a copy, puts the key itself meanwhile, is refused, and drops the put.
TEST(Directory, DroppingAVersionThatWasRefusedLeavesTheOneThatIsHeld) {
  Directory directory({});
  Agent one(&directory, 1), two(&directory, 2);
  one.report_nothing();
  two.report_nothing();
  EXPECT_THAT(one.publish({held(1, 10)}), ElementsAre(Verdict::kAccepted));
  PublishItem created = held(1, 20);
  created.what = PublishItem::What::kCreates;
  EXPECT_THAT(two.publish({held(1, 10), created}),
              ElementsAre(Verdict::kAccepted, Verdict::kStale));
  created.what = PublishItem::What::kDropped;
  EXPECT_THAT(two.publish({created}), ElementsAre(Verdict::kNotHeld));
  EXPECT_THAT(holders_of(directory, 1), UnorderedElementsAre(1, 2));
}

TEST(Directory, ARemovedVersionDoesNotComeBack) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  one.report_nothing();
  two.report_nothing();
  one.publish({held(1, 10)});
  const RemoveItem item{key(1)};
  RemoveAnswer answer;
  directory.remove({&item, 1}, answer);
  EXPECT_THAT(answer.keys, ElementsAre(Lookup::kFound));
  EXPECT_THAT(answer.drops, ElementsAre(Holding{key(1), 10, 1}));
  EXPECT_EQ(state_of(directory, 1), Lookup::kMiss);
  EXPECT_THAT(two.publish({held(1, 10)}), ElementsAre(Verdict::kRemoved));
  // An older version does not come back either, but the directory does not know that version's
  // removal.
  EXPECT_THAT(two.publish({held(1, 9)}), ElementsAre(Verdict::kBehind));
  EXPECT_EQ(two.refused_up_to(), 10u);
  EXPECT_THAT(two.publish({held(1, 11)}), ElementsAre(Verdict::kAccepted));
}

// Three upserts were made while no master was there. The oldest is announced last.
TEST(Directory, AVersionOlderThanAReplacedOneIsStaleEvenWithoutAHolder) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  Agent three(&directory, 3);
  for (Agent* const agent : {&one, &two, &three}) agent->report_nothing();
  two.publish({held(1, 10)});
  three.publish({held(1, 20)});
  EXPECT_THAT(one.publish({held(1, 5)}), ElementsAre(Verdict::kStale));
  ASSERT_TRUE(directory.leave(3, 1));
  EXPECT_THAT(one.publish({held(1, 5)}), ElementsAre(Verdict::kStale));
  EXPECT_EQ(one.refused_up_to(), 10u);
  EXPECT_THAT(two.publish({held(1, 10)}), ElementsAre(Verdict::kRemoved));
  // A put that creates, from a slow clock. kStale would tell the node that the key exists.
  PublishItem creates = held(1, 5);
  creates.what = PublishItem::What::kCreates;
  EXPECT_THAT(one.publish({creates}), ElementsAre(Verdict::kBehind));
  // A later removal decides.
  two.publish({held(1, 30)});
  const RemoveItem item{key(1)};
  RemoveAnswer answer;
  directory.remove({&item, 1}, answer);
  EXPECT_THAT(one.publish({held(1, 5)}), ElementsAre(Verdict::kBehind));
}

// Another put in stripes may have begun after the late put had been acknowledged, whatever the clocks say.
TEST(Directory, APutThatWasAcknowledgedEarlierWaitsForAnIncompleteObjectAndThenYields) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  for (Agent* const agent : {&one, &two}) agent->report_nothing();
  PublishItem part = held(1, 10);
  part.attributes.striped = true;
  part.attributes.parts = 2;
  two.publish({part});
  PublishItem late = held(1, 9);
  late.what = PublishItem::What::kCreated;
  EXPECT_THAT(one.publish({late}), ElementsAre(Verdict::kFull));
  late.version = 11;
  EXPECT_THAT(one.publish({late}), ElementsAre(Verdict::kFull));
  part.attributes.part = 1;
  EXPECT_THAT(two.publish({part}), ElementsAre(Verdict::kAccepted));
  EXPECT_THAT(one.publish({late}), ElementsAre(Verdict::kStale));
  part.what = PublishItem::What::kDropped;
  two.publish({part});
  EXPECT_THAT(one.publish({late}), ElementsAre(Verdict::kFull));
  part.attributes.part = 0;
  two.publish({part});
  EXPECT_THAT(one.publish({late}), ElementsAre(Verdict::kAccepted));
}

// A node that is gone may hold such a version, and is back later.
TEST(Directory, AVersionThatMayBeOlderThanThatOfAGoneNodeIsBehindUnlessTheKeyHasAHolder) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  for (Agent* const agent : {&one, &two}) agent->report_nothing();
  two.publish({held(1, 10)});
  one.lose_up_to(20);
  EXPECT_THAT(one.publish({held(1, 10), held(1, 11)}), Each(Verdict::kAccepted));
  PublishItem creates = held(2, 19);
  creates.what = PublishItem::What::kCreates;
  EXPECT_THAT(one.publish({creates, held(3, 19)}), Each(Verdict::kBehind));
  EXPECT_EQ(one.refused_up_to(), 20u);
  EXPECT_THAT(one.publish({held(5, 20)}), ElementsAre(Verdict::kAccepted)) << "a copy";
  EXPECT_THAT(one.publish({held(2, 21), held(3, 21)}), Each(Verdict::kAccepted));
  one.lose_up_to(0);
  EXPECT_THAT(one.publish({held(4, 5)}), ElementsAre(Verdict::kAccepted)) << "of a report";
}

// These versions were removed under another directory.
TEST(Directory, ABuriedVersionIsRefused) {
  Directory directory({});
  Agent one(&directory, 1);
  one.report_nothing();
  const std::vector<RemovalNote> notes{
      {.hash = key(1), .version = 10},
      {.hash = key(3), .version = 10, .unheard_up_to = 20},
      {.hash = key(4), .unheard_up_to = 20},
  };
  directory.bury(notes);
  EXPECT_THAT(one.publish({held(1, 10)}), ElementsAre(Verdict::kRemoved));
  EXPECT_THAT(one.publish({held(1, 9)}), ElementsAre(Verdict::kBehind));
  EXPECT_THAT(one.publish({held(1, 11), held(2, 1)}), Each(Verdict::kAccepted));
  EXPECT_THAT(one.publish({held(3, 10)}), ElementsAre(Verdict::kRemoved));
  EXPECT_THAT(one.publish({held(3, 9), held(3, 11), held(3, 20), held(4, 20)}),
              Each(Verdict::kBehind));
  EXPECT_EQ(one.refused_up_to(), 20u);
  EXPECT_THAT(one.publish({held(3, 21), held(4, 21)}), Each(Verdict::kAccepted));
}

// An agent that is told "behind" announces an unannounced upsert again, with a version above the holder's.
TEST(Directory, AVersionBelowTheHoldersIsStaleAlsoBelowATombstone) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  for (Agent* const agent : {&one, &two}) agent->report_nothing();
  one.publish({held(1, 10)});
  const RemoveItem item{key(1)};
  RemoveAnswer answer;
  directory.remove({&item, 1}, answer, {.unheard_up_to = 20});
  one.publish({held(1, 30)});
  EXPECT_THAT(two.publish({held(1, 9), held(1, 15), held(1, 29)}), Each(Verdict::kStale));
  EXPECT_THAT(two.publish({held(1, 10)}), ElementsAre(Verdict::kRemoved));
}

// A node that is away may hold a later version than the removed version.
TEST(Directory, ARemovalWhileANodeIsAwayRefusesAllVersionsHeardSoFar) {
  Directory directory({});
  Agent one(&directory, 1);
  one.report_nothing();
  one.publish({held(1, 10), held(2, 30)});
  const std::vector<RemoveItem> items{{key(1)}, {key(2)}, {key(3)}, {key(4), 15}};
  RemoveAnswer answer;
  directory.remove(items, answer, {.unheard_up_to = 20});
  EXPECT_THAT(answer.keys,
              ElementsAre(Lookup::kFound, Lookup::kFound, Lookup::kMiss, Lookup::kMiss));
  EXPECT_THAT(answer.notes, ElementsAre(RemovalNote{key(1), 10, 20}, RemovalNote{key(2), 30, 0},
                                        RemovalNote{key(3), 0, 20}, RemovalNote{key(4), 0, 15}));
  EXPECT_THAT(one.publish({held(1, 10), held(2, 30)}), Each(Verdict::kRemoved));
  EXPECT_THAT(one.publish({held(1, 11), held(1, 20), held(2, 29), held(3, 20), held(4, 15)}),
              Each(Verdict::kBehind));
  // Another removal does not change why a version is refused.
  directory.remove(items, answer, {.unheard_up_to = 25});
  EXPECT_THAT(one.publish({held(1, 10), held(2, 30)}), Each(Verdict::kRemoved));
  EXPECT_THAT(one.publish({held(1, 25)}), ElementsAre(Verdict::kBehind));
  EXPECT_THAT(one.publish({held(1, 26), held(2, 31), held(3, 26), held(4, 16)}),
              Each(Verdict::kAccepted));
}

// The asker repeats the removal of a missing key. The repetitions must leave no notes.
TEST(Directory, ARemovalDuringTheRecoveryNotesOnlyFoundKeys) {
  Directory directory({});
  Agent one(&directory, 1);
  one.report_nothing();
  one.publish({held(1, 10)});
  const std::vector<RemoveItem> items{{key(1)}, {key(2)}};
  RemoveAnswer answer;
  directory.remove(items, answer, {.unheard_up_to = 20, .recovering = true});
  EXPECT_THAT(answer.keys, ElementsAre(Lookup::kFound, Lookup::kRecovering));
  EXPECT_THAT(answer.notes, ElementsAre(RemovalNote{key(1), 10, 20}));
  EXPECT_THAT(one.publish({held(1, 20)}), ElementsAre(Verdict::kBehind));
  EXPECT_THAT(one.publish({held(2, 20)}), ElementsAre(Verdict::kAccepted));
}

TEST(Directory, EachOfTheTwoTombstonesOfAKeyIsForgottenInItsTurn) {
  Directory directory({.max_tombstones = 2});
  Agent one(&directory, 1);
  one.report_nothing();
  one.publish({held(1, 10)});
  const std::uint64_t before = directory.removal();
  const RemoveItem item{key(1)};
  RemoveAnswer answer;
  directory.remove({&item, 1}, answer, {.unheard_up_to = 20});
  EXPECT_EQ(directory.tombstone_count(), 2u);
  const auto remove_another = [&](std::uint64_t number) {
    one.publish({held(number, 5)});
    const RemoveItem another{key(number)};
    directory.remove({&another, 1}, answer);
    EXPECT_EQ(directory.tombstone_count(), 2u);
  };
  remove_another(2);
  EXPECT_THAT(one.publish({held(1, 10)}), ElementsAre(Verdict::kBehind));
  remove_another(3);
  EXPECT_THAT(one.publish({held(1, 20)}, before), ElementsAre(Verdict::kUncertain));
}

TEST(Directory, AForgottenRemovalMakesOldNewsUncertainButNotNewOnes) {
  Directory directory({.max_tombstones = 2});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  one.report_nothing();
  two.report_nothing();
  const std::uint64_t before = directory.removal();
  one.publish({held(1, 10), held(2, 11), held(3, 12), held(9, 5)});
  RemoveAnswer answer;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const RemoveItem item{key(i)};
    directory.remove({&item, 1}, answer);
  }
  EXPECT_EQ(directory.tombstone_count(), 2u);
  // Key 1's removal is forgotten, but a node that has not heard of the removal is recognised.
  EXPECT_THAT(two.publish({held(1, 10)}, before), ElementsAre(Verdict::kUncertain));
  EXPECT_THAT(two.publish({held(2, 11)}, before), ElementsAre(Verdict::kRemoved));
  // Key 9 has another holder. Newer versions and newer announcements are not in doubt.
  EXPECT_THAT(two.publish({held(9, 5), held(1, 13)}, before), Each(Verdict::kAccepted));
  EXPECT_THAT(two.publish({held(8, 4)}), ElementsAre(Verdict::kAccepted));
}

TEST(Directory, WithoutTombstonesEveryRemovalIsForgottenAtOnce) {
  Directory directory({.max_tombstones = 0});
  Agent one(&directory, 1);
  one.report_nothing();
  const std::uint64_t before = directory.removal();
  one.publish({held(1, 10)});
  const RemoveItem item{key(1)};
  RemoveAnswer answer;
  directory.remove({&item, 1}, answer);
  EXPECT_EQ(directory.tombstone_count(), 0u);
  EXPECT_THAT(one.publish({held(1, 10)}, before), ElementsAre(Verdict::kUncertain));
}

TEST(Directory, AtItsLimitItRefusesNewKeysAndTakesThemWhenThereIsRoom) {
  Directory directory({.max_entries = 100});
  Agent agent(&directory, 1);
  agent.report_nothing();
  std::vector<PublishItem> items;
  for (std::uint64_t i = 0; i < 100; ++i) items.push_back(held(i));
  EXPECT_THAT(agent.publish(items), Each(Verdict::kAccepted));
  EXPECT_THAT(agent.publish({held(100), held(5)}), ElementsAre(Verdict::kFull, Verdict::kAccepted));
  PublishItem gone = held(7);
  gone.what = PublishItem::What::kDropped;
  EXPECT_THAT(agent.publish({gone, held(100)}), Each(Verdict::kAccepted));
  // A dead node's slots are room after a sweep. A report of the same objects needs no room.
  Agent again(&directory, 1, 2);
  again.begin();
  EXPECT_THAT(again.publish({held(1), held(2)}), Each(Verdict::kAccepted));
  while (directory.unswept() != 0) directory.sweep(1000);
  EXPECT_THAT(again.publish({held(200)}), ElementsAre(Verdict::kAccepted));
}

TEST(Directory, AKeyHasAtMostSoManyHolders) {
  Directory directory({});
  for (NodeId node = 1; node <= kMaxHolders + 1; ++node) {
    Agent agent(&directory, node);
    agent.report_nothing();
    EXPECT_THAT(agent.publish({held(1)}),
                ElementsAre(node <= kMaxHolders ? Verdict::kAccepted : Verdict::kHoldersFull));
  }
  EXPECT_EQ(holders_of(directory, 1).size(), kMaxHolders);
}

TEST(Directory, RefusesImpossibleItems) {
  Directory directory({.max_nodes = 2});
  EXPECT_EQ(directory.join(0, 1).code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(directory.join(1, 0).code(), MC_INVALID_ARGUMENT);
  Agent one(&directory, 1, 5);
  EXPECT_EQ(directory.join(1, 4).code(), MC_INVALID_ARGUMENT);
  Agent two(&directory, 2);
  EXPECT_EQ(directory.join(3, 1).code(), MC_BUSY);
  EXPECT_EQ(directory.expect(3).code(), MC_BUSY);
  one.report_nothing();
  two.report_nothing();
  PublishItem item = held(1);
  item.bytes = 0;
  EXPECT_THAT(one.publish({item}), ElementsAre(Verdict::kInvalid));
  item.bytes = MC_MAX_OBJECT_BYTES + 1;
  EXPECT_THAT(one.publish({item}), ElementsAre(Verdict::kInvalid));
  item.bytes = MC_MAX_OBJECT_BYTES;
  item.attributes.replicas = 9;
  EXPECT_THAT(one.publish({item}), ElementsAre(Verdict::kInvalid));
  item.attributes.replicas = 8;
  EXPECT_THAT(one.publish({item}), ElementsAre(Verdict::kAccepted));
  // Two sizes of the same version are not the same object.
  item.bytes = 17;
  EXPECT_THAT(two.publish({item}), ElementsAre(Verdict::kInvalid));
  const std::vector<PublishItem> many(MC_MAX_BATCH_ITEMS + 1, held(2));
  BatchAnswer answer;
  directory.apply({one.next(), 0, many}, answer);
  EXPECT_EQ(answer.stream, StreamAnswer::kTooManyItems);
}

TEST(Directory, CountsWhatEachNodeHolds) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  one.begin();
  one.publish({held(1), held(2), held(3)});
  two.report_nothing();
  two.publish({held(3)});
  const std::vector<NodeCounts> nodes = directory.nodes();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].entries, 3u);
  EXPECT_EQ(nodes[0].bytes, 3u * 4096);
  EXPECT_EQ(nodes[0].report, ReportState::kStreaming);
  EXPECT_EQ(nodes[1].entries, 1u);
  EXPECT_EQ(nodes[1].report, ReportState::kComplete);
}

PublishItem on_disk(std::uint64_t number, std::uint64_t version = 1) {
  PublishItem item = held(number, version);
  item.on_disk = true;
  return item;
}

TEST(Directory, KnowsWhichHoldersHaveAnObjectOnADiskOnly) {
  Directory directory({});
  Agent one(&directory, 1), two(&directory, 2), three(&directory, 3);
  for (Agent* const agent : {&one, &two, &three}) agent->report_nothing();
  one.publish({on_disk(1)});
  two.publish({held(1)});
  three.publish({on_disk(1)});
  // The holders with the object on a disk, in ascending order.
  const auto on_disks = [&] {
    LocateAnswer answer;
    const KeyHash hash = key(1);
    directory.locate({&hash, 1}, answer);
    std::set<NodeId> nodes;
    const auto holders = answer.holders_of(answer.keys[0]);
    for (std::size_t i = 0; i < holders.size(); ++i) {
      if ((answer.keys[0].on_disk >> i & 1) != 0) nodes.insert(holders[i]);
    }
    return nodes;
  };
  EXPECT_EQ(on_disks(), (std::set<NodeId>{1, 3}));
  EXPECT_EQ(directory.nodes()[0].disk_entries, 1u);
  // The object comes back into the pool, and leaves again.
  EXPECT_EQ(one.publish({held(1)}), std::vector{Verdict::kAccepted});
  EXPECT_EQ(on_disks(), (std::set<NodeId>{3}));
  EXPECT_EQ(directory.nodes()[0].disk_entries, 0u);
  EXPECT_EQ(directory.nodes()[0].entries, 1u);
  EXPECT_EQ(one.publish({on_disk(1)}), std::vector{Verdict::kAccepted});
  EXPECT_EQ(on_disks(), (std::set<NodeId>{1, 3}));
  PublishItem dropped = on_disk(1);
  dropped.what = PublishItem::What::kDropped;
  EXPECT_EQ(one.publish({dropped}), std::vector{Verdict::kAccepted});
  EXPECT_EQ(on_disks(), (std::set<NodeId>{3}));
  EXPECT_THAT(holders_of(directory, 1), ::testing::UnorderedElementsAre(2, 3));
}

TEST(Directory, ANewOrderOfHoldersKeepsTheirTiers) {
  LocateAnswer answer;
  answer.holders = {9, 1, 2, 3};
  Located& found = answer.keys.emplace_back();
  found.first_holder = 1;
  found.holder_count = 3;
  found.on_disk = 0b001;
  answer.reorder(answer.keys[0], std::vector<NodeId>{3, 2, 1});
  EXPECT_EQ(answer.holders, (std::vector<NodeId>{9, 3, 2, 1}));
  EXPECT_EQ(answer.keys[0].on_disk, 0b100u);
}

TEST(Directory, ObjectsOnDisksEndWithTheirReportAndTheirNode) {
  Directory directory({});
  Agent one(&directory, 1);
  one.report_nothing();
  one.publish({on_disk(1), held(2), on_disk(3)});
  one.begin();
  one.publish({on_disk(1)});
  one.end();
  EXPECT_EQ(state_of(directory, 1), Lookup::kFound);
  EXPECT_EQ(state_of(directory, 3), Lookup::kMiss);
  EXPECT_EQ(directory.entry_count(1), 1u);
  // A later version on another host replaces the object on the disk.
  Agent two(&directory, 2);
  two.report_nothing();
  two.publish({held(1, 2)});
  EXPECT_EQ(two.drops(), (std::vector<Holding>{{key(1), 1, 1}}));
  one.publish({on_disk(4)});
  EXPECT_TRUE(directory.leave(1, 1));
  EXPECT_EQ(state_of(directory, 4), Lookup::kMiss);
}

TEST(Directory, PartsOfAStripedObjectAreOnNoDisk) {
  Directory directory({});
  Agent one(&directory, 1);
  one.report_nothing();
  PublishItem part = on_disk(1);
  part.attributes.striped = true;
  part.attributes.parts = 2;
  EXPECT_EQ(one.publish({part}), std::vector{Verdict::kInvalid});
}

// A part of an object in stripes.
PublishItem striped(std::uint64_t version, unsigned part, unsigned parts = 2) {
  PublishItem item = held(1, version);
  item.bytes = 5u << 20;
  item.attributes.striped = true;
  item.attributes.parts = static_cast<std::uint8_t>(parts);
  item.attributes.part = static_cast<std::uint8_t>(part);
  return item;
}
Located located(const Directory& directory, std::vector<NodeId>* holders = nullptr) {
  const KeyHash hash = held(1).hash;
  LocateAnswer found;
  directory.locate({&hash, 1}, found);
  if (holders != nullptr) *holders = found.holders;
  return found.keys.front();
}

// The holder of the missing part may have yet to report.
TEST(Directory, AnObjectThatLacksAPartIsRecoveringUntilEveryKnownMemberHasReported) {
  Directory directory({});
  ASSERT_TRUE(directory.expect(2).ok());
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  one.begin();
  one.publish({striped(3, 0)});
  one.end();
  EXPECT_EQ(located(directory).state, Lookup::kRecovering);
  two.begin();
  two.publish({striped(3, 1)});
  EXPECT_TRUE(located(directory).whole());
  ASSERT_TRUE(directory.leave(2, 1));
  EXPECT_EQ(located(directory).state, Lookup::kFound);
}

TEST(Directory, AStripedObjectIsWholeWhenEachOfItsPartsHasAHolder) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  Agent three(&directory, 3);
  for (Agent* const agent : {&one, &two, &three}) agent->report_nothing();
  one.publish({striped(3, 0)});
  ASSERT_TRUE(located(directory).attributes.striped);
  EXPECT_EQ(located(directory).missing_parts, 1u);
  EXPECT_FALSE(located(directory).whole());
  // As many holders as parts, but all hold the same part.
  three.publish({striped(3, 0)});
  EXPECT_FALSE(located(directory).whole());
  two.publish({striped(3, 1)});
  std::vector<NodeId> holders;
  EXPECT_TRUE(located(directory, &holders).whole());
  EXPECT_THAT(holders, UnorderedElementsAre(1, 2, 3));
  ASSERT_TRUE(directory.leave(1, 1));
  EXPECT_TRUE(located(directory).whole());
  ASSERT_TRUE(directory.leave(2, 1));
  EXPECT_FALSE(located(directory).whole());
}

TEST(Directory, AHolderOfSeveralPartsIsNamedOnceAndDropsThemOneByOne) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  one.report_nothing();
  two.report_nothing();
  EXPECT_THAT(one.publish({striped(3, 0, 3), striped(3, 2, 3)}), Each(Verdict::kAccepted));
  EXPECT_THAT(two.publish({striped(3, 1, 3)}), Each(Verdict::kAccepted));
  std::vector<NodeId> holders;
  EXPECT_TRUE(located(directory, &holders).whole());
  EXPECT_THAT(holders, UnorderedElementsAre(1, 2));
  std::vector<KeyView> walked;
  for (std::optional<std::uint64_t> at = 0; at;) {
    at = directory.walk(*at, 1, [&](const KeyView& key) { walked.push_back(key); });
  }
  ASSERT_EQ(walked.size(), 1u);
  ASSERT_EQ(walked[0].holder_count, 2u);
  EXPECT_EQ(walked[0].parts[walked[0].holders[0] == 1 ? 0 : 1], 0b101);
  PublishItem dropped = striped(3, 2, 3);
  dropped.what = PublishItem::What::kDropped;
  EXPECT_THAT(one.publish({dropped}), ElementsAre(Verdict::kAccepted));
  EXPECT_EQ(located(directory, &holders).missing_parts, 1u);
  EXPECT_THAT(holders, UnorderedElementsAre(1, 2));
  // The number of parts of an object never changes.
  EXPECT_THAT(two.publish({striped(3, 1, 2)}), ElementsAre(Verdict::kInvalid));
}

TEST(Directory, NoPartIsLeftOfWhatItsHolderReplaces) {
  Directory directory({});
  Agent one(&directory, 1);
  one.report_nothing();
  one.publish({striped(3, 0), striped(3, 1)});
  EXPECT_THAT(one.publish({held(1, 4)}), ElementsAre(Verdict::kAccepted));
  EXPECT_EQ(directory.entry_count(), 1u);
  EXPECT_FALSE(located(directory).attributes.striped);
  EXPECT_THAT(one.publish({striped(5, 1)}), ElementsAre(Verdict::kAccepted));
  EXPECT_EQ(located(directory).missing_parts, 1u);
  EXPECT_EQ(directory.entry_count(), 1u);
}

TEST(Directory, APutDoesNotGiveWayToStripesThatAreNotWhole) {
  Directory directory({});
  Agent one(&directory, 1);
  Agent two(&directory, 2);
  Agent three(&directory, 3);
  for (Agent* const agent : {&one, &two, &three}) agent->report_nothing();
  PublishItem creates = held(1, 7);
  creates.what = PublishItem::What::kCreates;
  one.publish({striped(5, 0)});
  two.publish({striped(5, 1)});
  EXPECT_THAT(three.publish({creates}), ElementsAre(Verdict::kStale));
  ASSERT_TRUE(directory.leave(2, 1));
  // The put is older than the held version: the node must not drop the put, but give the put a
  // later version.
  creates.version = 4;
  EXPECT_THAT(three.publish({creates}), ElementsAre(Verdict::kBehind));
  EXPECT_EQ(three.refused_up_to(), 5u);
  creates.version = 7;
  EXPECT_THAT(three.publish({creates}), ElementsAre(Verdict::kAccepted));
  EXPECT_THAT(three.drops(), ElementsAre(Holding{creates.hash, 5, 1}));
}

TEST(KeyHasher, DependsOnTheSecretTheNamespaceAndTheBorderBetweenThem) {
  const KeyHasher one("secret");
  const KeyHasher two("other");
  EXPECT_EQ(one.hash("a", "bc"), KeyHasher("secret").hash("a", "bc"));
  EXPECT_NE(one.hash("a", "bc"), two.hash("a", "bc"));
  EXPECT_NE(one.hash("a", "bc"), one.hash("ab", "c"));
}

// Includes all overhead: the directory's own figure, when full and right after growth.
TEST(Directory, AnEntryTakesAtMost64BytesAtEverySize) {
  constexpr std::uint64_t kEntries = 4'000'000;
  Directory directory({});
  Agent agent(&directory, 1);
  agent.report_nothing();
  std::mt19937_64 random(1);
  std::vector<PublishItem> items(MC_MAX_BATCH_ITEMS);
  double worst = 0;
  for (std::uint64_t count = 0; count < kEntries; count += items.size()) {
    for (PublishItem& item : items) item.hash = {random(), random()};
    ASSERT_THAT(agent.publish(items), Each(Verdict::kAccepted));
    // Below this size a table's first step of memory outweighs the entries.
    if (directory.entry_count() < 500'000) continue;
    worst = std::max(worst, static_cast<double>(directory.memory_bytes()) /
                                static_cast<double>(directory.entry_count()));
  }
  RecordProperty("worst_bytes_per_entry", std::to_string(worst));
  EXPECT_LE(worst, 64.0);
  EXPECT_GE(worst, 32.0);
}

}  // namespace
}  // namespace mc::metadata
