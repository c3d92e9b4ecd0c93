// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "libmc/base/clock.h"
#include "metadata/placement/drain.h"
#include "metadata/placement/hot_keys.h"
#include "metadata/placement/hot_replicas.h"
#include "metadata/placement/relocations.h"
#include "unit/replica_world.h"

namespace mc::metadata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Repair, RestoresEveryReplicaThatCanBeRestored) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    World world(8);
    std::map<KeyHash, unsigned> wanted;
    for (std::uint64_t i = 0; i < 300; ++i) {
      const auto replicas = static_cast<unsigned>(1 + random() % 4);
      for (unsigned r = 0; r < replicas; ++r) world.hold(1 + (i + r) % 8, i, replicas);
      wanted[key(i)] = replicas;
    }
    RepairPlanner planner({.limits = {.max_in_flight = 10, .max_per_node = 4}, .max_queued = 20});
    NodeId newcomer = 20;
    std::uint64_t now_ns = 0;
    std::vector<CopyJob> flying;
    std::map<NodeId, int> busy;
    for (int step = 0; step < 6000; ++step, now_ns += 10 * kMs) {
      if (step < 400 && step % 150 == 100) {
        const NodeId victim = world.views()[random() % world.views().size()].node;
        world.kill(victim);
        planner.node_gone(victim, now_ns);
        std::erase_if(flying, [&](const CopyJob& job) {
          if (job.source != victim && job.target != victim) return false;
          --busy[job.source];
          --busy[job.target];
          return true;
        });
        world.add(++newcomer);
        planner.request_pass();
      }
      planner.scan(world.directory(), 700, now_ns);
      std::vector<CopyJob> jobs;
      planner.plan(world.directory(), world.views(), now_ns, jobs);
      for (const CopyJob& job : jobs) {
        EXPECT_LE(++busy[job.source], 4);
        EXPECT_LE(++busy[job.target], 4);
        EXPECT_FALSE(world.held(job.target).contains(job.hash));
        flying.push_back(job);
      }
      EXPECT_EQ(flying.size(), planner.in_flight());
      EXPECT_LE(flying.size(), 10u);
      EXPECT_LE(planner.queued(), 20u);
      while (!flying.empty() && random() % 3 != 0) {
        std::swap(flying[random() % flying.size()], flying.back());
        const CopyJob job = flying.back();
        flying.pop_back();
        --busy[job.source];
        --busy[job.target];
        const bool ok = random() % 8 != 0;
        if (ok) world.copy(job);
        planner.finished(world.directory(), job.hash, ok, now_ns);
      }
      if (step > 500 && planner.idle()) break;
      if (::testing::Test::HasFailure()) FAIL() << "at step " << step;
    }
    EXPECT_TRUE(planner.idle());
    for (const auto& [hash, replicas] : wanted) {
      const std::size_t now = world.replicas(hash);
      EXPECT_TRUE(now == 0 || now == replicas) << now << " of " << replicas;
      if (replicas == 4) {
        EXPECT_EQ(now, 4u);  // three losses cannot remove the object
      }
    }
  }
}

TEST(Repair, TheMostEndangeredComeFirstThenThePinned) {
  World world(6);
  for (NodeId node = 1; node <= 2; ++node) world.hold(node, 1, 3);
  world.hold(1, 2, 2);
  world.hold(1, 3, 2, Pin::kHard);
  RepairPlanner planner({.limits = {.max_in_flight = 1, .max_per_node = 1}});
  planner.request_pass();
  std::vector<CopyJob> jobs;
  for (int i = 0; i < 3; ++i) {
    planner.scan(world.directory(), 1'000'000, 0);
    planner.plan(world.directory(), world.views(), 0, jobs);
    ASSERT_EQ(jobs.size(), static_cast<std::size_t>(i + 1));
    world.copy(jobs.back());
    planner.finished(world.directory(), jobs.back().hash, true, 0);
  }
  EXPECT_EQ(jobs[0].hash, key(3));
  EXPECT_EQ(jobs[1].hash, key(2));
  EXPECT_EQ(jobs[2].hash, key(1));
  EXPECT_TRUE(planner.idle());
}

TEST(Repair, TheObjectThatHasWaitedLongestComesFirst) {
  World world(2);
  RepairPlanner planner({});
  std::vector<CopyJob> jobs;
  // The hashes of the keys are in another order than the keys.
  for (std::uint64_t i = 0; i < 20; ++i) {
    world.hold(1, i, 2);
    planner.lacks(world.objects().at(key(i)), i * kMs);
  }
  for (std::uint64_t i = 0; i < 20; ++i) planner.lacks(world.objects().at(key(i)), 1000 * kMs);
  EXPECT_EQ(planner.queued(), 20u);
  planner.plan(world.directory(), world.views(), 1000 * kMs, jobs);
  ASSERT_EQ(jobs.size(), 20u);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(jobs[i].hash, key(i));
}

TEST(Repair, ANewObjectThatTheQueueHasNoRoomForIsCopiedLater) {
  World world(2);
  RepairPlanner planner({.limits = {}, .max_queued = 2});
  for (std::uint64_t i = 0; i < 5; ++i) {
    world.hold(1, i, 2);
    planner.lacks(world.objects().at(key(i)), 0);
  }
  std::size_t copies = 0;
  while (!planner.idle()) {
    planner.scan(world.directory(), 1'000'000, 0);
    std::vector<CopyJob> jobs;
    planner.plan(world.directory(), world.views(), 0, jobs);
    for (const CopyJob& job : jobs) {
      world.copy(job);
      planner.finished(world.directory(), job.hash, true, 0);
      ++copies;
    }
  }
  EXPECT_EQ(copies, 5U);
}

TEST(Repair, ANodeHasAtMostSoManyBytesUnderWay) {
  World world(2);
  for (std::uint64_t i = 0; i < 9; ++i) world.hold(1, i, 2);  // 1,000 bytes each
  RepairPlanner planner({.limits = {.max_bytes_per_node = 2500}});
  planner.request_pass();
  planner.scan(world.directory(), 1'000'000, 0);
  std::vector<CopyJob> jobs;
  planner.plan(world.directory(), world.views(), 0, jobs);
  EXPECT_EQ(jobs.size(), 3U);
  world.copy(jobs[0]);
  planner.finished(world.directory(), jobs[0].hash, true, 0);
  planner.plan(world.directory(), world.views(), 0, jobs);
  EXPECT_EQ(jobs.size(), 4U);
}

TEST(Repair, PlansNothingWhileTheDirectoryIsRecovering) {
  World world(3);
  world.hold(1, 1, 2);
  ASSERT_TRUE(world.directory().expect(9).ok());
  RepairPlanner planner({});
  planner.request_pass();
  std::vector<CopyJob> jobs;
  planner.scan(world.directory(), 1'000'000, 0);
  planner.plan(world.directory(), world.views(), 0, jobs);
  EXPECT_THAT(jobs, IsEmpty());
  world.directory().leave(9, 0);
  planner.scan(world.directory(), 1'000'000, 0);
  planner.plan(world.directory(), world.views(), 0, jobs);
  EXPECT_EQ(jobs.size(), 1u);
}

TEST(Repair, AnObjectWithoutAPlaceIsTriedAgainLaterOrWhenANodeComes) {
  World world(2);
  for (NodeId node = 1; node <= 2; ++node) world.hold(node, 1, 3);
  RepairPlanner planner({});
  planner.request_pass();
  std::vector<CopyJob> jobs;
  const auto round = [&](std::uint64_t now_ns) {
    planner.scan(world.directory(), 1'000'000, now_ns);
    planner.plan(world.directory(), world.views(), now_ns, jobs);
  };
  round(0);
  world.add(3);
  round(1000 * kMs);
  EXPECT_THAT(jobs, IsEmpty());
  planner.request_pass();
  round(1000 * kMs);
  ASSERT_EQ(jobs.size(), 1u);
  planner.finished(world.directory(), jobs[0].hash, false, 1000 * kMs);
  round(1500 * kMs);
  EXPECT_EQ(jobs.size(), 1u);
  round(2000 * kMs);
  EXPECT_EQ(jobs.size(), 2u);
}

// A node that comes and goes asks for a walk each time.
TEST(Repair, FrequentRequestsDoNotKeepAWalkFromTheLastKeys) {
  constexpr std::uint64_t kObjects = 1000;
  World world(2);
  for (std::uint64_t i = 0; i < kObjects; ++i) world.hold(1, i, 2);
  RepairPlanner planner({});
  for (int i = 0; i < 10'000; ++i) {
    planner.request_pass();
    planner.scan(world.directory(), 1, 0);
  }
  EXPECT_EQ(planner.queued(), kObjects);
}

// Two nodes drain at once, jobs fail, and a target dies. At every moment each object has a holder,
// except after the death of a copy's target. At the end the drained nodes are empty.
TEST(Drain, EmptiesNodesWithoutEverLosingAnObject) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    World world(6);
    for (std::uint64_t i = 0; i < 400; ++i) {
      const auto replicas = static_cast<unsigned>(1 + random() % 3);
      const NodeId first = 1 + random() % 6;
      for (unsigned r = 0; r < replicas; ++r) world.hold(1 + (first + r) % 6, i, replicas);
    }
    world.view(1).draining = true;
    world.view(2).draining = true;
    std::vector<DrainPlanner> planners;
    planners.emplace_back(1, DrainOptions{.limits = {.max_in_flight = 7, .max_per_node = 7}});
    planners.emplace_back(2, DrainOptions{.limits = {.max_in_flight = 7, .max_per_node = 7}});
    std::vector<std::pair<DrainPlanner*, CopyJob>> flying;
    std::vector<Holding> releasing;
    std::uint64_t now_ns = 0;
    for (int step = 0; step < 20'000; ++step, now_ns += 20 * kMs) {
      for (DrainPlanner& planner : planners) {
        DrainOrders orders;
        planner.advance(world.directory(), world.views(), 500, now_ns, orders);
        for (const CopyJob& job : orders.copies) flying.emplace_back(&planner, job);
        releasing.insert(releasing.end(), orders.releases.begin(), orders.releases.end());
      }
      while (!flying.empty() && random() % 4 != 0) {
        std::swap(flying[random() % flying.size()], flying.back());
        const auto [planner, job] = flying.back();
        flying.pop_back();
        const bool ok = random() % 6 != 0;
        // The other planner may have moved the object meanwhile; publishing twice does no harm.
        if (ok) world.copy(job);
        planner->finished(job.hash, ok);
      }
      while (!releasing.empty() && random() % 4 != 0) {
        const Holding holding = releasing.back();
        releasing.pop_back();
        if (world.held(holding.node).contains(holding.hash)) world.drop(holding);
        ASSERT_GE(world.replicas(holding.hash), 1u);
      }
      if (planners[0].progress().done && planners[1].progress().done) break;
      if (::testing::Test::HasFailure()) FAIL() << "at step " << step;
    }
    EXPECT_TRUE(planners[0].progress().done && planners[1].progress().done);
    EXPECT_THAT(world.held(1), IsEmpty());
    EXPECT_THAT(world.held(2), IsEmpty());
    for (const auto& [hash, item] : world.objects()) {
      EXPECT_GE(world.replicas(hash), item.attributes.replicas);
    }
  }
}

TEST(Drain, ReleasesNothingOnAJobsWordAlone) {
  World world(2);
  world.hold(1, 1, 1);
  world.view(1).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  ASSERT_EQ(orders.copies.size(), 1u);
  planner.finished(orders.copies[0].hash, true);  // but no node published it
  for (std::uint64_t now_ns = 0; now_ns < 5000 * kMs; now_ns += 100 * kMs) {
    planner.advance(world.directory(), world.views(), 1'000'000, now_ns, orders);
  }
  EXPECT_THAT(orders.releases, IsEmpty());
  EXPECT_FALSE(planner.progress().done);
}

TEST(Drain, UsesTheGivenTargetsAlone) {
  World world(4);
  for (std::uint64_t i = 0; i < 20; ++i) world.hold(1, i, 1);
  world.view(1).draining = true;
  DrainPlanner planner(1, {.targets = {3}});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  ASSERT_EQ(orders.copies.size(), 20u);
  for (const CopyJob& job : orders.copies) {
    EXPECT_EQ(job.target, 3u);
    world.copy(job);
    planner.finished(job.hash, true);
  }
  EXPECT_EQ(planner.progress().copied_bytes, 20 * 1000u);
}

TEST(Drain, FillsTheRoomThatAJobLeaves) {
  constexpr std::size_t kObjects = 100;
  World world(2);
  for (std::uint64_t i = 0; i < kObjects; ++i) world.hold(1, i, 1);
  world.view(1).draining = true;
  DrainPlanner planner(1, {.limits = {.max_per_node = 3}});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  for (std::size_t ended = 0; ended < kObjects; ++ended) {
    ASSERT_EQ(orders.copies.size(), std::min(ended + 3, kObjects));
    world.copy(orders.copies[ended]);
    planner.finished(orders.copies[ended].hash, true);
    planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  }
}

TEST(Drain, WithoutAnotherNodeTheObjectStaysAndCountsAsUnplaced) {
  World world(1);
  world.hold(1, 1, 1);
  world.view(1).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  EXPECT_THAT(orders.copies, IsEmpty());
  EXPECT_THAT(orders.releases, IsEmpty());
  EXPECT_EQ(planner.progress().unplaced, 1u);
  EXPECT_FALSE(planner.progress().done);
  // With a second node the drain goes on. The drain does not wait for more replicas than there are
  // nodes.
  world.add(2);
  planner.advance(world.directory(), world.views(), 1'000'000, 1000 * kMs, orders);
  ASSERT_EQ(orders.copies.size(), 1u);
}

TEST(Drain, AnObjectThatWantsMoreReplicasThanThereAreNodesStillMoves) {
  World world(2);
  world.hold(1, 1, 3);
  world.hold(2, 1, 3);
  world.view(1).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  EXPECT_THAT(orders.releases, ElementsAre(Holding{key(1), 1, 1}));
}

// A master's drain goes on until stopped, and other nodes may hold millions of objects.
TEST(Drain, LooksForNothingWhereTheNodeIsEmpty) {
  World world(2);
  for (std::uint64_t i = 0; i < 10'000; ++i) world.hold(2, i, 1);
  world.view(1).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1, 0, orders);
  EXPECT_TRUE(planner.progress().done);
  world.hold(1, 10'000, 1);
  planner.advance(world.directory(), world.views(), 1'000'000, 1000 * kMs, orders);
  EXPECT_FALSE(planner.progress().done);
  EXPECT_EQ(orders.copies.size(), 1u);
}

// The master has given up waiting for the report, so misses of other nodes are certain again.
TEST(Drain, OfANodeThatHasNotReportedIsNotDone) {
  World world(2);
  ASSERT_TRUE(world.directory().join(1, 2).ok());
  world.directory().stop_waiting(1);
  ASSERT_FALSE(world.directory().recovering());
  world.view(1).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1'000'000, 0, orders);
  EXPECT_FALSE(planner.progress().done);
}

// The target of a failed job has announced a copy that the target does not keep.
TEST(Drain, DoesNotCountOnTheCopyOfAJobThatHasFailed) {
  World world(2);
  world.hold(1, 1, 1);
  world.view(1).draining = true;
  DrainPlanner planner(1, {});
  DrainOrders orders;
  planner.advance(world.directory(), world.views(), 1, 0, orders);
  for (int i = 0; i < 10'000 && orders.copies.empty(); ++i) {
    planner.advance(world.directory(), world.views(), 1, 0, orders);
  }
  ASSERT_EQ(orders.copies.size(), 1u);
  world.copy(orders.copies[0]);
  planner.finished(key(1), false);
  planner.advance(world.directory(), world.views(), 1'000'000, 0,
                  orders);  // to the end of the pass
  planner.advance(world.directory(), world.views(), 1'000'000, 100 * kMs, orders);
  EXPECT_THAT(orders.releases, IsEmpty());
  world.drop({key(1), 1, 2});
  planner.advance(world.directory(), world.views(), 1'000'000, 1000 * kMs, orders);
  EXPECT_THAT(orders.releases, IsEmpty());
  EXPECT_EQ(orders.copies.size(), 2u);
}

TEST(HotKeys, AdviseOneMoreReplicaForKeysServedTooOften) {
  World world(4);
  for (std::uint64_t i = 0; i < 2000; ++i) world.hold(1 + i % 4, i, 1);
  world.hold(2, 0, 1);  // key 0 has two holders
  HotKeys hot({.window_ns = 1000 * kMs, .locates_per_holder = 500, .max_hot = 8});
  EXPECT_THAT(hot.advise(world.directory(), 1), IsEmpty());
  for (std::uint64_t i = 0; i < 2000; ++i) hot.note(key(i), 10);
  for (int i = 0; i < 800; ++i) hot.note(key(0));
  for (int i = 0; i < 600; ++i) hot.note(key(1));
  for (int i = 0; i < 700; ++i) hot.note(key(2));
  hot.note(key(5000), 900);  // without a holder
  EXPECT_GE(hot.estimate(key(2)), 710u);
  EXPECT_THAT(hot.advise(world.directory(), 2), IsEmpty());
  const std::vector<HotKey> advice = hot.advise(world.directory(), 1000 * kMs + 1);
  ASSERT_EQ(advice.size(), 2u);
  EXPECT_EQ(advice[0].hash, key(2));
  EXPECT_EQ(advice[1].hash, key(1));
  EXPECT_EQ(advice[1].holders, 1u);
  // The next window starts at zero.
  EXPECT_EQ(hot.estimate(key(2)), 0u);
  EXPECT_THAT(hot.advise(world.directory(), 3000 * kMs), IsEmpty());
}

TEST(HotKeys, NeverCountLessThanTheTruthAndAreBounded) {
  World world(1);
  std::mt19937_64 random(1);
  HotKeys hot({.window_ns = 1, .locates_per_holder = 5, .max_hot = 16});
  hot.advise(world.directory(), 1);
  std::map<std::uint64_t, std::uint32_t> truth;
  for (int i = 0; i < 50'000; ++i) {
    const std::uint64_t number = random() % 100 * (random() % 100);
    ++truth[number];
    hot.note(key(number));
  }
  for (const auto& [number, count] : truth) EXPECT_GE(hot.estimate(key(number)), count);
  for (std::uint64_t i = 0; i < 100; ++i) world.hold(1, i, 1);
  EXPECT_LE(hot.advise(world.directory(), 2).size(), 16u);
  hot.note(key(1), UINT32_MAX);
  hot.note(key(1), UINT32_MAX);
  EXPECT_EQ(hot.estimate(key(1)), UINT32_MAX);
}

// Windows of one second; 1,000 locates a holder are too many.
class HotReplicasTest : public ::testing::Test {
 protected:
  CopyAndRelease window(HotReplicas& hot, std::uint32_t locates) {
    hot.note(key(1), locates);
    now_ns_ += 1'000 * kMs;
    CopyAndRelease orders;
    hot.advance(world_.directory(), world_.views(), now_ns_, orders);
    for (const CopyJob& job : orders.copies) {
      world_.copy(job);
      hot.finished(job.hash, true, now_ns_);
    }
    for (const Holding& release : orders.releases) world_.drop(release);
    return orders;
  }
  World world_{4};
  std::uint64_t now_ns_ = 0;
};

TEST_F(HotReplicasTest, AHotKeyGetsOneReplicaMoreAtANodeWithoutIt) {
  HotReplicas hot({});
  world_.hold(2, 1, 1);
  window(hot, 0);
  const auto orders = window(hot, 1500);
  ASSERT_EQ(orders.copies.size(), 1u);
  EXPECT_EQ(orders.copies[0].source, 2u);
  EXPECT_NE(orders.copies[0].target, 2u);
  EXPECT_EQ(world_.replicas(key(1)), 2u);
  EXPECT_THAT(window(hot, 1500).copies, IsEmpty()) << "two share them";
  EXPECT_EQ(window(hot, 2500).copies.size(), 1u);
  EXPECT_EQ(hot.extras(), 2u);
}

TEST_F(HotReplicasTest, AnExtraIsReleasedWhenItsKeyHasBeenColdForLong) {
  HotReplicas hot({});
  world_.hold(2, 1, 1);
  window(hot, 0);
  window(hot, 1500);
  for (int i = 0; i < 40; ++i) EXPECT_THAT(window(hot, 600).releases, IsEmpty()) << "warm";
  std::size_t releases = 0;
  for (int i = 0; i < 40; ++i) releases += window(hot, 10).releases.size();
  EXPECT_EQ(releases, 1u);
  EXPECT_EQ(world_.replicas(key(1)), 1u);
  EXPECT_EQ(hot.extras(), 0u);
}

TEST_F(HotReplicasTest, AnObjectThatTheOthersDoNotHoldIsNotReleased) {
  HotReplicas hot({});
  world_.hold(2, 1, 1);
  window(hot, 0);
  window(hot, 1500);
  world_.view(2).draining = true;
  for (int i = 0; i < 40; ++i) EXPECT_THAT(window(hot, 0).releases, IsEmpty());
  world_.view(2).draining = false;
  EXPECT_EQ(window(hot, 0).releases.size(), 1u);
}

TEST_F(HotReplicasTest, ExtrasAreBounded) {
  HotReplicaOptions options;
  options.max_extras = 1;
  HotReplicas hot(options);
  world_.hold(2, 1, 1);
  window(hot, 0);
  for (int i = 0; i < 5; ++i) window(hot, 100'000);
  EXPECT_EQ(world_.replicas(key(1)), 2u);
}

TEST_F(HotReplicasTest, AnExtraThatItsHolderEvictedIsForgotten) {
  HotReplicas hot({});
  world_.hold(2, 1, 1);
  window(hot, 0);
  const auto orders = window(hot, 1500);
  world_.drop({key(1), 1, orders.copies.at(0).target});
  window(hot, 0);
  EXPECT_EQ(hot.extras(), 0u);
}

class RelocationsTest : public ::testing::Test {
 protected:
  using State = Relocation::State;

  std::uint64_t begin(std::uint64_t number, NodeId source, std::vector<NodeId> targets) {
    const auto begun = tasks_.begin({key(number), source, std::move(targets)}, world_.directory(),
                                    world_.views(), 0);
    EXPECT_TRUE(begun.has_value()) << begun.error().to_string();
    return begun.value_or(0);
  }
  mc_status refusal(std::uint64_t number, NodeId source, std::vector<NodeId> targets) {
    const auto begun = tasks_.begin({key(number), source, std::move(targets)}, world_.directory(),
                                    world_.views(), 0);
    return begun ? MC_OK : begun.error().code();
  }
  CopyAndRelease advance() {
    CopyAndRelease orders;
    tasks_.advance(world_.directory(), world_.views(), ++now_ns_, orders);
    return orders;
  }
  void finish(const CopyJob& job, bool ok = true) {
    if (ok) world_.copy(job);
    tasks_.finished(world_.directory(), job.hash, ok, ++now_ns_);
  }
  State state(std::uint64_t task) { return tasks_.find(task)->state; }

  World world_{4};
  Relocations tasks_;
  std::uint64_t now_ns_ = 0;
};

TEST_F(RelocationsTest, CopyToEachTargetInTurn) {
  world_.hold(1, 1, 1);
  world_.hold(2, 1, 1);
  const std::uint64_t task = begin(1, kNoNode, {2, 3, 4});
  EXPECT_EQ(state(task), State::kPending);
  for (const NodeId target : {3u, 4u}) {
    const CopyAndRelease orders = advance();
    ASSERT_EQ(orders.copies.size(), 1u);
    EXPECT_EQ(orders.copies[0].target, target);
    EXPECT_THAT(orders.releases, IsEmpty());
    EXPECT_EQ(state(task), State::kRunning);
    EXPECT_THAT(advance().copies, IsEmpty());
    finish(orders.copies[0]);
  }
  EXPECT_THAT(advance().copies, IsEmpty());
  EXPECT_EQ(state(task), State::kDone);
  EXPECT_EQ(world_.replicas(key(1)), 4u);
}

TEST_F(RelocationsTest, AMoveReleasesTheSourceWhenTheTargetHoldsTheObject) {
  world_.hold(1, 1, 1);
  const std::uint64_t task = begin(1, 1, {3});
  const CopyAndRelease orders = advance();
  ASSERT_EQ(orders.copies.size(), 1u);
  EXPECT_EQ(orders.copies[0].source, 1u);
  // The job's word alone releases nothing: the object is copied again.
  tasks_.finished(world_.directory(), key(1), true, ++now_ns_);
  const CopyAndRelease again = advance();
  ASSERT_EQ(again.copies.size(), 1u);
  EXPECT_THAT(again.releases, IsEmpty());
  finish(again.copies[0]);
  EXPECT_THAT(advance().releases, ElementsAre(Holding{key(1), 1, 1}));
  EXPECT_EQ(state(task), State::kDone);
  EXPECT_TRUE(tasks_.find(task)->moves());
}

TEST_F(RelocationsTest, AFailedCopyAndALostObjectEndTheTaskWithTheCause) {
  world_.hold(1, 1, 1);
  world_.hold(1, 2, 1);
  const std::uint64_t failed = begin(1, 1, {3}), lost = begin(2, kNoNode, {3});
  const CopyAndRelease orders = advance();
  ASSERT_EQ(orders.copies.size(), 2u);
  for (const CopyJob& job : orders.copies) {
    if (job.hash == key(2)) world_.drop({key(2), 1, 1});
    finish(job, false);
  }
  EXPECT_THAT(advance().releases, IsEmpty());
  EXPECT_EQ(state(failed), State::kFailed);
  EXPECT_THAT(tasks_.find(failed)->message, ::testing::HasSubstr("no room"));
  EXPECT_EQ(state(lost), State::kFailed);
  EXPECT_THAT(tasks_.find(lost)->message, ::testing::HasSubstr("removed"));
  EXPECT_TRUE(world_.held(1).contains(key(1)));
}

TEST_F(RelocationsTest, ATargetThatNeverKeepsTheObjectEndsTheTask) {
  world_.hold(1, 1, 1);
  const std::uint64_t task = begin(1, 1, {3});
  for (unsigned i = 0; i <= Relocations::kMaxCopies && state(task) != State::kFailed; ++i) {
    advance();
    tasks_.finished(world_.directory(), key(1), true, ++now_ns_);
  }
  EXPECT_EQ(state(task), State::kFailed);
}

TEST_F(RelocationsTest, OrdersThatCannotBeCarriedOutAreRefused) {
  world_.hold(1, 1, 1);
  world_.hold_part(1, 2, 2, 0);
  world_.hold_part(2, 2, 2, 1);
  world_.view(4).draining = true;
  EXPECT_EQ(refusal(9, kNoNode, {2}), MC_NOT_FOUND);
  EXPECT_EQ(refusal(1, kNoNode, {}), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refusal(1, kNoNode, {77}), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refusal(1, 2, {3}), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refusal(1, 1, {1}), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refusal(1, 1, {4}), MC_BUSY);
  EXPECT_EQ(refusal(2, kNoNode, {3}), MC_UNSUPPORTED);
  EXPECT_EQ(tasks_.find(1), nullptr);
}

TEST_F(RelocationsTest, TheNumberOfTasksAndOfCopiesUnderWayIsBounded) {
  for (std::uint64_t i = 0; i < 2 * Relocations::kMaxTasks; ++i) world_.hold(1, i, 1);
  const std::uint64_t first = begin(0, kNoNode, {2});
  for (std::uint64_t i = 1; i < Relocations::kMaxOpen; ++i) begin(i, kNoNode, {2});
  EXPECT_EQ(refusal(5000, kNoNode, {2}), MC_BUSY);
  std::size_t most = 0;
  for (std::uint64_t i = Relocations::kMaxOpen; i < 2 * Relocations::kMaxTasks;) {
    const CopyAndRelease orders = advance();
    most = std::max(most, orders.copies.size());
    for (const CopyJob& job : orders.copies) finish(job);
    while (i < 2 * Relocations::kMaxTasks && refusal(i, kNoNode, {2}) == MC_OK) ++i;
  }
  EXPECT_EQ(most, 16u);  // at a node
  EXPECT_EQ(tasks_.find(first), nullptr);
}

}  // namespace
}  // namespace mc::metadata
