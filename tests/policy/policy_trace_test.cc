// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <string>

#include "agent/pool/policy/policy.h"
#include "ctl/replay/report/summary.h"
#include "ctl/replay/trace.h"
#include "policy/policy_run.h"
#include "policy/synthetic_traces.h"

namespace mc {
namespace {

struct Row {
  std::size_t capacity_blocks;
  double lru_percent;
  double optimal_percent;
};

// Prefix hits on the recorded conversations, from the recording's origin note.
constexpr Row kPublished[] = {{1'000, 4.45, 19.07},
                              {5'000, 11.18, 34.12},
                              {10'000, 21.16, 36.64},
                              {30'000, 32.57, 36.64},
                              {50'000, 35.46, 36.64}};

const ctl::Trace& conversations() {
  static const ctl::Trace trace = [] {
    auto read = ctl::read_trace(std::string(MC_TEST_DATA "/conversation_trace.jsonl"));
    EXPECT_TRUE(read.has_value()) << read.error();
    return read.value_or(ctl::Trace{});
  }();
  return trace;
}

double percent(const ctl::Trace& trace, std::uint64_t hits) {
  return 100.0 * static_cast<double>(hits) / static_cast<double>(trace.reference_count);
}

ctl::PolicyRun run(std::string_view name, const ctl::Trace& trace, std::size_t capacity_blocks) {
  const auto policy = agent::make_policy(name);
  const auto result = ctl::run_policy(trace, capacity_blocks, *policy);
  EXPECT_TRUE(result.has_value()) << result.error();
  return result.value_or(ctl::PolicyRun{});
}

TEST(PolicyTrace, TheRecordingHasItsPublishedSize) {
  EXPECT_EQ(conversations().requests.size(), 12'031U);
  EXPECT_EQ(conversations().reference_count, 288'500U);
  EXPECT_EQ(conversations().block_count, 182'790U);
}

TEST(PolicyTrace, ReferenceCurvesReproduceThePublishedTable) {
  const ctl::Trace& trace = conversations();
  for (const Row& row : kPublished) {
    SCOPED_TRACE(row.capacity_blocks);
    EXPECT_NEAR(percent(trace, ctl::lru_prefix_hits(trace, row.capacity_blocks)), row.lru_percent,
                0.01);
    EXPECT_NEAR(percent(trace, ctl::optimal_prefix_hits(trace, row.capacity_blocks)),
                row.optimal_percent, 0.01);
  }
}

TEST(PolicyTrace, DefaultPolicyBeatsLruOnRecordedConversations) {
  const ctl::Trace& trace = conversations();
  double sum_of_ratios = 0;
  for (const Row& row : kPublished) {
    SCOPED_TRACE(row.capacity_blocks);
    const auto ours = run(agent::policy_names().front(), trace, row.capacity_blocks);
    const auto lru = ctl::lru_prefix_hits(trace, row.capacity_blocks);
    EXPECT_GE(ours.prefix_hits, lru);
    EXPECT_LE(ours.prefix_hits, ctl::optimal_prefix_hits(trace, row.capacity_blocks));
    sum_of_ratios += static_cast<double>(ours.prefix_hits) / static_cast<double>(lru);
  }
  EXPECT_GE(sum_of_ratios / static_cast<double>(std::size(kPublished)), 1.10);
}

TEST(PolicyTrace, LruPolicyFollowsItsReferenceCurve) {
  const ctl::Trace& trace = conversations();
  for (const Row& row : kPublished) {
    SCOPED_TRACE(row.capacity_blocks);
    EXPECT_NEAR(100 * run("lru", trace, row.capacity_blocks).hit_ratio(), row.lru_percent, 0.1);
  }
}

TEST(PolicyTrace, DefaultPolicyIsNeverNotablyWorseThanLruOnOtherShapes) {
  int better = 0;
  int cases = 0;
  for (const auto& [name, trace, capacities] : test::synthetic_traces(1)) {
    for (const std::size_t capacity_blocks : capacities) {
      SCOPED_TRACE(name + ", " + std::to_string(capacity_blocks) + " blocks");
      const auto ours = run(agent::policy_names().front(), trace, capacity_blocks).prefix_hits;
      const auto lru = ctl::lru_prefix_hits(trace, capacity_blocks);
      EXPECT_GE(static_cast<double>(ours), 0.97 * static_cast<double>(lru));
      better += ours > lru ? 1 : 0;
      ++cases;
    }
  }
  EXPECT_GE(better * 4, cases * 3) << better << " of " << cases;
}

TEST(PolicyTrace, ALoopLargerThanThePoolStillHits) {
  for (const auto& [name, trace, capacities] : test::synthetic_traces(1)) {
    if (name != "a loop larger than the pool") continue;
    const auto run_of_most = run(agent::policy_names().front(), trace, capacities.back());
    EXPECT_EQ(ctl::lru_prefix_hits(trace, capacities.back()), 0U);
    EXPECT_GT(run_of_most.hit_ratio(), 0.5);
  }
}

TEST(PolicyTrace, EqualRunsGiveEqualAnswers) {
  for (const std::string_view name : agent::policy_names()) {
    SCOPED_TRACE(name);
    const auto first = run(name, conversations(), 5'000);
    const auto second = run(name, conversations(), 5'000);
    EXPECT_EQ(first.prefix_hits, second.prefix_hits);
    EXPECT_EQ(first.evictions, second.evictions);
    EXPECT_EQ(first.memory_bytes, second.memory_bytes);
  }
}

TEST(PolicyTrace, APoolThatHoldsEverythingEvictsNothing) {
  const ctl::Trace& trace = conversations();
  for (const std::string_view name : agent::policy_names()) {
    const auto all = run(name, trace, trace.block_count);
    EXPECT_EQ(all.evictions, 0U) << name;
    EXPECT_EQ(all.insertions, trace.block_count) << name;
    EXPECT_EQ(all.prefix_hits, trace.reference_count - trace.block_count) << name;
  }
}

// Names a victim that was never inserted.
class WrongPolicy final : public agent::EvictionPolicy {
 public:
  void insert(const agent::Arrival&) override {}
  void touch(agent::EntryId) override {}
  void erase(agent::EntryId) override {}
  void set_pin(agent::EntryId, agent::PinLevel) override {}
  agent::EntryId evict() override { return agent::kNoEntry; }
  std::string_view name() const override { return "wrong"; }
  std::size_t resident_count() const override { return 0; }
  std::size_t memory_bytes() const override { return 0; }
};

TEST(PolicyTrace, ABrokenPolicyEndsTheRunWithAnError) {
  WrongPolicy policy;
  const auto result = ctl::run_policy(conversations(), 10, policy);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().find("policy wrong gave up an object"), std::string::npos);
}

}  // namespace
}  // namespace mc
