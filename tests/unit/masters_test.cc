// SPDX-License-Identifier: Apache-2.0
//
// The masters of several partitions: choice of the master for a key, and the merge of several
// answers.
#include "agent/cluster/master/masters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "agent/cluster/peer/member_refresh.h"
#include "unit/scripted_master.h"

namespace mc::agent {
namespace {

namespace wire = metadata::wire;
using metadata::KeyHash;
using metadata::Lookup;
using ::testing::ElementsAre;

constexpr std::uint64_t kSoon = UINT64_MAX;

class MastersTest : public ::testing::Test {
 protected:
  MastersTest() {
    std::vector<MasterPort*> all;
    for (ScriptedMaster& port : ports_) all.push_back(&port);
    masters_.set(all);
  }
  static KeyHash key_of(std::uint64_t partition, std::uint64_t number) {
    return {partition * (UINT64_MAX / 3 + 1) + number, number};
  }
  static metadata::LocateAnswer held(const std::vector<MemberId>& nodes) {
    metadata::LocateAnswer answer;
    for (const MemberId node : nodes) {
      const auto first = static_cast<std::uint32_t>(answer.holders.size());
      answer.keys.push_back({Lookup::kFound, {}, first, 1, 1, 100});
      answer.holders.push_back(node);
    }
    return answer;
  }
  static wire::MemberInfo member(MemberId node, metadata::Incarnation incarnation,
                                 std::uint64_t entries) {
    return {{node, incarnation, "10.0.0.1:7401", node, 0, 1 << 20},
            metadata::MemberState::kOk,
            false,
            false,
            500,
            entries};
  }

  ScriptedMaster ports_[3];
  Masters masters_;
};

TEST_F(MastersTest, ABatchIsSplitByPartitionInOrder) {
  const std::vector<KeyHash> names = {key_of(2, 1), key_of(0, 1), key_of(2, 2), key_of(0, 2)};
  const auto parts = masters_.split(names);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].partition, 0u);
  EXPECT_THAT(parts[0].places, ElementsAre(1u, 3u));
  EXPECT_EQ(parts[1].partition, 2u);
  EXPECT_THAT(parts[1].places, ElementsAre(0u, 2u));
  EXPECT_EQ(&masters_.of(names[0]), &ports_[2]);
  EXPECT_TRUE(masters_.split({}).empty());
  const Masters alone({&ports_[0]});
  ASSERT_EQ(alone.split(names).size(), 1u);
  EXPECT_THAT(alone.split(names)[0].places, ElementsAre(0u, 1u, 2u, 3u));
}

TEST_F(MastersTest, AnswersAreJoinedInTheOrderOfTheQuestion) {
  wire::Locate request;
  request.keys = {key_of(2, 1), key_of(0, 1), key_of(1, 1), key_of(2, 2)};
  std::optional<Result<metadata::LocateAnswer>> whole;
  masters_.locate(request, kSoon, [&](auto answer) { whole = std::move(answer); });
  ASSERT_EQ(ports_[2].locates.size(), 1u);
  EXPECT_THAT(ports_[2].locates[0].keys, ElementsAre(key_of(2, 1), key_of(2, 2)));
  // The master asked last answers first; another master does not answer at all.
  ports_[2].locates[0].done(held({21, 22}));
  ports_[0].locates[0].done(held({1}));
  ASSERT_FALSE(whole.has_value());
  ports_[1].locates[0].done(fail(MC_TIMEOUT));
  ASSERT_TRUE(whole.has_value() && whole->has_value());
  const metadata::LocateAnswer& answer = **whole;
  ASSERT_EQ(answer.keys.size(), 4u);
  EXPECT_THAT(answer.holders_of(answer.keys[0]), ElementsAre(21u));
  EXPECT_THAT(answer.holders_of(answer.keys[1]), ElementsAre(1u));
  EXPECT_EQ(answer.keys[2].state, Lookup::kRecovering) << "nobody knows";
  EXPECT_THAT(answer.holders_of(answer.keys[3]), ElementsAre(22u));
}

TEST_F(MastersTest, MembersAreWhomAnyReadyMasterKnows) {
  ports_[2].is_ready = false;
  std::optional<Result<wire::MembersAnswer>> all;
  masters_.members(kSoon, [&](auto answer) { all = std::move(answer); });
  EXPECT_TRUE(ports_[2].members_asked.empty()) << "it would be waited for";
  wire::MemberInfo suspected = member(5, 7, 10);
  suspected.state = metadata::MemberState::kSuspected;
  const auto down = [&](MemberId node, std::uint64_t ms) {
    return metadata::DownMember{member(node, 1, 0).descriptor, ms};
  };
  ports_[0].members_asked[0](
      wire::MembersAnswer{{suspected, member(6, 1, 1)}, {down(8, 10), down(9, 30)}});
  ports_[1].members_asked[0](wire::MembersAnswer{
      {member(5, 7, 30), member(6, 2, 4), member(8, 1, 2)}, {down(9, 20), down(10, 40)}});
  ASSERT_TRUE(all.has_value() && all->has_value());
  const std::vector<wire::MemberInfo>& members = (*all)->members;
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0], member(5, 7, 40)) << "heard by one, and each counts its own keys";
  EXPECT_EQ(members[1], member(6, 2, 4)) << "the later incarnation alone";
  EXPECT_EQ(members[2], member(8, 1, 2));
  EXPECT_THAT((*all)->down, ElementsAre(down(9, 20), down(10, 40))) << "no master hears them";
}

TEST_F(MastersTest, MissedMembersAreAskedForSoonAndNotAtEveryTurn) {
  Peers peers(1, {});
  MemberRefresh refresh(masters_, peers);
  EXPECT_EQ(refresh.next_ns(), UINT64_MAX) << "answers turn the loop";
  peers.missed();
  refresh.poll(1'000'000'000);
  EXPECT_EQ(ports_[0].refreshes, 1);
  EXPECT_EQ(refresh.next_ns(), UINT64_MAX);
  peers.missed();
  refresh.poll(1'000'000'001);
  EXPECT_EQ(ports_[0].refreshes, 1);
  EXPECT_EQ(refresh.next_ns(), 1'000'000'000 + MemberRefresh::kSoonNs);
  refresh.poll(refresh.next_ns());
  for (const ScriptedMaster& port : ports_) EXPECT_EQ(port.refreshes, 2);
}

// The lists of the partitions change at different times.
TEST_F(MastersTest, PeersAreTheMembersOfAllPartitions) {
  Peers peers(1, {});
  MemberRefresh refresh(masters_, peers);
  ports_[0].tell({member(5, 7, 1)});
  ports_[1].tell({member(5, 7, 1), member(6, 2, 1)});
  refresh.poll(1);
  EXPECT_EQ(peers.all().size(), 2u);
  wire::HeartbeatReply later;
  later.list_version = 2;
  later.gone = {5, 6};
  ports_[1].members_list.take(later, 0);
  refresh.poll(2);
  ASSERT_EQ(peers.all().size(), 1u);
  EXPECT_NE(peers.find(5), nullptr) << "partition 0 still names the member";
}

TEST_F(MastersTest, MembersAreAnErrorOnlyIfNoMasterAnswers) {
  for (ScriptedMaster& port : ports_) port.is_ready = false;
  std::optional<Result<wire::MembersAnswer>> all;
  masters_.members(kSoon, [&](auto answer) { all = std::move(answer); });
  for (ScriptedMaster& port : ports_) port.members_asked[0](fail(MC_TIMEOUT));
  ASSERT_TRUE(all.has_value());
  EXPECT_FALSE(all->has_value());
}

TEST_F(MastersTest, ADrainIsDoneWhenAllPartitionsAreDone) {
  std::optional<Result<wire::DrainAnswer>> sum;
  const auto ask = [&] {
    sum.reset();
    masters_.drain({4, false}, kSoon, [&](auto answer) { sum = std::move(answer); });
  };
  const auto answer = [&](std::size_t port, const Result<wire::DrainAnswer>& progress) {
    ports_[port].drains.back()(progress);
  };
  ask();
  answer(0, wire::DrainAnswer{1, 0, 0, 3, true});
  answer(1, wire::DrainAnswer{2, 1, 0, 4, false});
  answer(2, wire::DrainAnswer{4, 0, 1, 5, true});
  ASSERT_TRUE(sum.has_value() && sum->has_value());
  EXPECT_EQ(**sum, (wire::DrainAnswer{7, 1, 1, 12, false}));
  ask();
  answer(0, wire::DrainAnswer{1, 0, 0, 3, true});
  answer(1, fail(MC_TIMEOUT));
  answer(2, wire::DrainAnswer{4, 0, 1, 5, true});
  ASSERT_TRUE(sum.has_value());
  EXPECT_FALSE(sum->has_value()) << "what nobody answers for is not known to be done";
}

}  // namespace
}  // namespace mc::agent
