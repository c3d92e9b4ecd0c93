// SPDX-License-Identifier: Apache-2.0
//
// A put in stripes whose parts the master refuses at some hosts. The test answers for the master and for the two
// hosts.
#include "agent/cluster/place/striper.h"

#include <gtest/gtest.h>

#include "conformance/transport/loop_transport.h"
#include "libmc/base/clock.h"
#include "unit/scripted_master.h"

namespace mc::agent {
namespace {

constexpr std::uint64_t kStriperUnit = 64;

class StriperTest : public ::testing::Test {
 protected:
  struct Far {
    Far(MemberId node, transport::testing::LoopNetwork& network)
        : transport(network.make(node)), peers(node, {}) {
      peers.set_transport(*transport);
    }
    std::unique_ptr<transport::Transport> transport;
    Peers peers;
    std::vector<SealRequest> seals;
    bool dropped = false;
  };

  void SetUp() override {
    peers_.set_transport(*transport_);
    metadata::wire::MembersAnswer all;
    for (MemberId member = 1; member <= 3; ++member) {
      all.members.emplace_back().descriptor.node = member;
    }
    for (Peers* const each : {&peers_, &second_.peers, &third_.peers}) each->update(all);
    const auto made = make_tenant("striped", 0);
    ASSERT_TRUE(made);
    auto book = VersionBook::open({}, made->store->index().header().max_entries);
    ASSERT_TRUE(book);
    tenants_.push_back(std::make_unique<ClusterTenant>(made, hasher_, clock_, std::move(*book)));
    auto staging = MemoryFile::create("striper-test", 4096);
    ASSERT_TRUE(staging && staging->reserve(0, 4096).ok());
    staging_ = std::move(*staging);
  }
  // Begins an upsert of two stripes, one for each host, and goes on until both hosts are told to seal.
  void put() {
    request_->kind = RemoteRequest::Kind::kPlace;
    request_->deadline_ns = now_ns_ + 2'000 * kMs;
    request_->items.emplace_back().key = "large";
    request_->open_count = 1;
    request_->source.session = 9;
    request_->source.memory = &staging_;
    request_->source.order.length = 2 * kStriperUnit;
    request_->source.order.upsert = true;
    operations_.set_now(now_ns_);
    const auto region = memory_.region_of(request_->source);
    ASSERT_TRUE(region);
    striper_.begin(request_, *tenants_.front(), tenants_.front()->name_of("large"), *region, true);
    run();
    ASSERT_EQ(master_.places.size(), 1u);
    master_.places.front()(metadata::wire::ChooseHoldersAnswer{.nodes = {{2}, {3}}});
    run();
    ASSERT_EQ(second_.seals.size(), 1u);
    ASSERT_EQ(third_.seals.size(), 1u);
  }
  // The master refuses the part of the second host, then accepts the part of the third host.
  void put_and_refuse_one_part() {
    put();
    seal_ends(second_, HoldOutcome::kBehind);
    seal_ends(third_, HoldOutcome::kHeld);
    run();
    EXPECT_FALSE(request_->over());
    ASSERT_EQ(second_.seals.size(), 2u);
    EXPECT_EQ(second_.seals[1].version, second_.seals[0].version);
    EXPECT_EQ(third_.seals.size(), 1u);
  }
  void expect_acknowledged() {
    ASSERT_TRUE(request_->over());
    EXPECT_EQ(request_->items.front().status, MC_OK);
  }
  // Until a Seal without an answer would be repeated.
  void run() {
    for (int turn = 0; turn < 50; ++turn) {
      operations_.set_now(now_ns_ += kMs);
      poll(*transport_, peers_, nullptr);
      poll(*second_.transport, second_.peers, &second_);
      poll(*third_.transport, third_.peers, &third_);
      operations_.run();
    }
  }
  void poll(transport::Transport& transport, Peers& peers, Far* far) {
    std::vector<transport::Event> events;
    transport.poll(now_ns_, events);
    for (const transport::Event& event : events) {
      if (event.kind == transport::Event::Kind::kCompleted) {
        if (event.verb == transport::Verb::kNotify) peers.sent(event.id);
        if (far == nullptr) operations_.on_event(event);
      } else if (event.kind == transport::Event::Kind::kNotified) {
        const auto message = decode_peer_message(event.payload);
        ASSERT_TRUE(message);
        if (far == nullptr) {
          placer_.on_held(event.from, std::get<HoldAnswer>(*message));
          striper_.on_held(event.from, std::get<HoldAnswer>(*message));
        } else if (const auto* const hold = std::get_if<HoldRequest>(&*message)) {
          answer(*far, hold->request, HoldOutcome::kHeld);
        } else {
          const SealRequest seal = std::get<SealRequest>(*message);
          if (seal.drop) {
            far->dropped = true;
          } else {
            far->seals.push_back(seal);
          }
        }
      }
    }
  }
  void answer(Far& far, std::uint32_t request, HoldOutcome outcome) {
    const HoldAnswer message{request, outcome, 0};
    ASSERT_TRUE(far.peers.notify(1, message, 0, now_ns_ + kMs, now_ns_));
  }
  void seal_ends(Far& far, HoldOutcome outcome) { answer(far, far.seals.back().request, outcome); }

  std::uint64_t now_ns_ = 1'000 * kMs;
  transport::testing::LoopNetwork network_;
  std::unique_ptr<transport::Transport> transport_ = network_.make(1);
  Far second_{2, network_}, third_{3, network_};
  ScriptedMaster master_;
  Masters masters_{{&master_}};
  Peers peers_{1, {}};
  metadata::KeyHasher hasher_{"secret"};
  VersionClock clock_{1};
  std::vector<std::unique_ptr<ClusterTenant>> tenants_;
  MemoryFile staging_;
  OperationTable operations_;
  Announcer announcer_{operations_, tenants_, masters_, clock_};
  Fetcher fetcher_{operations_, tenants_, masters_, peers_, *transport_, announcer_, {}, 1};
  Placer placer_{operations_, masters_, peers_, *transport_, clock_, 1, {}};
  SessionMemory memory_{*transport_, placer_};
  Striper striper_{operations_, masters_, peers_,
                   clock_,      placer_,  memory_,
                   fetcher_,    1,        {.above_bytes = 0, .unit_bytes = kStriperUnit}};
  std::shared_ptr<RemoteRequest> request_ = std::make_shared<RemoteRequest>();
};

TEST_F(StriperTest, APartThatWasRefusedBeforeAnotherWasAcceptedIsSealedAgain) {
  put_and_refuse_one_part();
  seal_ends(second_, HoldOutcome::kHeld);
  run();
  expect_acknowledged();
  EXPECT_FALSE(second_.dropped || third_.dropped);
}

// The refusing host has met a later put or a removal.
TEST_F(StriperTest, APutThatWasReplacedWhileItWasSealedEndsAndItsStripesAreDropped) {
  put_and_refuse_one_part();
  seal_ends(second_, HoldOutcome::kBehind);
  run();
  expect_acknowledged();
  EXPECT_TRUE(second_.dropped && third_.dropped);
}

TEST_F(StriperTest, ALateAnswerToAnEarlierSealDoesNotCount) {
  put_and_refuse_one_part();
  answer(second_, second_.seals[0].request, HoldOutcome::kBehind);
  run();
  EXPECT_FALSE(request_->over());
  seal_ends(second_, HoldOutcome::kHeld);
  run();
  expect_acknowledged();
  EXPECT_FALSE(second_.dropped || third_.dropped);
}

TEST_F(StriperTest, APutThatAllHostsRefuseIsSealedWithALaterVersion) {
  put();
  const std::uint64_t version = second_.seals.back().version;
  seal_ends(second_, HoldOutcome::kBehind);
  seal_ends(third_, HoldOutcome::kBehind);
  run();
  ASSERT_EQ(second_.seals.size(), 2u);
  EXPECT_GT(second_.seals.back().version, version);
  EXPECT_EQ(third_.seals.back().version, second_.seals.back().version);
}

}  // namespace
}  // namespace mc::agent
