// SPDX-License-Identifier: Apache-2.0
//
// Runs of the simulated cluster. MC_SIM_SEED=N runs that seed and prints the faults; MC_SIM_SEEDS=N
// runs N seeds; MC_TEST_LONG=1 runs 100,000.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <iostream>

#include "sim/sim_world.h"

namespace mc::sim {
namespace {

constexpr std::uint64_t kParts = 4;

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t seed_count() {
  return number_of("MC_SIM_SEEDS", number_of("MC_TEST_LONG", 0) != 0 ? 100'000 : 300);
}

std::string explain(const SimWorld& world, std::uint64_t seed) {
  std::string text = world.story();
  for (const std::string& failure : world.history().failures()) text += "FAILED " + failure + "\n";
  return text + "Run it alone: MC_SIM_SEED=" + std::to_string(seed) +
         " mc_sim_tests --gtest_filter='Sim.OneSeed'\n";
}

class Sim : public testing::Test {
 protected:
  Sim() { spdlog::set_level(spdlog::level::off); }
};

class SimPart : public Sim, public testing::WithParamInterface<std::uint64_t> {};

TEST_P(SimPart, HistoriesObeyTheInvariants) {
  const std::uint64_t first = number_of("MC_SIM_FIRST", 1);
  std::uint64_t reads = 0, stored = 0, removed = 0, relocated = 0, demoted = 0, promoted = 0;
  std::uint64_t failed = 0;
  for (std::uint64_t i = GetParam(); i < seed_count() && failed < 10; i += kParts) {
    const std::uint64_t seed = first + i;
    SimWorld world(seed);
    world.run();
    reads += world.history().reads;
    stored += world.history().puts_stored;
    removed += world.history().removes_sure;
    relocated += world.history().relocations;
    demoted += world.history().demoted;
    promoted += world.history().promoted;
    if (world.history().failures().empty()) continue;
    ++failed;
    ADD_FAILURE() << explain(world, seed);
  }
  std::cout << reads << " reads, " << stored << " puts acknowledged, " << removed
            << " removals completed, " << relocated << " copies and moves begun, " << demoted
            << " objects demoted, " << promoted << " promoted\n";
  EXPECT_GT(reads, 0u);
  EXPECT_GT(demoted, 0u);
  EXPECT_GT(promoted, 0u);
}
INSTANTIATE_TEST_SUITE_P(Seeds, SimPart, testing::Range<std::uint64_t>(0, kParts));

TEST_F(Sim, OneSeed) {
  const std::uint64_t seed = number_of("MC_SIM_SEED", 0);
  if (seed == 0) GTEST_SKIP() << "set MC_SIM_SEED to run one seed and see what was done to it";
  SimWorld world(seed);
  world.run();
  std::cout << explain(world, seed);
  EXPECT_TRUE(world.history().failures().empty());
}

// The history must not depend on earlier runs in the process.
TEST_F(Sim, OneSeedGivesOneHistory) {
  constexpr std::uint64_t kSeeds = 20;
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SimWorld world(seed);
    world.run();
    hashes.push_back(world.history().hash());
  }
  for (std::uint64_t seed = kSeeds; seed >= 1; --seed) {
    SimWorld world(seed);
    world.run();
    EXPECT_EQ(world.history().hash(), hashes[seed - 1]) << "seed " << seed;
  }
}

// The first seed at which the checks find the bug, or 0. The rarest bug shows in one of a hundred seeds.
std::uint64_t found_at(const Bugs& bugs, const std::string& text) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SimWorld world(seed, bugs);
    world.run();
    for (const std::string& failure : world.history().failures()) {
      if (failure.find(text) != std::string::npos) return seed;
    }
  }
  return 0;
}

TEST_F(Sim, ChecksFindHoldersThatDoNotDrop) {
  Bugs bugs;
  bugs.drops_are_lies = true;
  EXPECT_NE(found_at(bugs, "removed"), 0u);
}

TEST_F(Sim, ChecksFindFlippedBitsInMemory) {
  Bugs bugs;
  bugs.memory_flips_bits = true;
  EXPECT_NE(found_at(bugs, "I1"), 0u);
}

TEST_F(Sim, ChecksFindGuardsThatCompareNoGenerations) {
  Bugs bugs;
  bugs.guards_are_lax = true;
  EXPECT_NE(found_at(bugs, "removed"), 0u);
}

TEST_F(Sim, ChecksFindStripesThatAreTakenForTheirObject) {
  Bugs bugs;
  bugs.parts_are_wholes = true;
  EXPECT_NE(found_at(bugs, "stripes"), 0u);
}

TEST_F(Sim, ChecksFindMemoryThatARestartLoses) {
  Bugs bugs;
  bugs.memory_is_forgotten = true;
  EXPECT_NE(found_at(bugs, "I2"), 0u);
}

}  // namespace
}  // namespace mc::sim
