// SPDX-License-Identifier: Apache-2.0
//
// Peers that pass the handshake and then break the data contract, in every word of every frame. No
// peer may end the node, hold its memory or access unregistered memory.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "libmc/base/clock.h"
#include "patience.h"
#include "transport/tcp/handshakes.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_transport.h"

namespace mc::transport::tcp {
namespace {

constexpr NodeId kVictim = 5;
constexpr NodeId kPeer = 6;
constexpr std::uint64_t kRegionBytes = 4u << 20;

class Victim : public Dialer, public LinkSink {
 public:
  Victim() {
    TcpOptions options;
    options.node = kVictim;
    options.incarnation = 9;
    transport = TcpTransport::create(options, *this).value();
    handshakes = std::make_unique<Handshakes>(Handshakes::create(*this).value());
    Fd socket = listen_tcp("127.0.0.1", 0).value();
    port = local_port(socket.get()).value();
    listener = std::make_unique<Listener>(std::move(socket), [] {
      return make_accepting_handshake({kVictim, 9, 0});
    });
  }
  void dial(const DialRequest& request) override {
    transport->dial_failed(request.peer, request.lane);
  }
  void on_link(Link link) override {
    ++links;
    EXPECT_TRUE(transport->attach(std::move(link)).ok());
  }
  void on_failed(std::optional<DialRequest>, const Status&) override { ++refused; }
  void step() {
    const std::uint64_t now = now_ns();
    listener->poll(*handshakes, now);
    handshakes->poll(now);
    transport->poll(now, events);
  }
  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = now_ns() + kWatchdogNs;
    while (!holds()) {
      if (now_ns() > until_ns) return false;
      step();
    }
    return true;
  }

  std::unique_ptr<TcpTransport> transport;
  std::unique_ptr<Handshakes> handshakes;
  std::unique_ptr<Listener> listener;
  std::uint16_t port = 0;
  int links = 0;
  int refused = 0;
  std::vector<Event> events;
};

class HostilePeer : public ::testing::Test {
 protected:
  void SetUp() override {
    RegionSpec spec;
    spec.data = memory_.data();
    spec.size_bytes = memory_.size();
    spec.rights = kRemoteRead;
    region_ = victim_.transport->register_region(spec).value();
  }

  Fd join() {
    Fd socket = start_connect("127.0.0.1", victim_.port).value();
    auto handshake =
        make_dialing_handshake({kPeer, 1, 0}, {1, kVictim, 1, LaneRole::kBulk, LinkProtocol::kTcp});
    EXPECT_TRUE(victim_.wait_for(
        [&] { return handshake->advance(socket.get()) == LaneHandshake::State::kDone; }));
    return socket;
  }
  Frame good_read(std::uint64_t id) const {
    Frame frame = make_frame(FrameKind::kRead, id);
    frame.region = region_;
    frame.size_bytes = 64;
    frame.left_us = 10'000'000;
    return frame;
  }
  static void send_bytes(const Fd& socket, const void* bytes, std::size_t size) {
    static_cast<void>(::send(socket.get(), bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  // The victim's next action: an answer, or the end of the lane (no value).
  std::optional<Frame> answer(const Fd& socket) {
    Frame frame{};
    std::size_t have = 0;
    bool cut = false;
    EXPECT_TRUE(victim_.wait_for([&] {
      const ssize_t got = ::recv(socket.get(), reinterpret_cast<std::byte*>(&frame) + have,
                                 sizeof frame - have, MSG_DONTWAIT);
      if (got > 0) have += static_cast<std::size_t>(got);
      cut = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
      return cut || have == sizeof frame;
    }));
    if (cut) return std::nullopt;
    return frame;
  }
  void expect_service() {
    const Fd socket = join();
    const Frame frame = good_read(1);
    send_bytes(socket, &frame, sizeof frame);
    const auto reply = answer(socket);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->outcome, 0);
    EXPECT_EQ(reply->payload_bytes, 64u);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(kRegionBytes, std::byte{0x21});
  RegionId region_ = kNoRegion;
  Victim victim_;
};

// Values at the limits of a word of a frame.
constexpr std::uint64_t kEdges[] = {
    0,          1,          2,          0x3f,        0x40,       0x7f,    0x80,     0xff,
    0x100,      0x7fff,     0x8000,     0xffff,      0x10000,    0xfffff, 0x100000, 0x100001,
    0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 1ull << 63, ~1ull,   ~0ull};

TEST_F(HostilePeer, EdgeValuesInEveryWordOfARequestHarmNobody) {
  for (const FrameKind kind :
       {FrameKind::kRead, FrameKind::kWrite, FrameKind::kNotify, FrameKind::kPing}) {
    for (std::size_t word = 0; word < kFrameBytes / 4; ++word) {
      for (const std::uint64_t edge : kEdges) {
        const Fd socket = join();
        Frame frame = good_read(1);
        frame.kind = static_cast<std::uint16_t>(kind);
        if (kind != FrameKind::kRead) frame.size_bytes = 0;
        if (kind == FrameKind::kWrite || kind == FrameKind::kNotify) frame.payload_bytes = 16;
        if (kind == FrameKind::kNotify || kind == FrameKind::kPing) frame.region = 0;
        const auto value = static_cast<std::uint32_t>(edge);
        std::memcpy(reinterpret_cast<std::byte*>(&frame) + word * 4, &value, sizeof value);
        if (word % 2 == 0 && word + 1 < kFrameBytes / 4 && edge > 0xffffffff) {
          std::memcpy(reinterpret_cast<std::byte*>(&frame) + word * 4, &edge, sizeof edge);
        }
        std::byte bytes[kFrameBytes + 16] = {};
        std::memcpy(bytes, &frame, sizeof frame);
        send_bytes(socket, bytes, sizeof bytes);
        for (int i = 0; i < 3; ++i) victim_.step();
      }
    }
    expect_service();
  }
  EXPECT_EQ(memory_, std::vector<std::byte>(kRegionBytes, std::byte{0x21}));
  EXPECT_EQ(victim_.transport->counters().pinned_bytes, 0u);
  EXPECT_EQ(victim_.transport->counters().taken_bytes, 0u);
  EXPECT_GT(victim_.transport->counters().broken_frames, 100u);
}

TEST_F(HostilePeer, RangesOutsideARegionAreInvalidAndTheLaneGoesOn) {
  const Fd socket = join();
  std::uint64_t id = 0;
  for (const std::uint64_t offset :
       std::vector<std::uint64_t>{kRegionBytes - 63, kRegionBytes, ~0ull - 63, ~0ull - 64, ~0ull}) {
    Frame frame = good_read(++id);
    frame.offset_bytes = offset;
    send_bytes(socket, &frame, sizeof frame);
    const auto reply = answer(socket);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->outcome, static_cast<std::uint8_t>(Outcome::kInvalid)) << offset;
    EXPECT_EQ(reply->payload_bytes, 0u);
  }
  Frame frame = good_read(++id);
  frame.offset_bytes = kRegionBytes - 64;
  send_bytes(socket, &frame, sizeof frame);
  EXPECT_EQ(answer(socket)->outcome, 0);
}

TEST_F(HostilePeer, WritesWithoutRightsAreSwallowedNotStored) {
  const Fd socket = join();
  Frame frame = good_read(1);
  frame.kind = static_cast<std::uint16_t>(FrameKind::kWrite);
  frame.size_bytes = 0;
  frame.payload_bytes = 20'000;
  const std::vector<std::byte> payload(20'000, std::byte{0x99});
  send_bytes(socket, &frame, sizeof frame);
  send_bytes(socket, payload.data(), payload.size());
  const auto reply = answer(socket);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->outcome, static_cast<std::uint8_t>(Outcome::kRefused));
  EXPECT_EQ(memory_, std::vector<std::byte>(kRegionBytes, std::byte{0x21}));
}

TEST_F(HostilePeer, MoreOpenRequestsThanAllowedCutTheLane) {
  const Fd socket = join();
  std::vector<Frame> frames;
  for (std::uint64_t id = 1; id <= 4 * kMaxLaneRequests; ++id) {
    Frame frame = good_read(id);
    frame.size_bytes = kMaxSliceBytes;
    frames.push_back(frame);
  }
  send_bytes(socket, frames.data(), frames.size() * sizeof(Frame));
  EXPECT_TRUE(victim_.wait_for([&] { return victim_.transport->counters().broken_frames > 0; }));
  EXPECT_EQ(victim_.transport->counters().pinned_bytes, 0u);
  expect_service();
}

TEST_F(HostilePeer, HellosOfStrangersAreRefused) {
  const LaneHello good = make_hello({kPeer, 1}, kVictim, 1, LaneRole::kBulk);
  for (std::size_t word = 0; word < kHelloBytes / 4; ++word) {
    for (const std::uint64_t edge : kEdges) {
      LaneHello hello = good;
      const auto value = static_cast<std::uint32_t>(edge);
      std::memcpy(reinterpret_cast<std::byte*>(&hello) + word * 4, &value, sizeof value);
      // The victim has no RDMA and announced none.
      const bool understood = decode_hello(std::as_bytes(std::span(&hello, 1))).has_value() &&
                              hello.to_node == kVictim &&
                              hello.protocol == static_cast<std::uint8_t>(LinkProtocol::kTcp);
      const int links = victim_.links;
      const int refused = victim_.refused;
      const Fd socket = start_connect("127.0.0.1", victim_.port).value();
      ASSERT_TRUE(victim_.wait_for([&] {
        return ::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello;
      }));
      ASSERT_TRUE(
          victim_.wait_for([&] { return victim_.links != links || victim_.refused != refused; }));
      EXPECT_EQ(victim_.links != links, understood) << "word " << word << " value " << edge;
    }
  }
  expect_service();
}

TEST_F(HostilePeer, CallersThatSayNothingAreNotWaitedForWithoutEnd) {
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(start_connect("127.0.0.1", victim_.port).value());
  ASSERT_TRUE(victim_.wait_for([&] { return victim_.handshakes->count() == 20; }));
  victim_.handshakes->poll(now_ns() + 2 * kHandshakeTimeoutNs);
  EXPECT_EQ(victim_.handshakes->count(), 0u);
  EXPECT_EQ(victim_.refused, 20);
  expect_service();
}

// ---- A hostile server -------------------------------------------------------------------------

TEST_F(HostilePeer, EdgeValuesInEveryWordOfAnAnswerFailTheLaneOrTheRead) {
  for (std::size_t word = 0; word < kFrameBytes / 4; ++word) {
    for (const std::uint64_t edge : kEdges) {
      Fd listener = listen_tcp("127.0.0.1", 0).value();
      Fd ours = start_connect("127.0.0.1", local_port(listener.get()).value()).value();
      Fd theirs;
      ASSERT_TRUE(victim_.wait_for([&] {
        theirs.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        return static_cast<bool>(theirs);
      }));
      const PeerId peer = victim_.transport->connect({kPeer, 1}).value();
      Link link;
      link.socket = std::move(ours);
      link.peer = peer;
      link.lane = 1;
      link.node = kPeer;
      ASSERT_TRUE(victim_.transport->attach(std::move(link)).ok());
      std::vector<std::byte> to(64 + 2 * 64, std::byte{0x7a});
      const Piece piece{to.data() + 64, 64, kNoRegion};
      Operation operation;
      operation.peer = peer;
      operation.region = 1;
      operation.deadline_ns = now_ns() + kWatchdogNs;
      operation.pieces = {&piece, 1};
      ASSERT_EQ(victim_.transport->submit({&operation, 1}, now_ns()), 1u);
      Frame frame = make_frame(FrameKind::kData, 1);
      frame.payload_bytes = 64;
      const auto value = static_cast<std::uint32_t>(edge);
      std::memcpy(reinterpret_cast<std::byte*>(&frame) + word * 4, &value, sizeof value);
      std::byte bytes[kFrameBytes + 256] = {};
      std::memcpy(bytes, &frame, sizeof frame);
      send_bytes(theirs, bytes, sizeof bytes);
      for (int i = 0; i < 3; ++i) victim_.step();
      for (std::size_t i = 0; i < 64; ++i) {
        ASSERT_EQ(to[i], std::byte{0x7a}) << word << " " << edge;
        ASSERT_EQ(to[128 + i], std::byte{0x7a}) << word << " " << edge;
      }
      victim_.transport->close_peer(peer);
      victim_.step();
    }
  }
  expect_service();
}

TEST_F(HostilePeer, AnAnswerBeforeItsWriteHasBeenSentFailsTheLane) {
  // Buffers too small for a slice, and no reader.
  const int small = 4096;
  Fd listener = listen_tcp("127.0.0.1", 0).value();
  ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  Fd ours = start_connect("127.0.0.1", local_port(listener.get()).value()).value();
  ::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  Fd theirs;
  ASSERT_TRUE(victim_.wait_for([&] {
    theirs.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return static_cast<bool>(theirs);
  }));
  const PeerId peer = victim_.transport->connect({kPeer, 1}).value();
  Link link;
  link.socket = std::move(ours);
  link.peer = peer;
  link.lane = 1;
  link.node = kPeer;
  ASSERT_TRUE(victim_.transport->attach(std::move(link)).ok());
  std::vector<std::byte> own(4u << 20);
  const Piece piece{own.data(), own.size(), kNoRegion};
  Operation operation;
  operation.verb = Verb::kWrite;
  operation.peer = peer;
  operation.region = 1;
  operation.deadline_ns = now_ns() + kWatchdogNs;
  operation.pieces = {&piece, 1};
  std::vector<Frame> answers;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    answers.push_back(make_frame(FrameKind::kAnswer, id));
    answers.back().outcome = static_cast<std::uint8_t>(Outcome::kStale);
  }
  send_bytes(theirs, answers.data(), answers.size() * sizeof(Frame));
  ASSERT_EQ(victim_.transport->submit({&operation, 1}, now_ns()), 1u);
  const auto ended = [&] {
    for (const Event& event : victim_.events) {
      if (event.kind == Event::Kind::kCompleted && event.id == operation.id) return true;
    }
    return false;
  };
  ASSERT_TRUE(victim_.wait_for(ended));
  EXPECT_GT(victim_.transport->counters().broken_frames, 0u);
}

}  // namespace
}  // namespace mc::transport::tcp
