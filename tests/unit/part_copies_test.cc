// SPDX-License-Identifier: Apache-2.0
//
// Objects in stripes: parts that get more holders, and parts on a node that is drained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "libmc/base/clock.h"
#include "metadata/placement/copy_plan.h"
#include "metadata/placement/drain.h"
#include "metadata/placement/repair.h"
#include "unit/replica_world.h"

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Carries out all planned jobs until the plan is empty. Returns the jobs.
std::vector<CopyJob> repair(World& world, RepairPlanner& planner, std::uint64_t now_ns = 0) {
  std::vector<CopyJob> done;
  for (;;) {
    std::vector<CopyJob> jobs;
    planner.scan(world.directory(), 1'000'000, now_ns);
    planner.plan(world.directory(), world.views(), now_ns, jobs);
    if (jobs.empty()) return done;
    for (const CopyJob& job : jobs) {
      const std::vector<NodeId> before = world.directory().about(job.hash).holders_of(job.part);
      EXPECT_THAT(before, ::testing::Contains(job.source)) << "a source without that part";
      EXPECT_THAT(before, ::testing::Not(::testing::Contains(job.target)));
      world.copy(job);
      planner.finished(world.directory(), job.hash, true, now_ns);
      done.push_back(job);
    }
  }
}

TEST(PartCopies, EachPartGetsAsManyHoldersAsAreWanted) {
  World world(5);
  for (unsigned part = 0; part < 3; ++part) world.hold_part(part + 1, 1, 3, part, 2);
  RepairPlanner planner({});
  planner.request_pass();
  const std::vector<CopyJob> jobs = repair(world, planner);
  ASSERT_EQ(jobs.size(), 3u);
  // First to nodes that have no part of the object, then to a node that has another part.
  EXPECT_GE(jobs[0].target, 4u);
  EXPECT_GE(jobs[1].target, 4u);
  EXPECT_NE(jobs[0].target, jobs[1].target);
  EXPECT_LE(jobs[2].target, 3u);
  const KeyView object = world.directory().about(key(1));
  for (unsigned part = 0; part < 3; ++part) EXPECT_EQ(object.holders_of(part).size(), 2u);
  EXPECT_TRUE(planner.idle());
}

TEST(PartCopies, AnObjectWhosePartsAreAllPublishedIsCompletedWithoutAPass) {
  World world(4);
  RepairPlanner planner({});
  for (unsigned part = 0; part < 2; ++part) {
    world.hold_part(part + 1, 1, 2, part, 2);
    planner.lacks(world.objects().at(key(1)), 0);
    EXPECT_EQ(repair(world, planner).size(), part == 0 ? 0u : 2u);
  }
  for (unsigned part = 0; part < 2; ++part) {
    EXPECT_EQ(world.directory().about(key(1)).holders_of(part).size(), 2u);
  }
}

TEST(PartCopies, NoPartIsCopiedWhileAnObjectLacksAPart) {
  World world(4);
  world.hold_part(1, 1, 2, 0, 2);
  RepairPlanner planner({});
  planner.request_pass();
  EXPECT_THAT(repair(world, planner), IsEmpty());
  EXPECT_TRUE(planner.idle());
  world.hold_part(2, 1, 2, 1, 2);
  planner.request_pass();
  EXPECT_EQ(repair(world, planner).size(), 2u);
}

TEST(PartCopies, NoLossOfOneNodeAfterAnotherTakesAnObject) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    World world(6);
    std::uint64_t objects = 0;
    for (unsigned replicas = 2; replicas <= 4; ++replicas) {
      for (unsigned parts = 1; parts <= most_parts(static_cast<std::uint8_t>(replicas)); ++parts) {
        ++objects;
        for (unsigned part = 0; part < parts; ++part) {
          world.hold_part(1 + (random() + part) % 6, objects, parts, part, replicas);
        }
      }
    }
    RepairPlanner planner({});
    planner.request_pass();
    repair(world, planner);
    for (NodeId newcomer = 7; newcomer < 13; ++newcomer) {
      const NodeId victim = world.views()[random() % world.views().size()].node;
      world.kill(victim);
      planner.node_gone(victim, 0);
      repair(world, planner);
      world.add(newcomer);
    }
    EXPECT_EQ(planner.in_flight(), 0u);
    for (std::uint64_t number = 1; number <= objects; ++number) {
      const KeyView object = world.directory().about(key(number));
      EXPECT_EQ(weakest_part(object).holder_count, object.attributes.replicas) << number;
    }
  }
}

// The first orders of a drain of node 1.
DrainOrders drain_first(World& world) {
  world.view(1).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  return orders;
}

TEST(PartCopies, APartWithEnoughOtherHoldersIsLetGoOfByADrainAtOnce) {
  World world(4);
  for (const NodeId node : {1u, 2u, 3u}) world.hold_part(node, 1, 1, 0, 2);
  const DrainOrders orders = drain_first(world);
  EXPECT_THAT(orders.copies, IsEmpty());
  EXPECT_THAT(orders.releases, ElementsAre(Holding{key(1), 1, 1}));
}

TEST(PartCopies, APartThatWouldHaveTooFewHoldersIsCopiedByADrainFirst) {
  World world(3);
  for (const NodeId node : {1u, 2u}) world.hold_part(node, 1, 1, 0, 2);
  const DrainOrders orders = drain_first(world);
  EXPECT_THAT(orders.releases, IsEmpty());
  ASSERT_EQ(orders.copies.size(), 1u);
  EXPECT_EQ(orders.copies[0].target, 3u);
}

TEST(PartCopies, WithoutATargetAPartStaysWithItsOtherHolders) {
  World world(2);
  for (const NodeId node : {1u, 2u}) world.hold_part(node, 1, 1, 0, 2);
  const DrainOrders orders = drain_first(world);
  EXPECT_THAT(orders.copies, IsEmpty());
  EXPECT_THAT(orders.releases, ElementsAre(Holding{key(1), 1, 1}));
}

TEST(Drain, APartGoesToANodeThatHasNothingOfItsObject) {
  World world(4);
  for (unsigned part = 0; part < 3; ++part) world.hold_part(part + 1, 1, 3, part);
  world.view(2).draining = true;
  DrainPlanner planner(2, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  ASSERT_EQ(orders.copies.size(), 1u);
  const CopyJob job = orders.copies[0];
  EXPECT_EQ(job.source, 2u);
  EXPECT_EQ(job.target, 4u);
  EXPECT_EQ(job.parts, 3u);
  EXPECT_EQ(job.part, 1u);
  EXPECT_THAT(orders.releases, IsEmpty());
  world.copy(job);
  planner.finished(job.hash, true);
  planner.advance(world.directory(), world.views(), 1'000'000, 1000 * kMs, orders);
  EXPECT_THAT(orders.releases, ElementsAre(Holding{key(1), 1, 2}));
  EXPECT_FALSE(planner.progress().done);
  world.drop({key(1), 1, 2}, 1);
  planner.advance(world.directory(), world.views(), 1'000'000, 2000 * kMs, orders);
  EXPECT_TRUE(planner.progress().done);
  EXPECT_EQ(planner.progress().copied, 1u);
}

TEST(Drain, WhereAllHaveSomeOfTheObjectAPartGoesToOneOfThem) {
  World world(3);
  for (unsigned part = 0; part < 3; ++part) world.hold_part(part + 1, 1, 3, part);
  world.view(1).draining = true;
  world.view(3).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  ASSERT_EQ(orders.copies.size(), 1u);
  EXPECT_EQ(orders.copies[0].target, 2u);
  EXPECT_EQ(orders.copies[0].part, 0u);
  // No other node is left.
  world.view(2).draining = true;
  DrainPlanner other(1, {});
  DrainOrders none;
  other.advance(world.directory(), world.views(), 1'000'000, 0, none);
  EXPECT_THAT(none.copies, IsEmpty());
  EXPECT_EQ(other.progress().unplaced, 1u);
}

TEST(Drain, ReleasesAnObjectsPartsWhenAllOfThemAreHeldElsewhere) {
  World world(3);
  world.hold_part(1, 1, 2, 0);
  world.hold_part(1, 1, 2, 1);
  world.hold_part(2, 1, 2, 1);
  world.view(1).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  EXPECT_THAT(orders.releases, IsEmpty());
  ASSERT_EQ(orders.copies.size(), 1u);
  EXPECT_EQ(orders.copies[0].part, 0u);
  EXPECT_EQ(orders.copies[0].target, 3u);
  world.copy(orders.copies[0]);
  planner.finished(key(1), true);
  world.view(2).suspected = true;
  planner.advance(world.directory(), world.views(), 1'000'000, 1000 * kMs, orders);
  EXPECT_THAT(orders.releases, IsEmpty());
  ASSERT_EQ(orders.copies.size(), 2u);
  EXPECT_EQ(orders.copies[1].part, 1u);
}

}  // namespace
}  // namespace mc::metadata
