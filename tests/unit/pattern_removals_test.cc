// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/pattern_removals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Pattern> missed_by(const PatternRemovals& removals, NodeId node) {
  std::vector<Pattern> patterns;
  for (const auto* removal : removals.unheard(node)) patterns.push_back(removal->pattern);
  return patterns;
}

TEST(PatternRemovals, ANodeIsToldOfRemovalsNotYetCarriedOut) {
  PatternRemovals removals(8);
  const auto first = removals.add({"ns", "a", false});
  const auto second = removals.add({"ns", "b.*", true});
  removals.confirm(first, 1);
  EXPECT_THAT(missed_by(removals, 1), ElementsAre(Pattern{"ns", "b.*", true}));
  EXPECT_EQ(removals.unheard(7).size(), 2u) << "nobody knows what it missed";
  removals.confirm(second, 1);
  EXPECT_THAT(missed_by(removals, 1), IsEmpty());
  EXPECT_GT(second, first);
}

TEST(PatternRemovals, TheSameOnceMoreMustBeCarriedOutOnceMore) {
  PatternRemovals removals(8);
  removals.confirm(removals.add({"ns", "a", false}), 1);
  const auto again = removals.add({"ns", "a", false});
  EXPECT_EQ(removals.count(), 1u);
  EXPECT_EQ(removals.unheard(1).size(), 1u);
  removals.confirm(again, 1);
  EXPECT_THAT(missed_by(removals, 1), IsEmpty());
}

TEST(PatternRemovals, TooManyBecomeOneThatCoversThemAll) {
  PatternRemovals removals(2);
  const auto one = removals.add({"ns", "user/1/", false});
  const auto two = removals.add({"ns", "user/2/", false});
  for (const auto id : {one, two}) removals.confirm(id, 1);
  removals.confirm(two, 2);
  const auto other = removals.add({"ns", "tmp", false});
  EXPECT_EQ(removals.count(), 2u);
  EXPECT_THAT(missed_by(removals, 1), ElementsAre(Pattern{"ns", "tmp", false}))
      << "it has carried out both parts";
  EXPECT_THAT(missed_by(removals, 2),
              ElementsAre(Pattern{"ns", "user/", false}, Pattern{"ns", "tmp", false}));
  // An answer to an order for a single part does not confirm the whole removal.
  removals.confirm(two, 3);
  EXPECT_EQ(removals.unheard(3).size(), 2u);
  removals.add({"ns", "x?", true});
  EXPECT_THAT(missed_by(removals, 2),
              ElementsAre(Pattern{"ns", "", false}, Pattern{"ns", "x?", true}));
  EXPECT_LT(other, removals.unheard(2).back()->id);
}

TEST(PatternRemovals, NamespacesAreNotMixedAndNotForgotten) {
  PatternRemovals removals(2);
  removals.add({"one", "a", false});
  removals.add({"two", "a", false});
  EXPECT_FALSE(removals.takes({"three", "a", false}));
  ASSERT_TRUE(removals.takes({"two", "b", false}));
  removals.add({"two", "b", false});
  EXPECT_THAT(missed_by(removals, 5),
              ElementsAre(Pattern{"one", "a", false}, Pattern{"two", "", false}));
}

}  // namespace
}  // namespace mc::metadata
