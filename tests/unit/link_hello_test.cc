// SPDX-License-Identifier: Apache-2.0
//
// The agreement of two ends before a link is up: common features, and the transport of the link.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "transport/tcp/lane_hello.h"

namespace mc::transport::tcp {
namespace {

constexpr std::uint32_t kRdma = feature_of(LinkProtocol::kRdma);
constexpr std::uint32_t kFabric = feature_of(LinkProtocol::kFabric);

struct Ends {
  LaneHandshake::State dialing = LaneHandshake::State::kWantsRead;
  LaneHandshake::State accepting = LaneHandshake::State::kWantsRead;
  Link dialed;
  Link accepted;
  Status refusal;
};

Ends shake(std::uint32_t dialers_features, std::uint32_t acceptors_features,
           LinkProtocol protocol) {
  int sockets[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
  Fd one(sockets[0]);
  Fd other(sockets[1]);
  const auto dialing =
      make_dialing_handshake({1, 7, dialers_features}, {5, 2, 0, LaneRole::kSmall, protocol});
  const auto accepting = make_accepting_handshake({2, 8, acceptors_features});
  Ends ends;
  static_cast<void>(dialing->advance(one.get()));
  ends.accepting = accepting->advance(other.get());
  if (ends.accepting == LaneHandshake::State::kFailed) {
    ends.refusal = accepting->status();
    other.reset();
  }
  ends.dialing = dialing->advance(one.get());
  if (ends.dialing == LaneHandshake::State::kDone) ends.dialed = dialing->link();
  if (ends.accepting == LaneHandshake::State::kDone) ends.accepted = accepting->link();
  return ends;
}

TEST(LinkHello, BothSidesLearnTheirCommonFeatures) {
  for (const std::uint32_t ours : {0u, kRdma, kRdma | kFabric}) {
    for (const std::uint32_t theirs : {0u, kRdma, kFabric}) {
      const Ends ends = shake(ours, theirs, LinkProtocol::kTcp);
      ASSERT_EQ(ends.dialing, LaneHandshake::State::kDone);
      ASSERT_EQ(ends.accepting, LaneHandshake::State::kDone);
      EXPECT_EQ(ends.dialed.features, ours & theirs);
      EXPECT_EQ(ends.accepted.features, ours & theirs);
      EXPECT_EQ(ends.accepted.protocol, LinkProtocol::kTcp);
    }
  }
}

TEST(LinkHello, ALinkOfAOneSidedTransportIsOneAtBothEnds) {
  for (const LinkProtocol protocol : {LinkProtocol::kRdma, LinkProtocol::kFabric}) {
    const Ends ends = shake(feature_of(protocol), feature_of(protocol), protocol);
    ASSERT_EQ(ends.accepting, LaneHandshake::State::kDone);
    EXPECT_EQ(ends.dialed.protocol, protocol);
    EXPECT_EQ(ends.dialed.peer, 5u);
    EXPECT_EQ(ends.accepted.protocol, protocol);
    EXPECT_EQ(ends.accepted.node, 1u);
  }
}

TEST(LinkHello, AnEndWithoutATransportRefusesItsLinks) {
  for (const auto& [features, protocol] :
       {std::pair(0u, LinkProtocol::kRdma), std::pair(0u, LinkProtocol::kFabric),
        std::pair(kFabric, LinkProtocol::kRdma), std::pair(kRdma, LinkProtocol::kFabric)}) {
    const Ends ends = shake(kRdma | kFabric, features, protocol);
    EXPECT_EQ(ends.accepting, LaneHandshake::State::kFailed);
    EXPECT_EQ(ends.refusal.code(), MC_UNSUPPORTED);
    EXPECT_EQ(ends.dialing, LaneHandshake::State::kFailed);
  }
}

}  // namespace
}  // namespace mc::transport::tcp
