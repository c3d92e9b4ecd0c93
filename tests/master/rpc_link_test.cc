// SPDX-License-Identifier: Apache-2.0
//
// Calls over proven links: every call ends exactly once, and no queue grows without a bound.
#include <gtest/gtest.h>

#include <optional>

#include "libmc/base/host_port.h"
#include "master/rpc_ends.h"
#include "metadata/wire/method.h"

namespace mc::metadata::rpc {
namespace {

constexpr auto kLocate = static_cast<std::uint8_t>(wire::Method::kLocate);
constexpr auto kStats = static_cast<std::uint8_t>(wire::Method::kStats);

class RpcLinkTest : public testing::Test {
 protected:
  void connect(const RpcLinkOptions& of_server = {}, const RpcLinkOptions& of_client = {}) {
    ListenerOptions options;
    options.link = of_server;
    auto listener = Listener::create(loop_.io(), options, server_);
    ASSERT_TRUE(listener.has_value());
    listener_ = std::move(*listener);
    DialOptions dialing;
    dialing.address = "127.0.0.1:" + std::to_string(listener_->port());
    dialing.link = of_client;
    dial(loop_.io().get_executor(), dialing, soon(), client_,
         [&](Result<std::shared_ptr<RpcLink>> link) { link_ = link.value_or(nullptr); });
    ASSERT_TRUE(loop_.until([&] { return link_ != nullptr && !server_.links.empty(); }));
  }
  struct Outcome {
    mc_status failed = MC_OK;
    std::uint16_t status = 0;
    std::uint64_t epoch = 0;
    std::string body;
  };
  std::uint32_t call(std::uint8_t method, std::string body, std::uint64_t deadline_ns = soon()) {
    return link_->call(method, std::move(body), deadline_ns, 0, [this](Result<Answer> answer) {
      if (!answer) {
        outcomes_.push_back({.failed = answer.error().code(), .body = {}});
      } else {
        outcomes_.push_back({MC_OK, answer->status, answer->epoch, std::string(answer->body)});
      }
    });
  }
  bool ended(std::size_t count) {
    return loop_.until([&] { return outcomes_.size() >= count; });
  }

  Loop loop_;
  Ends server_;
  Ends client_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<RpcLink> link_;
  std::vector<Outcome> outcomes_;
};

TEST_F(RpcLinkTest, AnswersCarryBodyAndEpoch) {
  connect();
  const std::string largest(wire::kMaxBatchBody, 'x');
  call(kLocate, largest);
  call(kStats, "");
  ASSERT_TRUE(ended(2));
  EXPECT_EQ(outcomes_[0].body, largest);
  EXPECT_EQ(outcomes_[0].epoch, 7u);
  EXPECT_EQ(outcomes_[1].body, "");
  EXPECT_EQ(outcomes_[1].failed, MC_OK);
}

TEST_F(RpcLinkTest, TheListenerCallsTheDialerToo) {
  connect();
  std::string heard;
  server_.links[0]->call(kStats, "order", soon(), 9,
                         [&](const Result<Answer>& answer) { heard = answer->body; });
  EXPECT_TRUE(loop_.until([&] { return heard == "order"; }));
}

TEST_F(RpcLinkTest, ManyCallsAreAnsweredInAnyOrder) {
  server_.echo = false;
  connect();
  for (int i = 0; i < 100; ++i) call(kStats, std::to_string(i));
  ASSERT_TRUE(loop_.until([&] { return server_.held.size() == 100; }));
  for (auto held = server_.held.rbegin(); held != server_.held.rend(); ++held) {
    server_.links[0]->answer(held->id, 0, held->body, 0);
  }
  ASSERT_TRUE(ended(100));
  EXPECT_EQ(outcomes_.front().body, "99");
  EXPECT_EQ(outcomes_.back().body, "0");
}

TEST_F(RpcLinkTest, ACallEndsAtItsDeadlineAndTheOtherSideHearsIt) {
  server_.echo = false;
  connect();
  call(kStats, "", now_ns() + 20'000'000);
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(outcomes_[0].failed, MC_TIMEOUT);
  EXPECT_TRUE(loop_.until([&] { return server_.cancelled.size() == 1; }));
  server_.links[0]->answer(server_.held[0].id, 0, "late", 0);
  server_.echo = true;
  call(kStats, "next");
  ASSERT_TRUE(ended(2));
  EXPECT_EQ(outcomes_[1].body, "next");
  EXPECT_EQ(outcomes_.size(), 2u);
}

TEST_F(RpcLinkTest, ACallAfterItsDeadlineSendsNothing) {
  connect();
  call(kStats, "", now_ns());
  EXPECT_TRUE(outcomes_.empty()) << "never from within call()";
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(outcomes_[0].failed, MC_TIMEOUT);
  EXPECT_TRUE(server_.held.empty());
}

TEST_F(RpcLinkTest, ACancelledCallEndsAtOnce) {
  server_.echo = false;
  connect();
  link_->cancel(call(kStats, ""));
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].failed, MC_CANCELLED);
  EXPECT_TRUE(loop_.until([&] { return server_.cancelled.size() == 1; }));
}

TEST_F(RpcLinkTest, CallsBeyondTheLimitAreBusyOnThisSide) {
  server_.echo = false;
  RpcLinkOptions options;
  options.max_calls = 3;
  connect({}, options);
  for (int i = 0; i < 4; ++i) call(kStats, "");
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(outcomes_[0].failed, MC_BUSY);
  ASSERT_TRUE(loop_.until([&] { return server_.held.size() == 3; }));
}

TEST_F(RpcLinkTest, UnsentBytesBeyondTheLimitAreBusyOnThisSide) {
  RpcLinkOptions options;
  options.max_queued_bytes = 2000;
  connect({}, options);
  call(kStats, std::string(1500, 'x'));
  call(kStats, std::string(1500, 'x'));
  ASSERT_TRUE(ended(2));
  EXPECT_TRUE(outcomes_[0].failed == MC_BUSY || outcomes_[1].failed == MC_BUSY);
}

TEST_F(RpcLinkTest, RequestsBeyondTheLimitAreAnsweredBusy) {
  server_.echo = false;
  RpcLinkOptions options;
  options.max_requests = 3;
  connect(options);
  for (int i = 0; i < 4; ++i) call(kStats, "");
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(outcomes_[0].status, MC_BUSY);
  EXPECT_EQ(server_.held.size(), 3u);
}

TEST_F(RpcLinkTest, AnUnknownMethodIsAnsweredUnsupported) {
  RpcLinkOptions options;
  options.limits_of = [](std::uint8_t method) {
    return method == 200 ? wire::BodyLimits{8, 2048, true} : wire::body_limits(method);
  };
  connect({}, options);
  call(200, "new");
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(outcomes_[0].status, MC_UNSUPPORTED);
}

TEST_F(RpcLinkTest, ABodyBeyondItsMethodsLimitEndsTheLink) {
  RpcLinkOptions options;
  options.limits_of = [](std::uint8_t) { return wire::BodyLimits{1 << 20, 1 << 20, true}; };
  connect({}, options);
  call(kLocate, std::string(wire::kMaxBatchBody + 1, 'x'));
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(outcomes_[0].failed, MC_AGENT_UNAVAILABLE);
  ASSERT_TRUE(loop_.until([&] { return server_.closed.size() == 1; }));
  EXPECT_EQ(server_.closed[0].code(), MC_INVALID_ARGUMENT);
}

TEST_F(RpcLinkTest, CallsFailWhenTheLinkBreaks) {
  server_.echo = false;
  connect();
  call(kStats, "");
  ASSERT_TRUE(loop_.until([&] { return server_.held.size() == 1; }));
  server_.links[0]->close({MC_CLOSED, "test"});
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(outcomes_[0].failed, MC_AGENT_UNAVAILABLE);
  EXPECT_TRUE(loop_.until([&] { return client_.closed.size() == 1; }));
  call(kStats, "");
  ASSERT_TRUE(ended(2));
  EXPECT_EQ(outcomes_[1].failed, MC_AGENT_UNAVAILABLE);
}

TEST_F(RpcLinkTest, ASilentPeerIsFoundDead) {
  RpcLinkOptions options;
  options.ping_after_ns = 10'000'000;
  options.dead_after_ns = 60'000'000;
  ListenerOptions listening;
  listening.link = options;
  auto listener = Listener::create(loop_.io(), listening, server_);
  ASSERT_TRUE(listener.has_value());
  RawSocket silent((*listener)->port());
  const auto hello = auth::encode_hello({.nonce = auth::make_nonce()});
  silent.send({hello.data(), hello.size()});
  silent.send(std::string(auth::kProofBytes, '\0'));
  EXPECT_TRUE(loop_.until([&] { return server_.closed.size() == 1; }));
  EXPECT_EQ(server_.closed.front().code(), MC_AGENT_UNAVAILABLE);
}

TEST_F(RpcLinkTest, PingsKeepAnIdleLinkAlive) {
  RpcLinkOptions options;
  options.ping_after_ns = 5'000'000;
  options.dead_after_ns = kSecondNs / 2;
  connect(options, options);
  const std::uint64_t idle_until_ns = now_ns() + 2 * options.dead_after_ns;
  ASSERT_TRUE(loop_.until([&] { return now_ns() > idle_until_ns; }));
  EXPECT_TRUE(link_->open());
  call(kStats, "still here");
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(outcomes_[0].body, "still here");
}

TEST(RpcFrame, LengthsAreCheckedByKindMethodAndStatus) {
  const auto fits = [](FrameHead head) {
    const auto bytes = encode_frame(head);
    const auto back = decode_frame({bytes.data(), bytes.size()}, wire::body_limits);
    EXPECT_TRUE(!back || *back == head);
    return back.has_value();
  };
  const FrameHead request{wire::kMaxBatchBody, FrameKind::kRequest, kLocate, 0, 1, 2, 3};
  EXPECT_TRUE(fits(request));
  FrameHead head = request;
  ++head.body_bytes;
  EXPECT_FALSE(fits(head));
  head = {wire::kMaxLocateAnswerBody, FrameKind::kAnswer, kLocate, 0, 1, 2, 3};
  EXPECT_TRUE(fits(head));
  head.status = MC_BUSY;
  EXPECT_FALSE(fits(head)) << "a refusal is small";
  head.body_bytes = wire::kMaxSmallBody;
  EXPECT_TRUE(fits(head));
  head.method = 250;
  EXPECT_FALSE(fits(head)) << "an answer to nothing";
  head = {1, FrameKind::kPing, 0, 0, 0, 0, 0};
  EXPECT_FALSE(fits(head));
  head = {0, static_cast<FrameKind>(0), 0, 0, 0, 0, 0};
  EXPECT_FALSE(fits(head));
  head.kind = static_cast<FrameKind>(6);
  EXPECT_FALSE(fits(head));
}

TEST(RpcAddress, PortsAndBracketsAreChecked) {
  EXPECT_EQ(split_address("host:80")->host, "host");
  EXPECT_EQ(split_address("[::1]:80")->host, "::1");
  for (const char* text :
       {"", "host", ":80", "host:", "host:0", "host:65536", "host:x", "::1:80"}) {
    EXPECT_FALSE(split_address(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace mc::metadata::rpc
