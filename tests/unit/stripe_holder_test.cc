// SPDX-License-Identifier: Apache-2.0
//
// A Seal without a verdict of a master is sent again and finds the stripes still there. After an
// eviction the object is removed, or another host still has the part.
#include "agent/cluster/stripe/stripe_holder.h"

#include <gtest/gtest.h>

#include "conformance/transport/loop_transport.h"
#include "libmc/base/clock.h"
#include "unit/scripted_master.h"

namespace mc::agent {
namespace {

using metadata::PublishItem;
using metadata::Verdict;

constexpr std::uint64_t kPut = 77;
constexpr std::uint64_t kVersion = 5000;

class StripeHolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto made = make_tenant("striped", 0);
    ASSERT_TRUE(made);
    auto book = VersionBook::open({}, made->store->index().header().max_entries);
    ASSERT_TRUE(book);
    tenants_.push_back(std::make_unique<ClusterTenant>(made, hasher_, clock_, std::move(*book)));
    made->store->set_listener(tenants_.back().get());
  }
  void TearDown() override { tenant().store().set_listener(nullptr); }
  ClusterTenant& tenant() { return *tenants_.front(); }

  void hold_the_only_stripe(std::uint8_t replicas = 1) {
    HoldRequest hold;
    hold.stripe = StripeFacts{kPut, 50, 1, 50, 0, 1, 60'000};
    hold.row.key = "large";
    hold.row.replicas = replicas;
    ASSERT_TRUE(keeper_.expect(tenant(), hold, 2));
    put_object(tenant().store(), stripe_key({kPut, 0}));
  }
  void seal(std::uint8_t parts = 1, std::uint32_t request = 1, std::uint64_t version = kVersion) {
    SealRequest message;
    message.upsert = true;
    message.request = request;
    message.put = kPut;
    message.version = version;
    message.stripes = 1;
    message.parts = parts;
    keeper_.seal(tenant(), message, [this](mc_status status) { answers_.push_back(status); });
  }
  void answer(Result<std::vector<Verdict>> verdicts) {
    const auto first = std::move(master_.published.front());
    master_.published.pop_front();
    first.done(std::move(verdicts));
  }
  void evict() {
    ASSERT_TRUE(tenant().store().remove(stripe_key({kPut, 0})));
    operations_.set_now(1'000);
    keeper_.flush();
    announcer_.flush(1'000);
  }
  void hold_a_part_of_two() {
    hold_the_only_stripe();
    seal(2);
    expect_it_is_sealed_by(master_.published.front());
  }
  // The answers to the holder's questions at these times. The object lacks a part.
  void tell_of_the_object(metadata::Lookup state, std::initializer_list<std::uint64_t> times_ms) {
    metadata::Located found;
    found.state = state;
    found.version = kVersion;
    found.missing_parts = 1;
    metadata::LocateAnswer answer;
    answer.keys.push_back(found);
    for (const std::uint64_t time_ms : times_ms) {
      operations_.set_now(time_ms * kMs);
      keeper_.flush();
      ASSERT_EQ(master_.locates.size(), 1u) << "the holder asks";
      const auto done = std::move(master_.locates.front().done);
      master_.locates.pop_front();
      done(answer);
    }
  }
  void expect_it_is_sealed_by(const ScriptedMaster::Published& publish) {
    ASSERT_EQ(publish.items.size(), 1u);
    EXPECT_EQ(publish.items[0].what, PublishItem::What::kHolds);
    EXPECT_EQ(publish.items[0].version, kVersion);
    answer(std::vector{Verdict::kAccepted});
    EXPECT_EQ(answers_, std::vector{MC_OK});
    EXPECT_EQ(tenant().stripes().sealed(tenant().name_of("large"), kVersion).size(), 1u);
  }

  ScriptedMaster master_;
  Masters masters_{{&master_}};
  transport::testing::LoopNetwork network_;
  std::unique_ptr<transport::Transport> transport_ = network_.make(1);
  Peers peers_{1, {}};
  metadata::KeyHasher hasher_{"secret"};
  VersionClock clock_{1};
  StripeHolder::Tenants tenants_;
  OperationTable operations_;
  Announcer announcer_{operations_, tenants_, masters_, clock_};
  Fetcher fetcher_{operations_, tenants_, masters_, peers_, *transport_, announcer_, {}, 1};
  StripeHolder keeper_{operations_, tenants_, masters_, peers_,       *transport_,
                       announcer_,  fetcher_, clock_,   1'000'000'000};
  std::vector<mc_status> answers_;
};

TEST_F(StripeHolderTest, ASealWhileNoMasterIsReadyIsLeftOpen) {
  hold_the_only_stripe();
  master_.is_ready = false;
  seal();
  EXPECT_TRUE(answers_.empty());
  ASSERT_FALSE(tenant().stripes().sets_of(kPut).empty());

  master_.is_ready = true;
  master_.published.clear();
  seal();
  ASSERT_FALSE(master_.published.empty());
  // The first announcement withdraws the earlier Seal.
  while (master_.published.size() > 1) answer(std::vector{Verdict::kNotHeld});
  expect_it_is_sealed_by(master_.published.front());
}

TEST_F(StripeHolderTest, ASealWhoseVerdictIsLostIsTakenBackAndLeftOpen) {
  hold_the_only_stripe();
  seal();
  ASSERT_EQ(master_.published.size(), 1u);
  answer(fail(MC_CLOSED, "the link was lost"));
  EXPECT_TRUE(answers_.empty());
  ASSERT_FALSE(tenant().stripes().sets_of(kPut).empty());

  seal();
  // The master may have accepted the first announcement. That announcement is withdrawn before the
  // second.
  ASSERT_EQ(master_.published.size(), 2u);
  const std::vector<PublishItem> back = master_.published.front().items;
  ASSERT_FALSE(back.empty());
  EXPECT_EQ(back.back().what, PublishItem::What::kDropped);
  EXPECT_EQ(back.back().version, kVersion);
  answer(std::vector(back.size(), Verdict::kAccepted));
  expect_it_is_sealed_by(master_.published.front());
}

TEST_F(StripeHolderTest, ARefusedSealIsNotOfferedAgainWhenItsMessageIsRepeated) {
  hold_the_only_stripe();
  seal();
  answer(std::vector{Verdict::kStale});
  seal();
  EXPECT_EQ(answers_, (std::vector{MC_CANCELLED, MC_CANCELLED}));
  EXPECT_TRUE(master_.published.empty());
}

// The master may accept the version by now.
TEST_F(StripeHolderTest, ANewSealOfARefusedVersionIsOffered) {
  hold_the_only_stripe();
  seal();
  answer(std::vector{Verdict::kBehind});
  answers_.clear();
  seal(1, 2);
  ASSERT_EQ(master_.published.size(), 1u);
  expect_it_is_sealed_by(master_.published.front());
}

TEST_F(StripeHolderTest, ALateMessageOfAnEarlierSealIsIgnored) {
  hold_the_only_stripe();
  seal(1, 1, kVersion - 1);
  answer(std::vector{Verdict::kStale});
  answers_.clear();
  seal(1, 2);
  seal(1, 1, kVersion - 1);
  EXPECT_TRUE(answers_.empty());
  ASSERT_EQ(master_.published.size(), 1u);
  expect_it_is_sealed_by(master_.published.front());
  seal(1, 1, kVersion - 1);
  EXPECT_EQ(answers_, std::vector{MC_OK});
}

TEST_F(StripeHolderTest, ASealThatIsRefusedForGoodEndsThePut) {
  hold_the_only_stripe();
  seal();
  answer(std::vector{Verdict::kInvalid});
  EXPECT_EQ(answers_, std::vector{MC_AGENT_UNAVAILABLE});
  EXPECT_TRUE(tenant().stripes().sets_of(kPut).empty());
}

TEST_F(StripeHolderTest, AnEvictedStripeTakesItsObjectAway) {
  hold_the_only_stripe();
  seal();
  expect_it_is_sealed_by(master_.published.front());
  evict();
  EXPECT_EQ(master_.removes.size(), 1u);
}

TEST_F(StripeHolderTest, AnObjectThatLacksAPartForTheGraceIsRemoved) {
  hold_a_part_of_two();
  tell_of_the_object(metadata::Lookup::kFound, {1'000, 1'900});
  EXPECT_TRUE(master_.removes.empty());
  tell_of_the_object(metadata::Lookup::kFound, {2'100});
  EXPECT_EQ(master_.removes.size(), 1u);
}

// The holder of the other part may report to the new leader.
TEST_F(StripeHolderTest, TheGraceBeginsAnewWithTheRecoveryOfALeader) {
  hold_a_part_of_two();
  tell_of_the_object(metadata::Lookup::kFound, {1'000});
  tell_of_the_object(metadata::Lookup::kRecovering, {2'100});
  tell_of_the_object(metadata::Lookup::kFound, {2'900, 3'800});
  EXPECT_TRUE(master_.removes.empty());
  tell_of_the_object(metadata::Lookup::kFound, {4'000});
  EXPECT_EQ(master_.removes.size(), 1u);
}

TEST_F(StripeHolderTest, AnEvictedStripeOfAPartWithReplicasTakesThatPartAway) {
  hold_the_only_stripe(2);
  seal();
  ASSERT_EQ(master_.published.front().items.at(0).attributes.replicas, 2);
  expect_it_is_sealed_by(master_.published.front());
  evict();
  EXPECT_TRUE(master_.removes.empty());
  ASSERT_EQ(master_.published.size(), 1u);
  const PublishItem& gone = master_.published.front().items.at(0);
  EXPECT_EQ(gone.what, PublishItem::What::kDropped);
  EXPECT_EQ(gone.version, kVersion);
  EXPECT_TRUE(tenant().stripes().empty());
}

TEST_F(StripeHolderTest, MoreReplicasThanSoManyPartsCanHaveAreFewer) {
  hold_the_only_stripe(8);
  seal(3);
  const metadata::Attributes said = master_.published.front().items.at(0).attributes;
  EXPECT_TRUE(metadata::valid(said));
  EXPECT_EQ(said.replicas, 4);
}

}  // namespace
}  // namespace mc::agent
