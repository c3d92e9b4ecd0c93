// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kGiB = 1 << 30;

NodeView node(NodeId id, std::uint64_t free_bytes = 50 * kGiB) {
  NodeView view;
  view.node = id;
  view.host = 100 + id;
  view.zone = 1;
  view.capacity_bytes = 100 * kGiB;
  view.free_bytes = free_bytes;
  view.age_ns = 2 * kSlowStartNs;
  return view;
}

PlacementRequest request(std::uint64_t key, unsigned replicas = 1) {
  PlacementRequest made;
  std::mt19937_64 random(key);
  made.key = {random(), random()};
  made.bytes = 1 << 20;
  made.replicas = replicas;
  return made;
}

std::map<NodeId, int> shares(const std::vector<NodeView>& nodes, int keys = 20'000) {
  std::map<NodeId, int> share;
  for (int i = 0; i < keys; ++i) {
    for (const NodeId chosen : place(request(static_cast<std::uint64_t>(i)), nodes)) {
      ++share[chosen];
    }
  }
  return share;
}

TEST(Placement, PreferredNodesComeFirstInTheirOrderThenTheAskingHost) {
  const std::vector<NodeView> nodes = {node(1), node(2), node(3), node(4)};
  const std::vector<NodeId> preferred = {3, 1};
  PlacementRequest asked = request(1, 3);
  asked.preferred = preferred;
  asked.host = 104;
  EXPECT_THAT(place(asked, nodes), ElementsAre(3, 1, 4));
  asked.replicas = 4;
  EXPECT_THAT(place(asked, nodes), ElementsAre(3, 1, 4, 2));
}

TEST(Placement, LeavesOutNodesThatDrainAreSuspectedExcludedTooSmallOrHolders) {
  std::vector<NodeView> nodes = {node(1), node(2), node(3), node(4), node(5), node(6)};
  nodes[0].draining = true;
  nodes[1].suspected = true;
  nodes[3].capacity_bytes = 1000;
  const std::vector<NodeId> exclude = {3};
  const std::vector<NodeId> holders = {5};
  const std::vector<NodeId> preferred = {1, 2, 3, 4, 5};
  PlacementRequest asked = request(1, 8);
  asked.exclude = exclude;
  asked.holders = holders;
  asked.preferred = preferred;
  EXPECT_THAT(place(asked, nodes), ElementsAre(6));
  EXPECT_THAT(place(asked, {}), IsEmpty());
}

TEST(Placement, TwoReplicasShareAHostOnlyWhenThereIsNoOther) {
  std::vector<NodeView> nodes = {node(1), node(2), node(3), node(4)};
  nodes[1].host = nodes[0].host;
  nodes[2].host = nodes[0].host;
  for (std::uint64_t key = 0; key < 200; ++key) {
    const std::vector<NodeId> two = place(request(key, 2), nodes);
    ASSERT_THAT(two, SizeIs(2));
    EXPECT_TRUE(two[0] == 4 || two[1] == 4);
    EXPECT_THAT(place(request(key, 4), nodes), UnorderedElementsAre(1, 2, 3, 4));
    // Nor the host of a node that has the object.
    const std::vector<NodeId> holders = {1};
    PlacementRequest asked = request(key, 1);
    asked.holders = holders;
    EXPECT_THAT(place(asked, nodes), ElementsAre(4));
  }
}

TEST(Placement, ANodeWinsInProportionToItsFreeBytes) {
  const auto share = shares({node(1, 10 * kGiB), node(2, 30 * kGiB), node(3, 60 * kGiB)});
  EXPECT_NEAR(share.at(1), 2000, 200);
  EXPECT_NEAR(share.at(2), 6000, 300);
  EXPECT_NEAR(share.at(3), 12000, 300);
}

TEST(Placement, ANewcomersShareGrowsWithItsAge) {
  std::vector<NodeView> nodes = {node(1, 30 * kGiB), node(2, 30 * kGiB), node(3, 30 * kGiB)};
  int before = 0;
  for (const std::uint64_t percent : {0u, 25u, 50u, 100u}) {
    nodes[2].age_ns = kSlowStartNs * percent / 100;
    const int now = shares(nodes)[3];
    EXPECT_GT(now, before);
    before = now;
    if (percent == 0) {
      EXPECT_LT(now, 1000);
    }
  }
  EXPECT_NEAR(before, 20'000 / 3, 300);
}

TEST(Placement, ABusyNodeGetsLessButNotNothing) {
  std::vector<NodeView> nodes = {node(1), node(2)};
  nodes[0].busy_permille = 1000;
  const auto share = shares(nodes);
  EXPECT_GT(share.at(1), 200);
  EXPECT_LT(share.at(1), 2000);
}

TEST(Placement, NodesThatWouldHaveToEvictComeLast) {
  const std::vector<NodeView> nodes = {node(1, 0), node(2, 1 << 20), node(3, 0)};
  for (std::uint64_t key = 0; key < 100; ++key) {
    EXPECT_EQ(place(request(key, 3), nodes).front(), 2u);
    EXPECT_THAT(place(request(key, 3), nodes), SizeIs(3));
  }
}

TEST(Placement, TheSameQuestionHasTheSameAnswerWhateverTheOrderOfNodes) {
  std::mt19937_64 random(5);
  std::vector<NodeView> nodes;
  for (NodeId id = 1; id <= 40; ++id) {
    nodes.push_back(node(id, random() % 4 * 10 * kGiB));
    nodes.back().host = random() % 20;
  }
  for (std::uint64_t key = 0; key < 200; ++key) {
    const auto first = place(request(key, 3), nodes);
    std::shuffle(nodes.begin(), nodes.end(), random);
    EXPECT_EQ(place(request(key, 3), nodes), first);
  }
}

TEST(ReadOrder, NearThenIdleThenSuspected) {
  std::vector<NodeView> holders = {node(1), node(2), node(3), node(4)};
  holders[0].zone = 2;
  holders[2].host = 7;
  holders[3].host = 7;
  holders[3].suspected = true;
  EXPECT_THAT(order_for_read({7, 1}, {1, 1}, holders), ElementsAre(3, 2, 1, 4));
}

TEST(ReadOrder, EqualHoldersShareTheReaders) {
  std::vector<NodeView> holders = {node(1), node(2), node(3)};
  std::map<NodeId, int> first;
  for (std::uint64_t host = 1; host <= 3000; ++host) {
    ++first[order_for_read({host + 10'000, 1}, {9, 9}, holders).front()];
  }
  for (NodeId id = 1; id <= 3; ++id) EXPECT_NEAR(first[id], 1000, 150);
  holders[0].busy_permille = 1000;
  first.clear();
  for (std::uint64_t host = 1; host <= 3000; ++host) {
    ++first[order_for_read({host + 10'000, 1}, {9, 9}, holders).front()];
  }
  EXPECT_LT(first[1], 200);
}

}  // namespace
}  // namespace mc::metadata
