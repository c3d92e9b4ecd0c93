// SPDX-License-Identifier: Apache-2.0
//
// The promises of the fabric transport beside the transports' contract: forged keys, memory that is
// closed under a write, links and peers that come and go.
#include "conformance/transport/fabric_fixture.h"

namespace mc::transport::testing {
namespace {

TEST_F(FabricTransportTest, ForgedRightsDoNotWrite) {
  auto described =
      RegionDescriptor::decode(fabric::kDescriptorFormat, pair_->b().describe(region_).value())
          .value();
  described.rights = kRemoteRead | kRemoteWrite;
  const RemoteRegionId forged =
      pair_->a().import_region(peer_, described.encode(fabric::kDescriptorFormat)).value();
  Memory source(4096, std::byte{0x66});
  const Memory as_it_was = memory_;
  const Piece piece{source.data(), source.size(), kNoRegion};
  EXPECT_NE(run(operation(Verb::kWrite, forged, piece)), Outcome::kDone);
  EXPECT_EQ(memory_, as_it_was);
  // The failure may have ended the lane; reads go on.
  Memory to(4096);
  const Piece target{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(operation(Verb::kRead, remote_, target)), Outcome::kDone);
}

TEST_F(FabricTransportTest, AKeyThatDoesNotHoldIsAskedForAgain) {
  auto described =
      RegionDescriptor::decode(fabric::kDescriptorFormat, pair_->b().describe(region_).value())
          .value();
  described.devices[0].keys[0] ^= 0x5555;
  const RemoteRegionId bent =
      pair_->a().import_region(peer_, described.encode(fabric::kDescriptorFormat)).value();
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(operation(Verb::kRead, bent, piece)), Outcome::kDone);
  EXPECT_TRUE(std::equal(to.begin(), to.end(), memory_.begin()));
}

TEST_F(FabricTransportTest, AWriteUnderWayLandsNoMoreAfterItsRegionWasClosed) {
  Memory target(kRegionBytes, std::byte{0x11});
  Memory source(kRegionBytes, std::byte{0x22});
  const Piece piece{source.data(), source.size(), kNoRegion};
  for (int steps = 1; steps < 12; ++steps) {
    const RegionId region =
        register_at(pair_->b(), target.data(), target.size(), kRemoteRead | kRemoteWrite);
    const OperationId id = submit(operation(Verb::kWrite, import(region), piece));
    // Until some slices have landed, so that another slice is likely to be under way.
    ASSERT_TRUE(wait_for([&] { return target[0] == std::byte{0x22}; }));
    for (int i = 1; i < steps; ++i) step();
    EXPECT_TRUE(wait_for([&] { return pair_->b().close_region(region); }));
    std::ranges::fill(target, std::byte{0x33});
    const Outcome outcome = outcome_of(id);
    EXPECT_TRUE(outcome == Outcome::kStale || outcome == Outcome::kPeerLost ||
                outcome == Outcome::kDone)
        << static_cast<int>(outcome);
    EXPECT_TRUE(
        std::ranges::all_of(target, [](std::byte byte) { return byte == std::byte{0x33}; }));
    std::ranges::fill(target, std::byte{0x11});
  }
  Memory to(4096);
  const Piece other{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(operation(Verb::kRead, remote_, other)), Outcome::kDone);
}

TEST_F(FabricTransportTest, AWriteGoesOnWhenAnotherRegionIsClosedMeanwhile) {
  Memory target(kRegionBytes), source = pattern(kRegionBytes, 7), other(4096);
  const Piece piece{source.data(), source.size(), kNoRegion};
  const RemoteRegionId to =
      import(register_at(pair_->b(), target.data(), target.size(), kRemoteRead | kRemoteWrite));
  for (int steps = 1; steps < 12; ++steps) {
    std::ranges::fill(target, std::byte{0});
    const RegionId closed = register_at(pair_->b(), other.data(), other.size(), kRemoteRead);
    const OperationId id = submit(operation(Verb::kWrite, to, piece));
    ASSERT_TRUE(wait_for([&] { return target[0] == source[0]; }));
    for (int i = 1; i < steps; ++i) step();
    EXPECT_TRUE(wait_for([&] { return pair_->b().close_region(closed); }));
    ASSERT_EQ(outcome_of(id), Outcome::kDone) << rails();
    EXPECT_EQ(target, source);
  }
}

TEST_F(FabricTransportTest, WritesThatBreakOffAreSentAgainAndLandNoMoreOnceTheyAreDone) {
  Memory target(kRegionBytes), source = pattern(kRegionBytes, 7);
  const Piece piece{source.data(), source.size(), kNoRegion};
  const RemoteRegionId to =
      import(register_at(pair_->b(), target.data(), target.size(), kRemoteRead | kRemoteWrite));
  ASSERT_EQ(run(operation(Verb::kWrite, to, piece)), Outcome::kDone);
  const std::uint64_t resent = pair_->a().counters().resent_slices;
  for (int round = 0; round < 10; ++round) {
    std::ranges::fill(target, std::byte{0});
    const OperationId id = submit(operation(Verb::kWrite, to, piece));
    ASSERT_TRUE(wait_for([&] { return target[0] == source[0]; }));
    for (int i = 0; i < round; ++i) step();
    pair_->break_all_but_link();
    // b may not have heard a question on the former link.
    if (round % 2 == 1) pair_->break_link();
    ASSERT_EQ(outcome_of(id), Outcome::kDone) << rails();
    EXPECT_EQ(target, source);
    std::ranges::fill(target, std::byte{0x33});
    for (int i = 0; i < 200; ++i) step();
    EXPECT_TRUE(
        std::ranges::all_of(target, [](std::byte byte) { return byte == std::byte{0x33}; }));
  }
  // Some writes may have been complete before the break.
  EXPECT_GT(pair_->a().counters().resent_slices, resent);
}

TEST_F(FabricTransportTest, AWriteWhosePeerIsGoneEndsAsLost) {
  Memory target(kRegionBytes), source(kRegionBytes, std::byte{0x22});
  const Piece piece{source.data(), source.size(), kNoRegion};
  const RemoteRegionId to =
      import(register_at(pair_->b(), target.data(), target.size(), kRemoteRead | kRemoteWrite));
  const OperationId id = submit(operation(Verb::kWrite, to, piece));
  ASSERT_TRUE(wait_for([&] { return target[0] == std::byte{0x22}; }));
  pair_->kill_b();
  EXPECT_EQ(outcome_of(id), Outcome::kPeerLost);
}

TEST_F(FabricTransportTest, AnUnansweredOperationEndsByItsDeadlineAndLandsNoMore) {
  Memory to(kRegionBytes);
  const Piece piece{to.data(), to.size(), kNoRegion};
  ASSERT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kDone);
  Operation late = operation(Verb::kRead, remote_, piece);
  late.deadline_ns = mc::now_ns() + kSecondNs / 10;
  const OperationId id = submit(late);
  // b does not run meanwhile.
  const std::uint64_t until_ns = mc::now_ns() + kWatchdogNs;
  while (event_of(id) == nullptr && mc::now_ns() < until_ns) {
    pair_->a().poll(mc::now_ns(), at_a_);
  }
  ASSERT_NE(event_of(id), nullptr);
  EXPECT_EQ(event_of(id)->outcome, Outcome::kTimedOut);
  std::ranges::fill(to, std::byte{0x44});
  for (int i = 0; i < 2000; ++i) step();
  EXPECT_TRUE(std::ranges::all_of(to, [](std::byte byte) { return byte == std::byte{0x44}; }));
  EXPECT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kDone);
}

TEST_F(FabricTransportTest, ADeadlineWhileBytesComeEndsTheOperationAndNothingElse) {
  Memory to(kRegionBytes);
  const Piece piece{to.data(), to.size(), kNoRegion};
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kDone);
    Operation late = operation(Verb::kRead, remote_, piece);
    late.deadline_ns = mc::now_ns() + (i + 1) * 50'000;
    const Outcome outcome = run(late);
    EXPECT_TRUE(outcome == Outcome::kTimedOut || outcome == Outcome::kDone);
  }
}

TEST_F(FabricTransportTest, ABrokenLinkDisturbsNoReadAndComesBack) {
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  ASSERT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kDone);
  const std::uint64_t lanes_failed = pair_->a().counters().lanes_failed;
  pair_->break_link();
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kDone);
  // The answer came over a link, so the link is back.
  EXPECT_EQ(run(operation(Verb::kNotify, 0, piece)), Outcome::kDone);
  EXPECT_EQ(pair_->a().counters().lanes_failed, lanes_failed);
  EXPECT_FALSE(has(Event::Kind::kPeerLost));
}

TEST_F(FabricTransportTest, APeerThatWasStartedAgainIsLostAndBackAndItsOldRegionsAreStale) {
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  ASSERT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kDone);
  pair_->kill_b();
  ASSERT_TRUE(wait_for([&] { return has(Event::Kind::kPeerLost); }));
  auto options = FabricPair::options(kNodeB, "tcp;ofi_rxm", "127.0.0.1");
  options.incarnation = 2;
  pair_->start_b(options);
  ASSERT_TRUE(wait_for([&] { return has(Event::Kind::kPeerBack); })) << rails();
  EXPECT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kStale);
  const RegionId region = register_at(pair_->b(), memory_.data(), memory_.size(), kRemoteRead);
  EXPECT_EQ(run(operation(Verb::kRead, import(region), piece)), Outcome::kDone);
}

TEST_F(FabricTransportTest, IdleLanesAreClosedAndOpenedAgainWhenNeeded) {
  auto options = FabricPair::options(kNodeB, "tcp;ofi_rxm", "127.0.0.1");
  pair_.reset();
  auto asking = FabricPair::options(kNodeA, "tcp;ofi_rxm", "127.0.0.1");
  asking.idle_close_ns = kSecondNs / 10;
  pair_ = std::make_unique<FabricPair>(*library_, asking, options);
  register_at(pair_->a(), memory_arena().data(), memory_arena().size(), 0);
  peer_ = pair_->a().connect({kNodeB, 1}).value();
  remote_ = import(register_at(pair_->b(), memory_.data(), memory_.size(), kRemoteRead));
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kDone);
    EXPECT_TRUE(wait_for([&] { return rails().find("nothing to do") != std::string::npos; }));
  }
  EXPECT_FALSE(has(Event::Kind::kPeerLost));
}

TEST_F(FabricTransportTest, AProviderWithoutDescriptorsIsCalledOftenOnlyWhileAPeerHasRequests) {
  pair_.reset();
  start(FabricPair::options(kNodeA, "shm", ""), FabricPair::options(kNodeB, "shm", ""));
  const auto pause_ns = [&] {
    const std::uint64_t now_ns = mc::now_ns();
    pair_->b().poll(now_ns, at_b_);
    return pair_->b().next_poll_ns() - std::min(now_ns, pair_->b().next_poll_ns());
  };
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(wait_for([&] { return pause_ns() > 5'000'000; })) << "nobody wants anything";
    ASSERT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kDone);
    EXPECT_LE(pause_ns(), 50'000u);
  }
}

TEST_F(FabricTransportTest, APeerWithAnotherProviderIsReported) {
  at_a_.clear();
  pair_.reset();
  start(FabricPair::options(kNodeB, "shm", ""));
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(operation(Verb::kRead, remote_, piece)), Outcome::kPeerLost);
  EXPECT_NE(rails().find("another provider"), std::string::npos) << rails();
}

TEST_F(FabricTransportTest, AMissingProviderIsNamed) {
  class Nobody : public Dialer {
    void dial(const DialRequest&) override {}
  } nobody;
  auto options = FabricPair::options(kNodeA, "warp", "");
  const auto made = fabric::FabricTransport::create(options, *library_, nobody);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), MC_UNSUPPORTED);
  EXPECT_NE(made.error().to_string().find("warp"), std::string::npos);
}

TEST_F(FabricTransportTest, DeviceMemoryIsRefusedWithARemedy) {
  RegionSpec spec;
  spec.kind = MemoryKind::kDevice;
  spec.data = memory_.data();
  spec.size_bytes = memory_.size();
  const auto region = pair_->a().register_region(spec);
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().code(), MC_UNSUPPORTED);
  EXPECT_NE(region.error().to_string().find("host memory"), std::string::npos);
}

}  // namespace
}  // namespace mc::transport::testing
