// SPDX-License-Identifier: Apache-2.0
//
// Records of a leader about absent members, with a store that answers on the test's command.
#include "metadata/master/absence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metadata/wire/codec.h"

namespace mc::metadata {
namespace {

constexpr NodeId kAway = 7;
constexpr NodeId kOther = 8;

// Like the elector's store: a value for each key; the latest wins.
class ObjectStore {
 public:
  Absence::Save save() {
    return [this](std::string key, std::optional<std::string> value, std::function<void()> done) {
      auto& [wanted, all] = queued_[std::move(key)];
      wanted = std::move(value);
      if (done) all.push_back(std::move(done));
      if (at_once) write();
    };
  }
  void write() {
    for (auto& [key, one] : std::exchange(queued_, {})) {
      if (one.first) {
        content_[key] = *one.first;
      } else {
        content_.erase(key);
      }
      for (const auto& done : one.second) done();
    }
  }
  Term term() const {
    Term term;
    for (const auto& [key, value] : content_) {
      Entry entry;
      entry.key = "shares/3/" + key;
      entry.value = value;
      (key.starts_with(kAwayPrefix)      ? term.away
       : key.starts_with(kRemovedPrefix) ? term.removed
                                         : term.patterns)
          .push_back(entry);
    }
    return term;
  }
  std::size_t size() const { return content_.size(); }
  const std::string& at(const std::string& key) const { return content_.at(key); }

  bool at_once = true;

 private:
  std::map<std::string, std::string> content_;
  std::map<std::string, std::pair<std::optional<std::string>, std::vector<std::function<void()>>>>
      queued_;
};

std::vector<RemovalNote> note_of(std::uint64_t key, std::uint64_t version) {
  return {{.hash = {key, 0}, .version = version}};
}

void remove_many(Absence& absence, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) absence.removed(note_of(i, 1), [](bool) {});
}

TEST(Absence, WritesNothingWhileAllAreHere) {
  ObjectStore store;
  Absence absence({}, store.save(), 0);
  absence.joined(kAway, 5);
  absence.reported(kAway);
  bool told = false;
  absence.removed(note_of(1, 2), [&](bool) { told = true; });
  EXPECT_TRUE(told);
  EXPECT_EQ(store.size(), 0u);
}

TEST(Absence, TellsTheNextLeaderOfRemovalsUntilAllHaveReported) {
  ObjectStore store;
  Absence first({}, store.save(), 0);
  first.gone(kAway, 1);
  const std::vector<RemovalNote> notes{{{1, 2}, 3, 0}, {{4, 5}, 6, 7}, {{8, 9}, 0, 10}};
  first.removed(notes, [](bool) {});
  Absence second(store.term(), store.save(), 0);
  EXPECT_EQ(second.removed_before(), notes);
  // The removals are named, so no other object of that member is in doubt.
  second.joined(kAway, 9);
  EXPECT_FALSE(second.may_have_missed(kAway, 0));
  second.removed(note_of(10, 11), [](bool) {});
  EXPECT_EQ(Absence(store.term(), store.save(), 0).removed_before().size(), 4u);
  second.reported(kAway);
  EXPECT_EQ(store.size(), 0u);
}

// Earlier versions stored the keys and the versions alone.
TEST(Absence, AnEarlierVersionsRecordOfRemovalsIsRead) {
  std::string value;
  wire::encode(wire::Remove{{{{1, 2}, 3}, {{4, 5}, 6}}}, value);
  Term term;
  term.removed.push_back({});
  term.removed.back().key = "removed/1";
  term.removed.back().value = value;
  ObjectStore store;
  EXPECT_THAT(Absence(term, store.save(), 0).removed_before(),
              testing::ElementsAre(RemovalNote{{1, 2}, 3, 0}, RemovalNote{{4, 5}, 6, 0}));
}

TEST(Absence, AMemberWithoutALinkCountsAndLeavesNothingWhenItIsBack) {
  ObjectStore store;
  Absence absence({}, store.save(), 0);
  absence.unheard(kAway);
  EXPECT_EQ(store.size(), 0u);
  absence.removed(note_of(1, 2), [](bool) {});
  EXPECT_EQ(Absence(store.term(), store.save(), 0).removed_before().size(), 1u);
  absence.joined(kAway, 3);
  absence.reported(kAway);
  EXPECT_EQ(store.size(), 0u);
}

TEST(Absence, AnswersWhenTheStoreHasIt) {
  ObjectStore store;
  store.at_once = false;
  Absence absence({}, store.save(), 0);
  absence.gone(kAway, 1);
  std::vector<int> told;
  absence.removed(note_of(1, 2), [&](bool) { told.push_back(1); });
  absence.removed(note_of(3, 4), [&](bool) { told.push_back(2); });
  // A repeated removal is complete when the first removal is.
  absence.removed({}, [&](bool) { told.push_back(3); });
  EXPECT_TRUE(told.empty());
  store.write();
  EXPECT_EQ(told, (std::vector{1, 2, 3}));
  EXPECT_EQ(Absence(store.term(), store.save(), 0).removed_before().size(), 2u);
}

TEST(Absence, AnswersInOrderWhateverOrderTheStoreWritesIn) {
  std::vector<std::function<void()>> saved;
  const auto save = [&](std::string, std::optional<std::string>, std::function<void()> done) {
    if (done) saved.push_back(std::move(done));
  };
  Absence absence({}, save, 0);
  absence.gone(kAway, 1);
  std::vector<int> told;
  for (int i = 0; i < 3; ++i) {
    absence.removed(note_of(static_cast<std::uint64_t>(i), 2),
                    [&told, i](bool) { told.push_back(i); });
  }
  ASSERT_EQ(saved.size(), 3u);
  saved[1]();
  EXPECT_TRUE(told.empty());
  saved[0]();
  EXPECT_EQ(told, (std::vector{0, 1}));
  saved[2]();
  EXPECT_EQ(told, (std::vector{0, 1, 2}));
}

TEST(Absence, SaysAfterASecondThatTheStoreDoesNotHaveTheNote) {
  ObjectStore store;
  store.at_once = false;
  Absence absence({}, store.save(), 5);
  absence.gone(kAway, 1);
  std::vector<bool> noted;
  const auto note = [&](bool is) { noted.push_back(is); };
  absence.removed(note_of(1, 2), note);
  absence.tick(4 + Absence::kPatienceNs);
  absence.removed_by_pattern(PatternRemovals(8), note);
  EXPECT_TRUE(noted.empty());
  absence.tick(5 + Absence::kPatienceNs);
  EXPECT_EQ(noted, std::vector{false});
  // The store takes the notes after all, of the first removal too.
  store.write();
  EXPECT_EQ(noted, (std::vector{false, true}));
  EXPECT_EQ(Absence(store.term(), store.save(), 0).removed_before().size(), 1u);
  absence.tick(UINT64_MAX);
  EXPECT_EQ(noted.size(), 2u);
}

TEST(Absence, AtMost4096RemovalsWaitForTheStore) {
  ObjectStore store;
  store.at_once = false;
  Absence absence({}, store.save(), 0);
  absence.gone(kAway, 1);
  std::size_t refused = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    absence.removed(note_of(1, 2), [&](bool noted) { refused += noted ? 0 : 1; });
  }
  EXPECT_EQ(refused, 904u);
}

TEST(Absence, TooManyRemovalsAreRecordedOnlyAsMissed) {
  ObjectStore store;
  Absence first({}, store.save(), 0);
  first.gone(kAway, 1);
  remove_many(first, 4096);
  EXPECT_EQ(store.at("away/7"), "1");
  EXPECT_EQ(Absence(store.term(), store.save(), 0).removed_before().size(), 4096u);
  remove_many(first, 1);
  EXPECT_EQ(store.at("away/7"), "missed removals");
  EXPECT_EQ(store.size(), 1u);
  // A member that goes away from now on has a separate list.
  first.gone(kOther, 1);
  first.removed(note_of(1, 2), [](bool) {});
  Absence second(store.term(), store.save(), 0);
  EXPECT_EQ(second.removed_before().size(), 1u);
  second.joined(kAway, 100);
  second.joined(kOther, 100);
  EXPECT_TRUE(second.may_have_missed(kAway, 99));
  EXPECT_FALSE(second.may_have_missed(kAway, 100));
  EXPECT_FALSE(second.may_have_missed(kOther, 99));
  second.reported(kAway);
  EXPECT_FALSE(second.may_have_missed(kAway, 99));
  second.reported(kOther);
  EXPECT_EQ(store.size(), 0u);
}

TEST(Absence, RemovalsStayUntilTheStoreHasTheMarksInTheirPlace) {
  ObjectStore store;
  Absence absence({}, store.save(), 0);
  absence.gone(kAway, 1);
  remove_many(absence, 4096);
  const std::size_t before = store.size();
  store.at_once = false;
  bool told = false;
  absence.removed(note_of(1, 2), [&](bool) { told = true; });
  EXPECT_EQ(store.size(), before);
  EXPECT_FALSE(told);
  store.write();
  EXPECT_TRUE(told);
  EXPECT_EQ(store.at("away/7"), "missed removals");
  store.write();
  EXPECT_EQ(store.size(), 1u);
}

Term term_with_member(const ObjectStore& store, NodeId node) {
  Term term = store.term();
  term.members.push_back({});
  term.members.back().key = "members/" + std::to_string(node);
  return term;
}

TEST(Absence, TheNextLeaderKnowsWhoOwesARemovalByPattern) {
  constexpr NodeId kUnknown = 9;
  ObjectStore store;
  PatternRemovals removals(8);
  Absence first({}, store.save(), 0);
  removals.confirm(removals.add({"ns", "before", false}), kAway);
  first.gone(kAway, removals.owed_from(kAway));
  removals.confirm(removals.add({"ns", "^a", true}), kOther);
  bool told = false;
  first.removed_by_pattern(removals, [&](bool) { told = true; });
  EXPECT_TRUE(told);

  const Term term = term_with_member(store, kOther);
  PatternRemovals later(8);
  later.restore(Absence::patterns_before(term));
  ASSERT_EQ(later.count(), 2u);
  ASSERT_EQ(later.unheard(kAway).size(), 1u);
  EXPECT_EQ(later.unheard(kAway).front()->pattern, (Pattern{"ns", "^a", true}));
  EXPECT_TRUE(later.unheard(kOther).empty());
  EXPECT_EQ(later.unheard(kUnknown).size(), 2u);
  EXPECT_EQ(later.add({"ns", "c", false}), 3u);

  Absence second(term, store.save(), 0);
  second.joined(kAway, 1);
  second.reported(kAway);
  EXPECT_EQ(store.size(), 0u);
}

// The store has no pattern that all members have carried out.
TEST(Absence, TheNextLeaderGivesNoIdThatAnAbsentMemberHasCarriedOut) {
  ObjectStore store;
  PatternRemovals removals(8);
  Absence first({}, store.save(), 0);
  removals.confirm(removals.add({"ns", "a", false}), kAway);
  removals.confirm(removals.add({"ns", "b", false}), kAway);
  first.gone(kAway, removals.owed_from(kAway));

  PatternRemovals later(8);
  later.restore(Absence::patterns_before(store.term()));
  Absence second(store.term(), store.save(), 0);
  later.add({"ns", "c", false});
  second.removed_by_pattern(later, [](bool) {});

  PatternRemovals last(8);
  last.restore(Absence::patterns_before(store.term()));
  ASSERT_EQ(last.unheard(kAway).size(), 1u);
  EXPECT_EQ(last.unheard(kAway).front()->pattern, (Pattern{"ns", "c", false}));
}

TEST(Absence, AMemberThatIsLateWithAPatternIsRecordedUntilItIsNot) {
  ObjectStore store;
  PatternRemovals removals(8);
  Absence absence({}, store.save(), 0);
  absence.joined(kAway, 1);
  absence.reported(kAway);
  const std::uint64_t id = removals.add({"ns", "a", false});
  absence.late(kAway, removals.owed_from(kAway));
  absence.removed_by_pattern(removals, [](bool) {});
  EXPECT_EQ(store.at("away/7"), std::to_string(id));
  EXPECT_EQ(store.size(), 2u);
  absence.caught_up(kAway);
  EXPECT_EQ(store.size(), 0u);
}

TEST(Absence, ALateMemberThatJoinsAnewIsAwayUntilItHasReported) {
  ObjectStore store;
  PatternRemovals removals(8);
  Absence absence({}, store.save(), 0);
  absence.joined(kAway, 1);
  absence.reported(kAway);
  removals.add({"ns", "a", false});
  absence.late(kAway, removals.owed_from(kAway));
  absence.unheard(kAway);
  absence.joined(kAway, 2);
  absence.caught_up(kAway);
  absence.removed(note_of(1, 2), [](bool) {});
  EXPECT_EQ(Absence(store.term(), store.save(), 0).removed_before().size(), 1u);
  absence.reported(kAway);
  EXPECT_EQ(store.size(), 0u);
}

TEST(Absence, MergedPatternsLeaveTheStoreWhenItHasTheMergedOne) {
  ObjectStore store;
  PatternRemovals removals(1);
  Absence absence({}, store.save(), 0);
  absence.gone(kAway, 1);
  removals.add({"ns", "ab", false});
  absence.removed_by_pattern(removals, [](bool) {});
  removals.add({"ns", "ac", false});
  absence.removed_by_pattern(removals, [](bool) {});
  EXPECT_EQ(store.size(), 2u);
  const auto kept = Absence::patterns_before(store.term()).removals;
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept.front().pattern, (Pattern{"ns", "a", false}));
}

TEST(Absence, TheListOfTheGoneHasAnEnd) {
  ObjectStore store;
  Absence absence({}, store.save(), 0);
  for (NodeId node = 1; node <= 5000; ++node) absence.gone(node, 1);
  EXPECT_EQ(store.size(), 4096u);
}

TEST(Absence, ForeignValuesInTheStoreAreLeftAlone) {
  Term term;
  for (const char* key : {"away/x", "away/", "away/99999999999999999999"}) {
    term.away.push_back({});
    term.away.back().key = key;
  }
  for (const char* value : {"", "\xff\xff"}) {
    term.removed.push_back({});
    term.removed.back().key = "removed/1";
    term.removed.back().value = value;
  }
  ObjectStore store;
  Absence absence(term, store.save(), 0);
  EXPECT_TRUE(absence.removed_before().empty());
  absence.removed(note_of(1, 2), [](bool) {});
  EXPECT_EQ(store.size(), 0u);
}

}  // namespace
}  // namespace mc::metadata
