// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/awaited_replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "unit/replica_world.h"

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kDeadlineNs = 1'000'000;

class AwaitedReplicasTest : public testing::Test {
 protected:
  void await(const std::vector<AwaitedKey>& keys, bool settled = true) {
    awaited_.begin(keys, settled, kDeadlineNs,
                   [this](const std::vector<AwaitedState>& states) { ended_.push_back(states); });
  }
  void published(std::uint64_t number) {
    PublishItem item;
    item.hash = key(number);
    awaited_.published({&item, 1}, true);
  }

  World world_{4};
  AwaitedReplicas awaited_{world_.directory()};
  std::vector<std::vector<AwaitedState>> ended_;
};

TEST_F(AwaitedReplicasTest, EndWhenTheLastKeyHasItsHolders) {
  for (const std::uint64_t number : {1u, 2u}) world_.hold(1, number, 2);
  await({{key(1), 2}, {key(2), 2}, {key(1), 1}});
  world_.hold(2, 1, 2);
  published(1);
  EXPECT_THAT(ended_, IsEmpty());
  world_.hold(3, 2, 2);
  published(2);
  using enum AwaitedState;
  EXPECT_THAT(ended_, ElementsAre(ElementsAre(kEnough, kEnough, kEnough)));
}

TEST_F(AwaitedReplicasTest, EndAtTheDeadlineWithTheKeysThatHaveTooFew) {
  world_.hold(1, 1, 2);
  world_.hold(1, 2, 2);
  world_.hold(2, 2, 2);
  await({{key(1), 2}, {key(2), 2}});
  awaited_.tick(true, kDeadlineNs - 1);
  EXPECT_THAT(ended_, IsEmpty());
  awaited_.tick(true, kDeadlineNs);
  EXPECT_THAT(ended_, ElementsAre(ElementsAre(AwaitedState::kTooFew, AwaitedState::kEnough)));
  published(1);
  awaited_.tick(true, 2 * kDeadlineNs);
  EXPECT_EQ(ended_.size(), 1u);
}

TEST_F(AwaitedReplicasTest, AreGoneOnlyWhenAllHostsHaveReported) {
  await({{key(1), 2}}, false);
  awaited_.tick(false, 0);
  EXPECT_THAT(ended_, IsEmpty());
  awaited_.tick(true, 0);
  EXPECT_THAT(ended_, ElementsAre(ElementsAre(AwaitedState::kGone)));
}

TEST_F(AwaitedReplicasTest, OfStripesCountForEachPart) {
  world_.hold_part(1, 1, 2, 0, 2);
  world_.hold_part(2, 1, 2, 0, 2);
  world_.hold_part(3, 1, 2, 1, 2);
  await({{key(1), 2}});
  EXPECT_THAT(ended_, IsEmpty());
  world_.hold_part(4, 1, 2, 1, 2);
  published(1);
  EXPECT_THAT(ended_, ElementsAre(ElementsAre(AwaitedState::kEnough)));
}

TEST_F(AwaitedReplicasTest, AreBoundedInNumber) {
  const std::vector<AwaitedKey> keys(1024, {key(1), 2});
  world_.hold(1, 1, 2);
  for (std::size_t i = 0; i < AwaitedReplicas::kMaxKeys / keys.size(); ++i) {
    ASSERT_TRUE(awaited_.has_room(keys.size()));
    await(keys);
  }
  EXPECT_FALSE(awaited_.has_room(1));
  awaited_.tick(true, kDeadlineNs);
  EXPECT_TRUE(awaited_.has_room(AwaitedReplicas::kMaxKeys));
}

TEST_F(AwaitedReplicasTest, TheDirectoryWantsMoreReplicasOfAKeyUntilItsHolderSaysOtherwise) {
  world_.hold(1, 1, 1);
  world_.hold_part(1, 2, 1, 0);
  Directory& directory = world_.directory();
  EXPECT_TRUE(directory.want_replicas(key(1), 3));
  EXPECT_EQ(directory.about(key(1)).attributes.replicas, 3);
  EXPECT_FALSE(directory.want_replicas(key(1), 2)) << "more are wanted";
  EXPECT_FALSE(directory.want_replicas(key(2), 2)) << "in stripes";
  EXPECT_FALSE(directory.want_replicas(key(3), 2)) << "nobody holds it";
  world_.hold(1, 1, 1);
  EXPECT_EQ(directory.about(key(1)).attributes.replicas, 1);
}

}  // namespace
}  // namespace mc::metadata
