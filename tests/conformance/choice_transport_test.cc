// SPDX-License-Identifier: Apache-2.0
//
// Which of two ways a read takes: what is small, stale, cut or not registered, by which way it
// comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "conformance/choice_node.h"
#include "conformance/transport_fixture.h"

namespace mc::transport::testing {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kRegionBytes = 8u << 20;
constexpr std::uint64_t kLargeBytes = 1u << 20;

class ChoiceTransportTest : public ::testing::Test {
 protected:
  ChoiceTransportTest() {
    for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) {
      fabric_.add({.name = "a" + std::to_string(subnet), .subnet = subnet, .host = 1});
      fabric_.add({.name = "b" + std::to_string(subnet), .subnet = subnet, .host = 2});
    }
  }
  void start() {
    a_ = std::make_unique<ChoiceNode>(book_, kNodeA, std::vector<std::string>{"a0", "a1"});
    b_ = std::make_unique<ChoiceNode>(book_, kNodeB, std::vector<std::string>{"b0", "b1"});
    RegionSpec arena;
    arena.data = memory_arena().data();
    arena.size_bytes = memory_arena().size();
    static_cast<void>(a().register_region(arena).value());
    share(b(), false);
  }
  void share(Transport& at, bool sparse) {
    RegionSpec spec;
    spec.data = memory_.data();
    spec.size_bytes = memory_.size();
    spec.rights = kRemoteRead;
    spec.guard = &guard_;
    spec.sparse = sparse;
    region_ = at.register_region(spec).value();
    if (peer_ == kNoPeer) peer_ = a().connect({kNodeB, 1}).value();
    remote_ = a().import_region(peer_, at.describe(region_).value()).value();
  }
  choice::ChoiceTransport& a() { return a_->transport(); }
  choice::ChoiceTransport& b() { return b_->transport(); }
  void step() {
    const std::uint64_t now = mc::now_ns();
    a_->step(now, at_a_);
    if (b_) b_->step(now, at_b_);
    if (only_tcp_) {
      only_tcp_->step(now);
      only_tcp_->transport().poll(now, at_b_);
    }
  }
  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = mc::now_ns() + 20 * kSecondNs;
    while (!holds()) {
      if (mc::now_ns() > until_ns) return false;
      step();
    }
    return true;
  }
  OperationId submit(std::uint64_t offset, std::uint64_t bytes) {
    to_.assign(bytes, std::byte{0xee});
    piece_ = {to_.data(), to_.size(), kNoRegion};
    Operation operation;
    operation.peer = peer_;
    operation.region = remote_;
    operation.generation = 1;
    operation.offset_bytes = offset;
    operation.cookie = 77;
    operation.pieces = {&piece_, 1};
    operation.deadline_ns = mc::now_ns() + 10 * kSecondNs;
    EXPECT_EQ(a().submit({&operation, 1}, mc::now_ns()), 1u);
    return operation.id;
  }
  const Event* event_of(OperationId id) const {
    const auto at = std::ranges::find_if(at_a_, [&](const Event& event) {
      return event.kind == Event::Kind::kCompleted && event.id == id;
    });
    return at == at_a_.end() ? nullptr : &*at;
  }
  Outcome read(std::uint64_t offset, std::uint64_t bytes) {
    at_a_.clear();
    const OperationId id = submit(offset, bytes);
    EXPECT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    const Event* event = event_of(id);
    if (event == nullptr) return Outcome::kBusy;
    EXPECT_EQ(event->cookie, 77u);
    EXPECT_EQ(event->peer, peer_);
    if (event->outcome == Outcome::kDone) {
      EXPECT_EQ(event->bytes, bytes);
      EXPECT_TRUE(std::equal(to_.begin(), to_.end(),
                             memory_.begin() + static_cast<std::ptrdiff_t>(offset)));
    }
    return event->outcome;
  }
  std::uint64_t by_rdma() { return a().choices().reads; }
  // Reads until one goes by RDMA.
  bool takes_rdma() {
    const std::uint64_t before = by_rdma();
    return wait_for([&] { return read(0, kLargeBytes) == Outcome::kDone && by_rdma() > before; });
  }

  VerbsFabric fabric_;
  Memory memory_ = pattern(kRegionBytes, 9);
  CountingGuard guard_;
  PortBook book_;
  std::unique_ptr<ChoiceNode> a_;
  std::unique_ptr<ChoiceNode> b_;
  std::unique_ptr<TcpNode> only_tcp_;
  PeerId peer_ = kNoPeer;
  RegionId region_ = kNoRegion;
  RemoteRegionId remote_ = 0;
  Memory to_;
  Piece piece_;
  std::vector<Event> at_a_;
  std::vector<Event> at_b_;
};

TEST_F(ChoiceTransportTest, ReadsGoByTcpUntilTheWayByRdmaIsOpenAndLargeOnesByThatFromThenOn) {
  start();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(by_rdma(), 0u) << "nothing waits for queue pairs";
  ASSERT_TRUE(takes_rdma());
  const std::uint64_t before = by_rdma();
  const std::uint64_t served = b().counters().served_bytes;
  EXPECT_EQ(read(4096, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(by_rdma(), before + 1);
  EXPECT_EQ(b().counters().served_bytes, served + 1) << "the byte that is asked for beside it";
  EXPECT_EQ(read(0, choice::kRdmaBytes - 1), Outcome::kDone);
  EXPECT_EQ(by_rdma(), before + 1);
  EXPECT_EQ(read(0, choice::kRdmaBytes), Outcome::kDone);
  EXPECT_EQ(by_rdma(), before + 2);
  EXPECT_EQ(a().choices().detours, 0u);
}

TEST_F(ChoiceTransportTest, APeerThatDoesNotSayThatItHasRdmaIsReadByTcp) {
  a_ = std::make_unique<ChoiceNode>(book_, kNodeA, std::vector<std::string>{"a0"});
  tcp::TcpOptions options;
  options.node = kNodeB;
  options.incarnation = 1;
  only_tcp_ = std::make_unique<TcpNode>(book_, options);
  share(only_tcp_->transport(), false);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(by_rdma(), 0u);
  std::vector<RailReport> rails;
  a().report_rails(rails);
  EXPECT_TRUE(std::ranges::none_of(
      rails, [](const RailReport& rail) { return rail.name.starts_with("a0"); }));
}

TEST_F(ChoiceTransportTest, BytesOfAnotherGenerationAreStaleThoughRdmaBringsThem) {
  start();
  ASSERT_TRUE(takes_rdma());
  guard_.generation = 2;
  const std::uint64_t before = by_rdma();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kStale);
  EXPECT_EQ(by_rdma(), before + 1);
  EXPECT_EQ(a().choices().detours, 0u);
  EXPECT_TRUE(guard_.held.empty());
}

TEST_F(ChoiceTransportTest, AReadWhoseRailsAllFailIsRepeatedByTcpAndRdmaIsTakenBackLater) {
  start();
  ASSERT_TRUE(takes_rdma());
  at_a_.clear();
  const OperationId id = submit(0, kRegionBytes);
  for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) fabric_.cut(subnet, true);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
  EXPECT_TRUE(std::ranges::equal(to_, memory_));
  EXPECT_EQ(a().choices().detours, 1u);
  EXPECT_TRUE(std::ranges::none_of(at_a_, [](const Event& event) {
    return event.kind == Event::Kind::kPeerLost;
  })) << "it is not lost";
  const std::uint64_t before = by_rdma();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(by_rdma(), before);
  for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) fabric_.cut(subnet, false);
  EXPECT_TRUE(takes_rdma());
}

TEST_F(ChoiceTransportTest, KeysThatNoLongerHoldCostOneRepetition) {
  start();
  ASSERT_TRUE(takes_rdma());
  // The same name stands for other memory now, as after a change that nobody has told yet.
  fabric_.fail_with(IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(a().choices().detours, 1u);
  fabric_.fail_with(IBV_WC_SUCCESS);
  EXPECT_TRUE(takes_rdma());
}

TEST_F(ChoiceTransportTest, OfASparseRegionRdmaReadsWhatHasMemory) {
  start();
  ASSERT_TRUE(b().close_region(region_));
  const std::size_t before = fabric_.registrations();
  share(b(), true);
  EXPECT_EQ(fabric_.registrations(), before) << "it has no memory yet";
  const MemoryRange half[] = {{0, kRegionBytes / 2}};
  b().set_backed(region_, half);
  EXPECT_EQ(fabric_.registrations(), before + 2) << "with each of two devices";
  ASSERT_TRUE(takes_rdma());
  const std::uint64_t reads = by_rdma();
  EXPECT_EQ(read(kRegionBytes / 2 - 4096, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(by_rdma(), reads) << "it lies, in part, where nothing is registered";
  EXPECT_EQ(a().choices().detours, 0u);

  const MemoryRange all[] = {{0, kRegionBytes}};
  b().set_backed(region_, all);
  EXPECT_EQ(fabric_.registrations(), before + 4) << "the former keys hold until the next change";
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(by_rdma(), reads + 1);
  EXPECT_EQ(a().choices().detours, 0u);
  ASSERT_TRUE(wait_for([&] {
    return read(kRegionBytes - kLargeBytes, kLargeBytes) == Outcome::kDone && by_rdma() > reads + 1;
  })) << "what is new is asked for within a second";

  b().set_backed(region_, half);
  EXPECT_EQ(fabric_.registrations(), before + 2) << "what has lost memory goes at once";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(kRegionBytes / 2, kLargeBytes), Outcome::kDone);
  ASSERT_TRUE(takes_rdma());
  EXPECT_TRUE(b().close_region(region_));
  EXPECT_EQ(fabric_.registrations(), before);
}

TEST_F(ChoiceTransportTest, APoolThatCannotBeRegisteredIsReadByTcpAndTheCauseIsTold) {
  start();
  ASSERT_TRUE(b().close_region(region_));
  share(b(), true);
  fabric_.device("b1").lockable_bytes = 0;
  const MemoryRange all[] = {{0, kRegionBytes}};
  b().set_backed(region_, all);
  EXPECT_NE(b().obstacles().find("LimitMEMLOCK"), std::string::npos) << b().obstacles();
  const std::uint64_t reads = by_rdma();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(by_rdma(), reads);
}

TEST_F(ChoiceTransportTest, ClosingThePeerEndsWhatIsUnderWay) {
  start();
  ASSERT_TRUE(takes_rdma());
  at_a_.clear();
  fabric_.hold(true);
  const OperationId id = submit(0, kRegionBytes);
  a().close_peer(peer_);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kCancelled);
  fabric_.hold(false);
  to_.assign(to_.size(), std::byte{0x11});
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(to_, Memory(kRegionBytes, std::byte{0x11})) << "landed late";
}

TEST_F(ChoiceTransportTest, ACancelledReadEndsOnceWhicheverWayItWent) {
  start();
  ASSERT_TRUE(takes_rdma());
  at_a_.clear();
  fabric_.hold(true);
  const OperationId id = submit(0, kLargeBytes);
  a().cancel(id);
  fabric_.hold(false);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(std::ranges::count(at_a_, id, &Event::id), 1);
  EXPECT_TRUE(takes_rdma());
}

}  // namespace
}  // namespace mc::transport::testing
