// SPDX-License-Identifier: Apache-2.0
//
// Features of the rdma transport alone: queue pairs that fail, come back and are used again,
// devices that go, keys. The tests use a fabric below the table of verbs, in simulated time.
#include <algorithm>
#include <map>

#include "conformance/transport/rdma_fixture.h"
#include "sanitizer.h"

namespace mc::transport::testing {
namespace {

TEST_F(RdmaTransportTest, ABatchOfSmallReadsRingsOneDoorbellARail) {
  warm_up();
  constexpr std::size_t kCount = 32;
  Memory to(kCount * 4096);
  std::vector<Piece> pieces;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < kCount; ++i) pieces.push_back({&to[i * 4096], 4096, kNoRegion});
  for (std::size_t i = 0; i < kCount; ++i) batch.push_back(read(i * 4096, pieces[i]));
  const std::uint64_t before = fabric_.doorbells();
  const std::uint64_t requests = fabric_.requests();
  ASSERT_EQ(pair_->a().submit(batch, now_ns_), kCount);
  EXPECT_EQ(fabric_.requests() - requests, kCount);
  EXPECT_LE(fabric_.doorbells() - before, 2u);
  ASSERT_TRUE(wait_for([&] { return event_of(batch.back().id) != nullptr; }));
  EXPECT_TRUE(holds_bytes(to));
}

// A requester that learned of a window's slices only at the end would leave the line empty
// meanwhile.
TEST_F(RdmaTransportTest, EachQuarterOfAWindowIsSignalled) {
  warm_up();
  fabric_.hold(true);
  Memory to(6u << 20);
  const Piece piece{to.data(), to.size(), kNoRegion};
  const std::uint64_t doorbells = fabric_.doorbells();
  const std::uint64_t signalled = fabric_.signalled_requests();
  const OperationId id = submit(read(0, piece));
  EXPECT_LE(fabric_.doorbells() - doorbells, 2u);
  EXPECT_GE(fabric_.signalled_requests() - signalled, 4u);
  fabric_.hold(false);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_TRUE(holds_bytes(to));
}

TEST_F(RdmaTransportTest, ABatchOfSmallReadsHasFewSignals) {
  warm_up();
  constexpr std::size_t kCount = 32;
  Memory to(kCount * 64);
  std::vector<Piece> pieces;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < kCount; ++i) pieces.push_back({&to[i * 64], 64, kNoRegion});
  for (std::size_t i = 0; i < kCount; ++i) batch.push_back(read(i * 64, pieces[i]));
  const std::uint64_t signalled = fabric_.signalled_requests();
  ASSERT_EQ(pair_->a().submit(batch, now_ns_), kCount);
  EXPECT_LE(fabric_.signalled_requests() - signalled, 2u);
  for (const Operation& operation : batch) {
    EXPECT_TRUE(wait_for([&] { return event_of(operation.id) != nullptr; }));
  }
}

TEST_F(RdmaTransportTest, QueuePairsAreOpenedOnFirstUseAndClosedWhenIdle) {
  ASSERT_TRUE(wait_for([&] { return !rails().empty(); }));
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(fabric_.pairs(), 0u);
  warm_up();
  EXPECT_EQ(fabric_.pairs(), 8u);                   // two rails, small and bulk, both ends
  for (int i = 0; i < 610; ++i) step(1'000 * kMs);  // more than ten minutes
  EXPECT_TRUE(wait_for([&] { return fabric_.pairs() == 0; })) << rails();
  EXPECT_FALSE(has(Event::Kind::kPeerLost));
  warm_up();
}

TEST_F(RdmaTransportTest, WhenARailGoesSilentTheOtherCarriesOnAndTheFirstComesBack) {
  warm_up();
  Memory to(kRegionBytes);
  const Piece piece{to.data(), to.size(), kNoRegion};
  const std::uint64_t before_ns = now_ns_;
  const OperationId id = submit(read(0, piece));
  fabric_.cut(0, true);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
  EXPECT_TRUE(holds_bytes(to));
  EXPECT_LE(now_ns_ - before_ns, 500 * kMs);
  EXPECT_GT(pair_->a().counters().resent_slices, 0u);
  // The failure of the idle small lane of that rail is discovered too.
  EXPECT_TRUE(wait_for([&] { return count(rails(), ": up") == 2; }, 700)) << rails();
  ASSERT_EQ(run(read(0, piece)), Outcome::kDone);
  fabric_.cut(0, false);
  EXPECT_TRUE(wait_for([&] { return all_up(); }, 5'000)) << rails();
}

TEST_F(RdmaTransportTest, APortThatSaysItIsDownIsLeftAtOnce) {
  warm_up();
  fabric_.set_port("a0", false);
  step();
  EXPECT_EQ(count(rails(), ": up"), 2) << rails();
  fabric_.set_port("a0", true);
  EXPECT_TRUE(wait_for([&] { return all_up(); }, 5'000)) << rails();
}

TEST_F(RdmaTransportTest, WithoutARailThePeerIsLostUntilOneIsBack) {
  warm_up();
  fabric_.cut(0, true);
  fabric_.cut(1, true);
  Memory to(4096, std::byte{1});
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(0, piece)), Outcome::kPeerLost);
  EXPECT_TRUE(has(Event::Kind::kPeerLost));
  fabric_.cut(0, false);
  ASSERT_TRUE(wait_for([&] { return has(Event::Kind::kPeerBack); })) << rails();
  EXPECT_EQ(run(read(0, piece)), Outcome::kDone);
  EXPECT_TRUE(holds_bytes(to));
}

TEST_F(RdmaTransportTest, AReadPastItsDeadlineEndsAndLandsNoMore) {
  warm_up();
  Memory to(1u << 20, std::byte{0x44});
  const Piece piece{to.data(), to.size(), kNoRegion};
  fabric_.hold(true);
  Operation operation = read(0, piece);
  operation.deadline_ns = now_ns_ + 20 * kMs;
  const OperationId id = submit(operation);
  step();
  EXPECT_EQ(event_of(id), nullptr);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }, 25));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kTimedOut);
  fabric_.hold(false);
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(to, Memory(1u << 20, std::byte{0x44}));
  EXPECT_EQ(run(read(0, piece)), Outcome::kDone);
}

TEST_F(RdmaTransportTest, ACancelledReadEndsOnlyWhenTheDeviceIsDoneWithIt) {
  warm_up();
  Memory to(kRegionBytes);  // more bytes than may be under way at once
  const Piece piece{to.data(), to.size(), kNoRegion};
  fabric_.hold(true);
  const OperationId id = submit(read(0, piece));
  pair_->a().cancel(id);
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(event_of(id), nullptr);
  fabric_.hold(false);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kCancelled);
}

TEST_F(RdmaTransportTest, KeysThatThePeerDidNotGiveAreRefusedByTheDevice) {
  warm_up();
  auto described =
      RegionDescriptor::decode(rdma::kDescriptorFormat, pair_->b().describe(region_).value())
          .value();
  for (RegionKeys& device : described.devices) device.keys[0] += 1'000'000;
  remote_ = pair_->a().import_region(peer_, described.encode(rdma::kDescriptorFormat)).value();
  Memory to(4096, std::byte{7});
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(0, piece)), Outcome::kStale);
  // Rights that the region does not give, with the right keys.
  described =
      RegionDescriptor::decode(rdma::kDescriptorFormat, pair_->b().describe(region_).value())
          .value();
  described.rights = kRemoteRead | kRemoteWrite;
  remote_ = pair_->a().import_region(peer_, described.encode(rdma::kDescriptorFormat)).value();
  EXPECT_EQ(run(write(remote_, piece)), Outcome::kStale);
  EXPECT_EQ(memory_, pattern(kRegionBytes, 3));
  EXPECT_EQ(run(read(0, piece)), Outcome::kDone);
  EXPECT_TRUE(holds_bytes(to));
}

TEST_F(RdmaTransportTest, ADeviceThatGoesAndComesBackIsUsedAgainWithItsNewKeys) {
  Memory to(kRegionBytes);
  const Piece piece{to.data(), to.size(), kNoRegion};
  for (const char* name : {"b0", "a1"}) {
    warm_up();
    const FabricDevice same = fabric_.device(name);
    const OperationId id = submit(read(0, piece));
    step();
    fabric_.remove(name);
    ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; })) << rails();
    EXPECT_EQ(event_of(id)->outcome, Outcome::kDone) << name;
    EXPECT_TRUE(holds_bytes(to));
    ASSERT_TRUE(wait_for([&] { return count(rails(), ": up") == 2; })) << rails();
    fabric_.add(same);
    ASSERT_TRUE(wait_for([&] { return all_up(); }, 5'000)) << rails();
    std::ranges::fill(to, std::byte{0});
    EXPECT_EQ(run(read(0, piece)), Outcome::kDone);
    EXPECT_TRUE(holds_bytes(to));
  }
}

TEST_F(RdmaTransportTest, OutOfQueuePairsIsWaitedOut) {
  fabric_.device("b0").max_pairs = 0;
  fabric_.device("b1").max_pairs = 1;
  Memory to(1u << 20);
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(0, piece)), Outcome::kDone);
  EXPECT_NE(rails().find("the peer is out of queue pairs"), std::string::npos) << rails();
  EXPECT_EQ(count(rails(), ": up"), 1);
  fabric_.device("b0").max_pairs = fabric_.device("b1").max_pairs = 100;
  EXPECT_TRUE(wait_for([&] { return all_up(); }, 5'000)) << rails();
}

TEST_F(RdmaTransportTest, EveryOperationEndsOnceThroughAStormOfFlushes) {
  warm_up();
  constexpr std::size_t kCount = 2000;
  Memory to(kCount * 3000);
  std::vector<Piece> pieces;
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < kCount; ++i) pieces.push_back({&to[i * 3000], 3000, kNoRegion});
  for (std::size_t i = 0; i < kCount; ++i) operations.push_back(read(i * 3000, pieces[i]));
  std::span<Operation> left(operations);
  const std::size_t before = at_a_.size();
  for (int round = 0; round < 30'000 && at_a_.size() - before < kCount; ++round) {
    left = left.subspan(pair_->a().submit(left, now_ns_));
    const bool storm = round % 4 == 1;
    if (storm) fabric_.fail_with(round % 8 == 1 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
    step();
    fabric_.fail_with(IBV_WC_SUCCESS);
  }
  for (int i = 0; i < 50; ++i) step();
  ASSERT_EQ(at_a_.size() - before, kCount);
  for (const Operation& operation : operations) {
    ASSERT_EQ(std::ranges::count(at_a_, operation.id, &Event::id), 1);
    EXPECT_EQ(event_of(operation.id)->outcome, Outcome::kDone);
  }
  EXPECT_TRUE(holds_bytes(to));
  EXPECT_GT(pair_->a().counters().lanes_failed, 10u);
}

// Each round leaves completions of queue pairs that are gone, which claim success, for lanes whose
// place others have by then.
TEST_F(RdmaTransportTest, CompletionsOfAnEarlierQueuePairAreIgnored) {
  warm_up();
  fabric_.complete_late(true);
  constexpr std::size_t kBatch = 120;
  constexpr std::uint64_t kCompletions = kSanitized ? 10'000 : 100'000;
  Memory to(kBatch * 512);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kBatch; ++i) pieces.push_back({&to[i * 512], 512, kNoRegion});
  for (int round = 0; fabric_.late_completions() < kCompletions; ++round) {
    ASSERT_LT(round, 20'000);
    ASSERT_TRUE(wait_for([&] { return all_up(); })) << rails();
    at_a_.clear();
    fabric_.hold(true);
    std::vector<Operation> batch;
    for (const Piece& piece : pieces) {
      batch.push_back(read(0, piece));
      batch.back().deadline_ns = now_ns_ + kMs;
    }
    ASSERT_EQ(pair_->a().submit(batch, now_ns_), kBatch);
    ASSERT_TRUE(wait_for([&] { return at_a_.size() == kBatch; })) << round;
    for (const Event& event : at_a_) ASSERT_EQ(event.outcome, Outcome::kTimedOut);
    fabric_.hold(false);
  }
  fabric_.complete_late(false);
  ASSERT_TRUE(wait_for([&] { return all_up(); }));
  std::ranges::fill(to, std::byte{0});
  const Piece all{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(0, all)), Outcome::kDone);
  EXPECT_TRUE(holds_bytes(to));
}

TEST_F(RdmaTransportTest, WritesWhoseQueuePairFailsArriveOverAnother) {
  warm_up();
  Memory target(3u << 20, std::byte{0});
  const RegionId region = register_at(pair_->b(), target.data(), target.size(), kRemoteWrite);
  const RemoteRegionId remote = import(region);
  const Memory source = pattern(target.size(), 9);
  Memory own = source;
  const Piece piece{own.data(), own.size(), kNoRegion};
  fabric_.hold(true);
  const OperationId id = submit(write(remote, piece));
  step();
  fabric_.hold(false);
  fabric_.cut(1, true);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; })) << rails();
  EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
  EXPECT_EQ(target, source);
  EXPECT_GT(pair_->a().counters().resent_slices, 0u);
}

TEST_F(RdmaTransportTest, ABrokenLinkIsMadeAgainAndOperationsGoOn) {
  warm_up();
  Memory target(1u << 20, std::byte{0});
  const RemoteRegionId remote =
      import(register_at(pair_->b(), target.data(), target.size(), kRemoteWrite));
  Memory to(kRegionBytes);
  const Piece piece{to.data(), to.size(), kNoRegion};
  Memory own = pattern(target.size(), 4);
  const Piece from{own.data(), own.size(), kNoRegion};
  fabric_.hold(true);
  const OperationId reads = submit(read(0, piece));
  const OperationId writes = submit(write(remote, from));
  step();
  pair_->break_link();
  step();
  fabric_.hold(false);
  ASSERT_TRUE(wait_for([&] { return event_of(reads) && event_of(writes); })) << rails();
  EXPECT_EQ(event_of(reads)->outcome, Outcome::kDone);
  EXPECT_EQ(event_of(writes)->outcome, Outcome::kDone);
  EXPECT_TRUE(holds_bytes(to));
  EXPECT_EQ(target, own);
  EXPECT_FALSE(has(Event::Kind::kPeerLost));
  EXPECT_EQ(fabric_.pairs(), 8u) << "the serving side keeps what no link holds";
}

TEST_F(RdmaTransportTest, APeerThatWasStartedAgainIsFoundAgain) {
  warm_up();
  pair_->kill_b();
  ASSERT_TRUE(wait_for([&] { return has(Event::Kind::kPeerLost); }));
  options_b_.incarnation = 2;
  pair_->start_b(options_b_);
  ASSERT_TRUE(wait_for([&] { return has(Event::Kind::kPeerBack); })) << rails();
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(0, piece)), Outcome::kStale) << "a region of the earlier incarnation";
  remote_ = import(register_at(pair_->b(), memory_.data(), memory_.size(), kRemoteRead));
  EXPECT_EQ(run(read(0, piece)), Outcome::kDone);
}

TEST_F(RdmaTransportTest, ANotificationWhoseQueuePairFailsArrivesAtMostOnce) {
  warm_up();
  Memory text = pattern(100, 1);
  const Piece piece{text.data(), text.size(), kNoRegion};
  Operation notify = read(0, piece);
  notify.verb = Verb::kNotify;
  fabric_.hold(true);
  const OperationId id = submit(notify);
  fabric_.hold(false);
  fabric_.cut(0, true);
  fabric_.cut(1, true);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kPeerLost);
  fabric_.cut(0, false);
  fabric_.cut(1, false);
  ASSERT_TRUE(wait_for([&] { return all_up(); }));
  EXPECT_TRUE(notified_.empty());
  EXPECT_EQ(run(notify), Outcome::kDone);
  ASSERT_TRUE(wait_for([&] { return !notified_.empty(); }));
  EXPECT_EQ(notified_, std::vector<Memory>{text});
}

TEST_F(RdmaTransportTest, ManyNotificationsArriveInTheirOrder) {
  warm_up();
  std::vector<Memory> texts;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < 1000; ++i) texts.push_back(pattern(1 + i % 4096, i));
  for (Memory& text : texts) pieces.push_back({text.data(), text.size(), kNoRegion});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Operation notify = read(0, pieces[i]);
    notify.verb = Verb::kNotify;
    ASSERT_EQ(run(notify), Outcome::kDone) << i;
  }
  ASSERT_TRUE(wait_for([&] { return notified_.size() == texts.size(); }));
  EXPECT_EQ(notified_, texts);
}

TEST_F(RdmaTransportTest, PiecesMustLieInRegions) {
  warm_up();
  std::vector<std::byte> elsewhere(64);
  const Piece nowhere{elsewhere.data(), elsewhere.size(), kNoRegion};
  EXPECT_EQ(run(read(0, nowhere)), Outcome::kInvalid);
  const RegionId id = register_at(pair_->a(), elsewhere.data(), elsewhere.size(), 0);
  EXPECT_EQ(run(read(0, nowhere)), Outcome::kDone);
  const Piece named{elsewhere.data(), elsewhere.size(), id};
  EXPECT_EQ(run(read(0, named)), Outcome::kDone);
  EXPECT_TRUE(wait_for([&] { return pair_->a().close_region(id); }));
  EXPECT_EQ(run(read(0, named)), Outcome::kInvalid);
}

TEST_F(RdmaTransportTest, TheNearDeviceCarriesReadsWhileItHasRoom) {
  // Sets the bit of the device a1.
  options_a_.near = [](const std::byte*, std::span<const std::string> devices) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (devices[i] == "a1") bits |= 1ull << i;
    }
    return bits;
  };
  pair_.reset();
  start();
  warm_up();
  Memory to(60'000);
  const Piece piece{to.data(), to.size(), kNoRegion};
  for (int i = 0; i < 20; ++i) ASSERT_EQ(run(read(0, piece)), Outcome::kDone);
  std::map<std::string, std::uint64_t> carried;
  const auto look = [&] {
    std::vector<RailReport> reports;
    pair_->a().report_rails(reports);
    for (const RailReport& report : reports) carried[report.name] = report.status.done_bytes;
  };
  look();
  EXPECT_EQ(carried["a0 0 bulk"], 0u);
  EXPECT_EQ(carried["a1 1 bulk"], 20u * 60'000);
  // More operations than the device has room for.
  Memory much(kRegionBytes);
  const Piece pieces{much.data(), much.size(), kNoRegion};
  ASSERT_EQ(run(read(0, pieces)), Outcome::kDone);
  look();
  EXPECT_GT(carried["a0 0 bulk"], 0u);
}

}  // namespace
}  // namespace mc::transport::testing
