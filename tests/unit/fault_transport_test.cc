// SPDX-License-Identifier: Apache-2.0
//
// Faults happen as often as planned, the same seed gives the same faults, and the contract holds
// under all faults.
#include "conformance/transport/fault_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "conformance/transport/loop_transport.h"
#include "libmc/base/clock.h"

namespace mc::transport::testing {
namespace {

constexpr NodeId kHere = 1;
constexpr NodeId kThere = 2;

class FaultTransportTest : public ::testing::Test {
 protected:
  FaultTransportTest() { begin(1); }

  void begin(std::uint64_t seed) {
    here_.reset();
    there_.reset();
    now_ns_ = 1;
    there_ = network_.make(kThere);
    here_ = std::make_unique<FaultTransport>(network_.make(kHere), seed);
    RegionSpec spec;
    spec.data = memory_.data();
    spec.size_bytes = memory_.size();
    spec.rights = kRemoteRead | kRemoteWrite;
    region_ = there_->register_region(spec).value();
    peer_ = here_->connect({kThere, 1}).value();
  }

  // Makes `count` reads of 256 bytes with a deadline of 50 ms, and steps until all have ended.
  std::vector<Event> run(std::size_t count, Verb verb = Verb::kRead) {
    to_.assign(count * 256, std::byte{0});
    std::vector<Piece> pieces;
    std::vector<Operation> operations(count);
    for (std::size_t i = 0; i < count; ++i) pieces.push_back({&to_[i * 256], 256, kNoRegion});
    for (std::size_t i = 0; i < count; ++i) {
      operations[i].verb = verb;
      operations[i].peer = peer_;
      operations[i].cookie = i;
      operations[i].region = region_;
      operations[i].deadline_ns = now_ns_ + 50 * kMs;
      operations[i].pieces = {&pieces[i], 1};
    }
    EXPECT_EQ(here_->submit(operations, now_ns_), count);
    std::vector<Event> events;
    const std::uint64_t end_ns = now_ns_ + 2'000 * kMs;
    std::vector<Event> at_there;
    for (; now_ns_ < end_ns; now_ns_ += kMs / 4) {
      here_->poll(now_ns_, events);
      there_->poll(now_ns_, at_there);
    }
    std::map<std::uint64_t, int> ends;
    for (const Event& event : events) {
      if (event.kind == Event::Kind::kCompleted) ++ends[event.cookie];
    }
    EXPECT_EQ(ends.size(), count);
    for (const auto& [cookie, times] : ends) EXPECT_EQ(times, 1) << cookie;
    return events;
  }
  static std::size_t count_of(const std::vector<Event>& events, Outcome outcome) {
    return static_cast<std::size_t>(std::ranges::count_if(events, [&](const Event& event) {
      return event.kind == Event::Kind::kCompleted && event.outcome == outcome;
    }));
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(256, std::byte{0x5c});
  std::vector<std::byte> to_;
  LoopNetwork network_;
  std::unique_ptr<LoopTransport> there_;
  std::unique_ptr<FaultTransport> here_;
  std::uint64_t now_ns_ = 1;
  PeerId peer_ = kNoPeer;
  RegionId region_ = kNoRegion;
};

TEST_F(FaultTransportTest, WithoutAPlanNothingIsDifferent) {
  EXPECT_EQ(count_of(run(500), Outcome::kDone), 500u);
  EXPECT_TRUE(std::ranges::all_of(to_, [](std::byte byte) { return byte == std::byte{0x5c}; }));
}

TEST_F(FaultTransportTest, LostOperationsTimeOutAsOftenAsPlanned) {
  FaultPlan plan;
  plan.lose = 0.25;
  here_->set_plan(plan);
  const auto events = run(1000);
  const std::size_t lost = count_of(events, Outcome::kTimedOut);
  EXPECT_EQ(lost, here_->fault_counts().lost);
  EXPECT_GT(lost, 180u);
  EXPECT_LT(lost, 320u);
  EXPECT_EQ(count_of(events, Outcome::kDone), 1000 - lost);
}

TEST_F(FaultTransportTest, AFlippedBitIsOneBit) {
  FaultPlan plan;
  plan.flip_bit = 1;
  here_->set_plan(plan);
  EXPECT_EQ(count_of(run(64), Outcome::kDone), 64u);
  for (std::size_t i = 0; i < 64; ++i) {
    int bits = 0;
    for (std::size_t k = 0; k < 256; ++k) {
      bits += __builtin_popcount(std::to_integer<unsigned>(to_[i * 256 + k] ^ memory_[k]));
    }
    EXPECT_EQ(bits, 1) << i;
  }
}

TEST_F(FaultTransportTest, AWriteThatIsFlippedLeavesItsSourceAlone) {
  FaultPlan plan;
  plan.flip_bit = 1;
  here_->set_plan(plan);
  EXPECT_EQ(count_of(run(1, Verb::kWrite), Outcome::kDone), 1u);
  EXPECT_TRUE(std::ranges::all_of(to_, [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_EQ(std::ranges::count(memory_, std::byte{0}), 255);
}

TEST_F(FaultTransportTest, EventsComeInAnotherOrder) {
  FaultPlan plan;
  plan.reorder = 0.5;
  plan.max_delay_ns = 10 * kMs;
  here_->set_plan(plan);
  const auto events = run(200);
  EXPECT_EQ(count_of(events, Outcome::kDone), 200u);
  EXPECT_FALSE(std::ranges::is_sorted(events, {}, &Event::cookie));
}

TEST_F(FaultTransportTest, ANodeOutOfReachIsLostUntilItIsJoinedAgain) {
  here_->part(kThere);
  EXPECT_EQ(count_of(run(10), Outcome::kTimedOut), 10u);
  here_->join(kThere);
  EXPECT_EQ(count_of(run(10), Outcome::kDone), 10u);
}

TEST_F(FaultTransportTest, PartingEndsOperationsUnderWay) {
  FaultPlan plan;
  plan.delay = 1;
  plan.min_delay_ns = 20 * kMs;
  plan.max_delay_ns = 20 * kMs;
  here_->set_plan(plan);
  std::byte byte{};
  const Piece piece{&byte, 1, kNoRegion};
  Operation operation;
  operation.peer = peer_;
  operation.region = region_;
  operation.deadline_ns = now_ns_ + 5'000 * kMs;
  operation.pieces = {&piece, 1};
  ASSERT_EQ(here_->submit({&operation, 1}, now_ns_), 1u);
  std::vector<Event> events;
  here_->poll(now_ns_, events);
  here_->part(kThere);
  here_->poll(now_ns_ + 1'000 * kMs, events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].outcome, Outcome::kPeerLost);
  EXPECT_EQ(byte, std::byte{0});
}

TEST_F(FaultTransportTest, TheSameSeedGivesTheSameFaults) {
  FaultPlan plan{.lose = 0.1, .duplicate = 0.1, .delay = 0.3, .reorder = 0.3, .flip_bit = 0.1};
  const auto story = [&](std::uint64_t seed) {
    begin(seed);
    here_->set_plan(plan);
    std::vector<std::pair<std::uint64_t, Outcome>> told;
    for (const Event& event : run(300)) told.emplace_back(event.cookie, event.outcome);
    return std::pair(told, to_);
  };
  const auto first = story(42);
  EXPECT_EQ(story(42), first);
  EXPECT_NE(story(43), first);
}

TEST_F(FaultTransportTest, ABrokenLinkComesBackByItself) {
  FaultPlan plan;
  plan.break_link = 1;
  plan.outage_ns = 100 * kMs;
  here_->set_plan(plan);
  EXPECT_EQ(count_of(run(5), Outcome::kTimedOut), 5u);
  EXPECT_GT(here_->fault_counts().broken_links, 0u);
  here_->set_plan({});
  EXPECT_EQ(count_of(run(5), Outcome::kDone), 5u);
}

}  // namespace
}  // namespace mc::transport::testing
