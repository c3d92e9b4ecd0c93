// SPDX-License-Identifier: Apache-2.0
//
// Features of the TCP transport alone: lanes, lane failures, and few kernel calls. Where a peer is
// silent, the test owns the time, so no test waits.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "conformance/transport/tcp_node.h"
#include "conformance/transport/transport_fixture.h"
#include "libmc/base/clock.h"
#include "patience.h"
#include "transport/tcp/socket.h"

namespace mc::transport::testing {
namespace {

constexpr std::uint32_t kLanes = 4;

class TcpTransportTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kRegionBytes = 32u << 20;
  static constexpr std::uint64_t kLongNs = 3600ull * 1'000'000'000;

  static tcp::TcpOptions options(NodeId node) {
    tcp::TcpOptions result;
    result.node = node;
    result.incarnation = 1;
    return result;
  }

  void SetUp() override {
    RegionSpec spec;
    spec.data = memory_.data();
    spec.size_bytes = memory_.size();
    spec.rights = kRemoteRead;
    spec.guard = &guard_;
    region_ = b_->transport().register_region(spec).value();
    peer_ = a_->transport().connect({kNodeB, kLanes}).value();
    ASSERT_TRUE(wait_for([&] { return a_->links() == kLanes + 1; }));
  }

  Operation read(std::uint64_t offset, const Piece& piece) const {
    Operation operation;
    operation.peer = peer_;
    operation.region = region_;
    operation.generation = 1;
    operation.offset_bytes = offset;
    operation.pieces = {&piece, 1};
    operation.deadline_ns = now_ns_ + kLongNs;
    return operation;
  }
  RegionId register_target(Memory& target) {
    RegionSpec spec;
    spec.data = target.data();
    spec.size_bytes = target.size();
    spec.rights = kRemoteWrite;
    return b_->transport().register_region(spec).value();
  }
  Operation write(RegionId region, const Piece& piece) const {
    Operation operation = read(0, piece);
    operation.verb = Verb::kWrite;
    operation.region = region;
    return operation;
  }
  OperationId submit(Operation operation) {
    EXPECT_EQ(a_->transport().submit({&operation, 1}, now_ns_), 1u);
    return operation.id;
  }
  void step_a(std::uint64_t by_ns = 0) {
    now_ns_ += by_ns;
    a_->step(now_ns_);
    a_->transport().poll(now_ns_, events_);
  }
  void step_b() {
    b_->step(now_ns_);
    b_->transport().poll(now_ns_, at_b_);
  }
  // The time of the world follows the clock, so measurements are real.
  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t start_ns = mc::now_ns();
    std::uint64_t last_ns = start_ns;
    while (!holds()) {
      const std::uint64_t clock_ns = mc::now_ns();
      if (clock_ns > start_ns + kWatchdogNs) return false;
      step_a(clock_ns - last_ns);
      last_ns = clock_ns;
      step_b();
    }
    return true;
  }
  const Event* event_of(OperationId id) const {
    for (const Event& event : events_) {
      if (event.kind == Event::Kind::kCompleted && event.id == id) return &event;
    }
    return nullptr;
  }

  PortBook book_;
  Memory memory_ = pattern(kRegionBytes, 3);
  CountingGuard guard_;
  std::uint64_t now_ns_ = mc::now_ns();
  std::unique_ptr<TcpNode> a_ = std::make_unique<TcpNode>(book_, options(kNodeA));
  std::unique_ptr<TcpNode> b_ = std::make_unique<TcpNode>(book_, options(kNodeB));
  PeerId peer_ = kNoPeer;
  RegionId region_ = kNoRegion;
  std::vector<Event> events_;
  std::vector<Event> at_b_;
};

TEST_F(TcpTransportTest, ABatchOfSmallReadsTakesOneCallEachWayAndNoCopy) {
  constexpr std::size_t kCount = 32;
  Memory to(kCount * 4096);
  std::vector<Piece> pieces;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < kCount; ++i) pieces.push_back({&to[i * 4096], 4096, kNoRegion});
  for (std::size_t i = 0; i < kCount; ++i) batch.push_back(read(i * 8192, pieces[i]));
  const std::uint64_t asked = a_->transport().counters().send_calls;
  const std::uint64_t answered = b_->transport().counters().send_calls;
  ASSERT_EQ(a_->transport().submit(batch, now_ns_), kCount);
  EXPECT_EQ(a_->transport().counters().send_calls, asked + 1);
  ASSERT_TRUE(wait_for([&] { return event_of(batch.back().id) != nullptr; }));
  EXPECT_EQ(b_->transport().counters().send_calls, answered + 1);
  EXPECT_EQ(a_->transport().counters().staged_bytes, 0u);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(std::memcmp(pieces[i].data, &memory_[i * 8192], 4096), 0) << i;
  }
}

// A message that a notification causes need not wait for the answer to the notification.
TEST_F(TcpTransportTest, AnswersToNotificationsLeaveTogetherAMomentLater) {
  Memory text = pattern(4096, 1);
  const Piece piece{text.data(), text.size(), kNoRegion};
  std::vector<OperationId> open;
  const std::uint64_t answered = b_->transport().counters().send_calls;
  constexpr std::size_t kMostWaiting = 64;
  for (std::size_t count = 1; count <= kMostWaiting + 1; ++count) {
    Operation notify = read(0, piece);
    notify.verb = Verb::kNotify;
    open.push_back(submit(notify));
    // Time stands still.
    const std::uint64_t until_ns = mc::now_ns() + kWatchdogNs;
    const auto arrived = [&] {
      return static_cast<std::size_t>(
          std::ranges::count(at_b_, Event::Kind::kNotified, &Event::kind));
    };
    while (arrived() < count && mc::now_ns() < until_ns) {
      step_a();
      step_b();
    }
    ASSERT_EQ(arrived(), count);
    ASSERT_EQ(b_->transport().counters().send_calls, answered + (count < kMostWaiting ? 0u : 1u))
        << count;
  }
  EXPECT_EQ(b_->transport().next_poll_ns(), 0u);
  step_a(100'000);
  step_b();
  EXPECT_EQ(b_->transport().counters().send_calls, answered + 2);
  EXPECT_TRUE(wait_for([&] {
    return std::ranges::all_of(open, [&](OperationId id) { return event_of(id) != nullptr; });
  }));
}

TEST_F(TcpTransportTest, LargeReadsCopyNothingInUserSpace) {
  Memory to(kRegionBytes);
  const OperationId id = submit(read(0, {to.data(), to.size(), kNoRegion}));
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(to, memory_);
  EXPECT_EQ(a_->transport().counters().staged_bytes, 0u);
  EXPECT_EQ(b_->transport().counters().staged_bytes, 0u);
}

TEST_F(TcpTransportTest, SmallReadsOvertakeLargeOnes) {
  Memory to(kRegionBytes);
  Memory little(4096);
  const OperationId large = submit(read(0, {to.data(), to.size(), kNoRegion}));
  const OperationId small = submit(read(0, {little.data(), little.size(), kNoRegion}));
  ASSERT_TRUE(wait_for([&] { return event_of(small) != nullptr; }));
  EXPECT_EQ(event_of(large), nullptr);
  ASSERT_TRUE(wait_for([&] { return event_of(large) != nullptr; }));
}

TEST_F(TcpTransportTest, ALargeReadDoesNotWaitForALargerOneToEnd) {
  Memory to(kRegionBytes);
  Memory other(1u << 20);
  const OperationId larger = submit(read(0, {to.data(), to.size(), kNoRegion}));
  const OperationId large = submit(read(0, {other.data(), other.size(), kNoRegion}));
  ASSERT_TRUE(wait_for([&] { return event_of(large) != nullptr; }));
  EXPECT_EQ(event_of(larger), nullptr);
  ASSERT_TRUE(wait_for([&] { return event_of(larger) != nullptr; }));
}

TEST_F(TcpTransportTest, AForegroundReadOvertakesAQueueOfMigrations) {
  constexpr std::size_t kCount = 16;
  constexpr std::uint64_t kEach = kRegionBytes / kCount;
  Memory to(kRegionBytes);
  Memory wanted(kEach);
  std::vector<OperationId> queued;
  for (std::size_t i = 0; i < kCount; ++i) {
    const Piece piece{&to[i * kEach], kEach, kNoRegion};
    Operation operation = read(i * kEach, piece);
    operation.priority = Priority::kMigration;
    queued.push_back(submit(operation));
  }
  const Piece piece{wanted.data(), kEach, kNoRegion};
  const OperationId urgent = submit(read(0, piece));
  ASSERT_TRUE(wait_for([&] { return event_of(urgent) != nullptr; }));
  EXPECT_EQ(std::memcmp(wanted.data(), memory_.data(), kEach), 0);
  const auto ended = std::ranges::count_if(queued, [&](auto id) { return event_of(id); });
  EXPECT_LT(static_cast<std::size_t>(ended), kCount / 2);
  ASSERT_TRUE(wait_for([&] {
    return std::ranges::all_of(queued, [&](auto id) { return event_of(id) != nullptr; });
  }));
  EXPECT_EQ(to, memory_);
}

TEST_F(TcpTransportTest, RailsReportTheirBytes) {
  Memory to(kRegionBytes);
  const OperationId id = submit(read(0, {to.data(), to.size(), kNoRegion}));
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  std::vector<RailReport> rails;
  a_->transport().report_rails(rails);
  ASSERT_EQ(rails.size(), kLanes + 1);
  EXPECT_EQ(rails[0].name, "small");
  std::uint64_t carried = 0;
  for (const RailReport& rail : rails) {
    EXPECT_EQ(rail.peer, peer_);
    EXPECT_NE(rail.status.health, RailHealth::kDown) << rail.name;
    EXPECT_EQ(rail.status.outstanding_bytes, 0u) << rail.name;
    EXPECT_GT(rail.status.window_bytes, 0u) << rail.name;
    carried += rail.status.done_bytes;
  }
  EXPECT_EQ(carried, kRegionBytes);
  std::vector<RailCounts> counts;
  a_->transport().count_rails(counts);
  ASSERT_EQ(counts.size(), 1u);
  EXPECT_EQ(counts[0].transport, "tcp");
  EXPECT_EQ(counts[0].up, rails.size());
  EXPECT_EQ(counts[0].down + counts[0].idle, 0u);
  a_->break_lane(1);
  ASSERT_TRUE(wait_for([&] { return a_->transport().counters().lanes_failed == 1; }));
  rails.clear();
  a_->transport().report_rails(rails);
  EXPECT_EQ(rails[1].status.failures, 1u);
}

// The budget is less than a slice of each peer, so the peers always wait for one another.
TEST(TcpTransportIncast, PeersThatShareLittleCreditAllGetTheirBytes) {
  constexpr std::size_t kPeers = 4;
  constexpr std::uint64_t kEach = 8u << 20;
  PortBook book;
  tcp::TcpOptions options;
  options.incarnation = 1;
  options.node = 100;
  options.max_asked_bytes = 256 * 1024;
  TcpNode receiver(book, options);
  const Memory memory = pattern(kEach, 5);
  std::vector<std::unique_ptr<TcpNode>> senders;
  std::vector<Memory> to(kPeers, Memory(kEach));
  std::vector<Operation> reads(kPeers);
  std::vector<Piece> pieces(kPeers);
  std::uint64_t now_ns = mc::now_ns();
  for (std::size_t i = 0; i < kPeers; ++i) {
    options.node = i + 1;
    senders.push_back(std::make_unique<TcpNode>(book, options));
    RegionSpec spec;
    spec.data = const_cast<std::byte*>(memory.data());
    spec.size_bytes = kEach;
    spec.rights = kRemoteRead;
    pieces[i] = {to[i].data(), kEach, kNoRegion};
    reads[i].peer = receiver.transport().connect({i + 1, 2}).value();
    reads[i].region = senders[i]->transport().register_region(spec).value();
    reads[i].deadline_ns = now_ns + 60'000 * kMs;
    reads[i].pieces = {&pieces[i], 1};
  }
  ASSERT_EQ(receiver.transport().submit(reads, now_ns), kPeers);
  std::vector<Event> events;
  std::vector<Event> ignored;
  std::uint64_t most_asked = 0;
  const std::uint64_t until_ns = mc::now_ns() + kWatchdogNs;
  while (events.size() < kPeers && mc::now_ns() < until_ns) {
    now_ns = mc::now_ns();
    receiver.step(now_ns);
    receiver.transport().poll(now_ns, events);
    std::vector<RailReport> rails;
    receiver.transport().report_rails(rails);
    std::uint64_t asked = 0;
    for (const RailReport& rail : rails) asked += rail.status.outstanding_bytes;
    most_asked = std::max(most_asked, asked);
    // A peer that leaves while owing bytes does not keep the credit.
    if (events.size() == kPeers - 1 && most_asked > 0)
      receiver.transport().close_peer(reads[0].peer);
    for (auto& sender : senders) {
      sender->step(now_ns);
      sender->transport().poll(now_ns, ignored);
    }
  }
  ASSERT_EQ(events.size(), kPeers);
  EXPECT_LE(most_asked, 1u << 20) << "the budget, or one slice";
  for (std::size_t i = 1; i < kPeers; ++i) EXPECT_EQ(to[i], memory) << i;
}

TEST_F(TcpTransportTest, SlicesOfABrokenLaneComeOverAnotherAndTheLaneComesBack) {
  Memory to(kRegionBytes);
  for (std::uint32_t lane = 0; lane <= kLanes; ++lane) {
    std::ranges::fill(to, std::byte{0});
    const OperationId id = submit(read(0, {to.data(), to.size(), kNoRegion}));
    step_a();
    step_b();
    a_->break_lane(lane);
    ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    ASSERT_EQ(event_of(id)->outcome, Outcome::kDone) << lane;
    EXPECT_EQ(to, memory_);
    ASSERT_TRUE(wait_for([&] { return a_->links() == kLanes + 1; }));
  }
  EXPECT_GE(a_->transport().counters().lanes_failed, kLanes + 1);
  EXPECT_GT(a_->transport().counters().resent_slices, 0u);
}

TEST_F(TcpTransportTest, AWriteWhoseLaneBreaksArrivesOverAnother) {
  Memory target(kRegionBytes);
  const RegionId region = register_target(target);
  Memory own = pattern(kRegionBytes, 9);
  for (std::uint32_t lane = 0; lane <= kLanes; ++lane) {
    std::ranges::fill(target, std::byte{0});
    const OperationId id = submit(write(region, {own.data(), own.size(), kNoRegion}));
    for (int i = 0; i < 3; ++i) {
      step_a();
      step_b();
    }
    a_->break_lane(lane);
    ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    ASSERT_EQ(event_of(id)->outcome, Outcome::kDone) << lane;
    EXPECT_EQ(event_of(id)->bytes, own.size());
    EXPECT_EQ(target, own);
    ASSERT_TRUE(wait_for([&] { return a_->links() == kLanes + 1; }));
  }
  EXPECT_GT(a_->transport().counters().resent_slices, 0u);
  EXPECT_EQ(b_->transport().counters().broken_frames, 0u);
}

TEST_F(TcpTransportTest, AWriteWhoseLanesAllBreakArrivesWhenOneIsBack) {
  Memory target(kRegionBytes);
  const RegionId region = register_target(target);
  Memory own = pattern(kRegionBytes, 9);
  const OperationId id = submit(write(region, {own.data(), own.size(), kNoRegion}));
  step_a();
  step_b();
  for (std::uint32_t lane = 0; lane <= kLanes; ++lane) a_->break_lane(lane);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
  EXPECT_EQ(target, own);
}

// The test is the asking side: a lane stops in the middle of a write. Another lane cuts the first
// lane, and writes too.
TEST_F(TcpTransportTest, NothingOfALaneThatWasCutLandsAfterTheAnswer) {
  Memory target(8192);
  const RegionId region = register_target(target);
  constexpr NodeId kByHand = 77;
  const auto open_lane = [&](std::uint32_t index) {
    Fd socket = tcp::start_connect("127.0.0.1", book_[kNodeB]).value();
    auto handshake = tcp::make_dialing_handshake(
        {kByHand, 1, 0}, {1, kNodeB, index, LaneRole::kBulk, LinkProtocol::kTcp});
    EXPECT_TRUE(wait_for(
        [&] { return handshake->advance(socket.get()) == tcp::LaneHandshake::State::kDone; }));
    return socket;
  };
  const auto send = [](const Fd& socket, const void* bytes, std::size_t size) {
    ASSERT_EQ(::send(socket.get(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  };
  const auto head = [&](tcp::FrameKind kind, std::uint64_t id, std::uint32_t serial) {
    tcp::Frame frame = tcp::make_frame(kind, id);
    frame.serial = serial;
    frame.left_us = 0xffffffff;
    if (kind == tcp::FrameKind::kCut) {
      frame.size_bytes = 1;
      return frame;
    }
    frame.region = region;
    frame.payload_bytes = 8192;
    return frame;
  };
  const auto answers = [&](const Fd& socket, int count) {
    std::size_t got = 0;
    tcp::Frame frames[2];
    return wait_for([&] {
      const ssize_t more = ::recv(socket.get(), reinterpret_cast<std::byte*>(frames) + got,
                                  sizeof frames - got, MSG_DONTWAIT);
      if (more > 0) got += static_cast<std::size_t>(more);
      return got == static_cast<std::size_t>(count) * sizeof(tcp::Frame);
    });
  };
  const Memory late(8192, std::byte{1});
  const Memory good(8192, std::byte{2});
  const Fd first = open_lane(1);
  const Fd unread = open_lane(1);
  const tcp::Frame late_head = head(tcp::FrameKind::kWrite, 1, 7);
  send(first, &late_head, sizeof late_head);
  send(first, late.data(), 4096);
  ASSERT_TRUE(wait_for([&] { return target[0] == std::byte{1}; }));

  const Fd second = open_lane(2);
  const tcp::Frame cut = head(tcp::FrameKind::kCut, 1, 7);
  const tcp::Frame write_head = head(tcp::FrameKind::kWrite, 2, 8);
  send(second, &cut, sizeof cut);
  send(second, &write_head, sizeof write_head);
  send(second, good.data(), good.size());
  ASSERT_TRUE(answers(second, 2));
  EXPECT_EQ(target, good);

  static_cast<void>(::send(first.get(), late.data(), 4096, MSG_NOSIGNAL));
  // A lane with the serial whose bytes had not been read.
  send(unread, &late_head, sizeof late_head);
  static_cast<void>(::send(unread.get(), late.data(), late.size(), MSG_NOSIGNAL));
  const auto is_closed = [&](const Fd& socket) {
    return wait_for([&] {
      std::byte byte;
      const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
      return got == 0 || (got < 0 && errno == ECONNRESET);
    });
  };
  EXPECT_TRUE(is_closed(first));
  EXPECT_TRUE(is_closed(unread));
  EXPECT_EQ(target, good);
  // A later lane with the same index writes.
  const Fd again = open_lane(1);
  const tcp::Frame again_head = head(tcp::FrameKind::kWrite, 1, 9);
  send(again, &again_head, sizeof again_head);
  send(again, late.data(), late.size());
  ASSERT_TRUE(answers(again, 1));
  EXPECT_EQ(target, late);
}

TEST_F(TcpTransportTest, ANotificationWhoseLaneBreaksArrivesAtMostOnce) {
  Memory text(64);
  std::vector<OperationId> ids;
  std::map<std::byte, int> arrived;
  const auto count = [&] {
    for (const Event& event : at_b_) {
      if (event.kind == Event::Kind::kNotified) ++arrived[event.payload[0]];
    }
    at_b_.clear();
  };
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    text[0] = static_cast<std::byte>(round);
    const Piece piece{text.data(), text.size(), kNoRegion};
    Operation operation = read(0, piece);
    operation.verb = Verb::kNotify;
    operation.region = 0;
    operation.generation = 0;
    const OperationId id = submit(operation);
    ids.push_back(id);
    // Before the notification has been read, after that, and after the answer, which leaves a moment later.
    for (int i = 0; i < round % 3; ++i) {
      step_b();
      count();
      step_a(100'000);
    }
    a_->break_lane(0);
    ASSERT_TRUE(wait_for([&] {
      count();
      return event_of(id) != nullptr && a_->links() == kLanes + 1;
    }));
  }
  count();
  for (int round = 0; round < kRounds; ++round) {
    const Outcome outcome = event_of(ids[static_cast<std::size_t>(round)])->outcome;
    const int times = arrived[static_cast<std::byte>(round)];
    const bool done = outcome == Outcome::kDone;
    EXPECT_TRUE(done || outcome == Outcome::kPeerLost) << round;
    EXPECT_LE(times, 1) << round;
    EXPECT_GE(times, done ? 1 : 0) << round;
  }
}

TEST_F(TcpTransportTest, ASilentPeerIsLostWithinASecond) {
  Memory to(4096);
  const OperationId id = submit(read(0, {to.data(), to.size(), kNoRegion}));
  // Node b accepts connections (the kernel does) but does not answer any more.
  const std::uint64_t silent_since_ns = now_ns_;
  while (event_of(id) == nullptr && now_ns_ < silent_since_ns + 5'000 * kMs) step_a(10 * kMs);
  ASSERT_NE(event_of(id), nullptr);
  EXPECT_EQ(event_of(id)->outcome, Outcome::kPeerLost);
  EXPECT_LE(now_ns_ - silent_since_ns, 1'000 * kMs);
  // Node b answers again.
  ASSERT_TRUE(wait_for([&] {
    return std::ranges::any_of(
        events_, [](const Event& event) { return event.kind == Event::Kind::kPeerBack; });
  }));
  const OperationId again = submit(read(0, {to.data(), to.size(), kNoRegion}));
  ASSERT_TRUE(wait_for([&] { return event_of(again) != nullptr; }));
  EXPECT_EQ(event_of(again)->outcome, Outcome::kDone);
}

TEST_F(TcpTransportTest, ALoopThatSleptItselfDoesNotBlameItsPeers) {
  Memory to(4096);
  const OperationId id = submit(read(0, {to.data(), to.size(), kNoRegion}));
  step_a(60 * kMs);
  step_b();
  step_a(3'000 * kMs);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
  EXPECT_EQ(a_->transport().counters().lanes_failed, 0u);
}

TEST_F(TcpTransportTest, ReadsOfASilentPeerEndByTheirDeadline) {
  Memory to(1u << 20);
  const Piece piece{to.data(), to.size(), kNoRegion};
  Operation operation = read(0, piece);
  operation.deadline_ns = now_ns_ + 100 * kMs;
  const OperationId id = submit(operation);
  for (int i = 0; i < 11; ++i) step_a(10 * kMs);
  ASSERT_NE(event_of(id), nullptr);
  EXPECT_EQ(event_of(id)->outcome, Outcome::kTimedOut);
  // The bytes that b sends now are thrown away.
  std::ranges::fill(to, std::byte{0x66});
  Memory other(4096);
  const OperationId next = submit(read(0, {other.data(), other.size(), kNoRegion}));
  ASSERT_TRUE(wait_for([&] { return event_of(next) != nullptr; }));
  EXPECT_EQ(event_of(next)->outcome, Outcome::kDone);
  for (int i = 0; i < 50; ++i) {
    step_b();
    step_a();
  }
  EXPECT_TRUE(std::ranges::all_of(to, [](std::byte byte) { return byte == std::byte{0x66}; }));
}

TEST_F(TcpTransportTest, WritesOfASilentPeerEndByTheirDeadline) {
  Memory target(kRegionBytes);
  RegionSpec spec;
  spec.data = target.data();
  spec.size_bytes = target.size();
  spec.rights = kRemoteWrite;
  Memory own(kRegionBytes, std::byte{1});
  const Piece piece{own.data(), own.size(), kNoRegion};
  Operation operation = read(0, piece);
  operation.verb = Verb::kWrite;
  operation.region = b_->transport().register_region(spec).value();
  operation.deadline_ns = now_ns_ + 100 * kMs;
  const OperationId id = submit(operation);
  for (int i = 0; i < 12; ++i) step_a(10 * kMs);
  ASSERT_NE(event_of(id), nullptr);
  EXPECT_EQ(event_of(id)->outcome, Outcome::kTimedOut);
}

TEST_F(TcpTransportTest, AReaderThatTakesNothingPinsABoundedAmountForABoundedTime) {
  Fd socket = tcp::start_connect("127.0.0.1", book_[kNodeB]).value();
  auto handshake = tcp::make_dialing_handshake({kNodeA, 1, 0},
                                               {1, kNodeB, 1, LaneRole::kBulk, LinkProtocol::kTcp});
  ASSERT_TRUE(wait_for(
      [&] { return handshake->advance(socket.get()) == tcp::LaneHandshake::State::kDone; }));
  for (std::uint64_t id = 1; id <= kMaxLaneRequests; ++id) {
    tcp::Frame frame = tcp::make_frame(tcp::FrameKind::kRead, id);
    frame.region = region_;
    frame.generation = 1;
    frame.size_bytes = kMaxSliceBytes;
    frame.left_us = 0xffffffff;
    ASSERT_EQ(::send(socket.get(), &frame, sizeof frame, MSG_NOSIGNAL), sizeof frame);
  }
  ASSERT_TRUE(wait_for([&] { return guard_.held_bytes > 0; }));
  for (int i = 0; i < 100; ++i) step_b();
  EXPECT_GT(guard_.held_bytes, 0u);
  EXPECT_LE(guard_.most_held_bytes, tcp::kLaneZeroCopyPinBytes + kMaxSliceBytes);
  now_ns_ += kMaxPinNs + 200 * kMs;
  step_b();
  EXPECT_EQ(guard_.held_bytes, 0u);
  EXPECT_EQ(b_->transport().counters().pinned_bytes, 0u);
}

TEST_F(TcpTransportTest, SendsThatTheKernelCopiesAllTheSameGoBackToPlainOnes) {
  Memory to(kRegionBytes);
  for (int round = 0; round < 3; ++round) {
    const OperationId id = submit(read(0, {to.data(), to.size(), kNoRegion}));
    ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    ASSERT_EQ(to, memory_);
  }
  ASSERT_TRUE(wait_for([&] { return guard_.held.empty(); }));
  const Counters& counters = b_->transport().counters();
  // Over loopback the kernel always copies; each lane learns this from the first notice.
  EXPECT_GT(counters.zero_copy_sends, 0u);
  EXPECT_EQ(counters.zero_copy_copied, counters.zero_copy_sends);
  EXPECT_LT(counters.zero_copy_sends, counters.send_calls / 2);
}

TEST_F(TcpTransportTest, LanesHaveTheCongestionControlThatIsAskedFor) {
  const auto attach = [&](const std::string& name, const Fd& kept) {
    tcp::TcpOptions wanted = options(5);
    wanted.congestion_control = name;
    const auto transport = tcp::TcpTransport::create(wanted, *a_).value();
    Link link;
    link.socket.reset(::dup(kept.get()));
    link.accepted = true;
    link.node = kNodeA;
    return transport->attach(std::move(link));
  };
  const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_TRUE(attach("reno", socket).ok());
  char name[16] = {};
  socklen_t size = sizeof name;
  ASSERT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
  EXPECT_STREQ(name, "reno");
  EXPECT_EQ(attach("nosuch", Fd(::socket(AF_INET, SOCK_STREAM, 0))).code(), MC_INVALID_ARGUMENT);
}

TEST_F(TcpTransportTest, OperationsWaitForTheFirstLane) {
  constexpr NodeId kLate = 33;
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  Operation operation = read(0, piece);
  operation.peer = a_->transport().connect({kLate, 1}).value();
  const OperationId unanswered = submit(operation);
  for (int i = 0; i < 95; ++i) step_a(10 * kMs);
  ASSERT_NE(event_of(unanswered), nullptr);
  EXPECT_EQ(event_of(unanswered)->outcome, Outcome::kPeerLost);

  a_->transport().close_peer(operation.peer);
  operation.peer = a_->transport().connect({kLate, 1}).value();
  const RegionSpec spec{.data = memory_.data(), .size_bytes = kRegionBytes, .rights = kRemoteRead};
  TcpNode late(book_, options(kLate));
  operation.region = late.transport().register_region(spec).value();
  const OperationId id = submit(operation);
  std::vector<Event> ignored;
  for (int i = 0; i < 800 && event_of(id) == nullptr; ++i) {
    step_a(kMs);
    late.step(now_ns_);
    late.transport().poll(now_ns_, ignored);
  }
  ASSERT_NE(event_of(id), nullptr);
  EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
}

}  // namespace
}  // namespace mc::transport::testing
