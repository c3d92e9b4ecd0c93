// SPDX-License-Identifier: Apache-2.0
//
// The contract of transport/transport.h, for every implementation.
#include <algorithm>
#include <cstring>
#include <set>

#include "conformance/transport/transport_fixture.h"

namespace mc::transport::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Kinds, TransportTest, ::testing::ValuesIn(world_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(TransportTest, ReadBringsTheBytesOfTheRangeAndTouchesNothingBesideThem) {
  constexpr std::size_t kBand = 64;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{4096}, std::size_t{32 * 1024}, std::size_t{32 * 1024 + 1},
        std::size_t{kMinSliceBytes - 1}, std::size_t{kMaxSliceBytes},
        std::size_t{kMaxSliceBytes + 1}, std::size_t{5'000'001}, std::size_t{kRegionBytes}}) {
    for (const std::size_t offset : {std::size_t{0}, (kRegionBytes - size) / 2,
                                     static_cast<std::size_t>(kRegionBytes - size)}) {
      Memory to(size + 2 * kBand, std::byte{0x5a});
      const Piece piece{to.data() + kBand, size, kNoRegion};
      const Event event = run(read(offset, {&piece, 1}));
      ASSERT_EQ(event.outcome, Outcome::kDone) << size << " at " << offset;
      EXPECT_EQ(event.bytes, size);
      EXPECT_EQ(std::memcmp(to.data() + kBand, memory_.data() + offset, size), 0) << size;
      EXPECT_TRUE(std::all_of(to.begin(), to.begin() + kBand,
                              [](std::byte byte) { return byte == std::byte{0x5a}; }));
      EXPECT_TRUE(std::all_of(to.end() - kBand, to.end(),
                              [](std::byte byte) { return byte == std::byte{0x5a}; }));
    }
  }
}

TEST_P(TransportTest, ReadScattersOverAsManyPiecesAsAllowed) {
  for (const std::size_t piece_bytes : {std::size_t{3}, std::size_t{1021}, std::size_t{5000}}) {
    Memory to(piece_bytes * kMaxPieces);
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < kMaxPieces; ++i) {
      // From the back to the front, so that a contiguous copy would not do.
      pieces.push_back({to.data() + (kMaxPieces - 1 - i) * piece_bytes, piece_bytes, kNoRegion});
    }
    ASSERT_EQ(run(read(77, pieces)).outcome, Outcome::kDone);
    for (std::size_t i = 0; i < kMaxPieces; ++i) {
      ASSERT_EQ(std::memcmp(pieces[i].data, memory_.data() + 77 + i * piece_bytes, piece_bytes), 0)
          << "piece " << i << " of " << piece_bytes;
    }
  }
}

TEST_P(TransportTest, AnOperationBeyondALimitIsInvalid) {
  Memory to(4096);
  const Piece good{to.data(), 4096, kNoRegion};
  std::vector<Operation> bad(7, read(0, {&good, 1}));
  bad[0].pieces = {};
  const std::vector<Piece> too_many(kMaxPieces + 1, Piece{to.data(), 1, kNoRegion});
  bad[1].pieces = too_many;
  const Piece empty{to.data(), 0, kNoRegion};
  bad[2].pieces = {&empty, 1};
  const Piece nowhere{nullptr, 1, kNoRegion};
  bad[3].pieces = {&nowhere, 1};
  bad[4].peer = peer_ + 1;
  bad[5].offset_bytes = kRegionBytes - 4095;
  bad[6].offset_bytes = ~std::uint64_t{0} - 100;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(run(bad[i]).outcome, Outcome::kInvalid) << i;
  }
  EXPECT_EQ(run(read(kRegionBytes - 4096, {&good, 1})).outcome, Outcome::kDone);
}

TEST_P(TransportTest, AnotherGenerationIsStaleAndNothingLandsAfterThat) {
  if (!world_->a().capabilities().checks_generation) {
    GTEST_SKIP() << "the serving side takes no part in reads: its guard is not asked";
  }
  for (const std::size_t size : {std::size_t{4096}, std::size_t{3u << 20}}) {
    Memory to(size, std::byte{0x11});
    const Piece piece{to.data(), size, kNoRegion};
    Operation operation = read(0, {&piece, 1});
    operation.generation = 2;
    EXPECT_EQ(run(operation).outcome, Outcome::kStale);
    std::ranges::fill(to, std::byte{0x22});
    for (int i = 0; i < 50; ++i) step();
    EXPECT_TRUE(std::ranges::all_of(to, [](std::byte byte) { return byte == std::byte{0x22}; }));
  }
  EXPECT_EQ(guard_.pins, 0u);
}

TEST_P(TransportTest, RefusalsAmongReadsOfABatchLeaveTheOthersRight) {
  if (!world_->a().capabilities().checks_generation) {
    GTEST_SKIP() << "the serving side takes no part in reads: its guard is not asked";
  }
  constexpr std::size_t kCount = 32;
  constexpr std::size_t kBytes = 4096;
  Memory to(kCount * kBytes);
  std::vector<Piece> pieces;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < kCount; ++i) pieces.push_back({&to[i * kBytes], kBytes, kNoRegion});
  for (std::size_t i = 0; i < kCount; ++i) {
    batch.push_back(read(i * 10'000, {&pieces[i], 1}));
    batch.back().cookie = i;
    if (i % 7 == 3) batch.back().generation = 9;
  }
  ASSERT_EQ(world_->a().submit(batch, world_->now_ns()), kCount);
  ASSERT_TRUE(wait_for([&] { return completed() == kCount; }));
  for (std::size_t i = 0; i < kCount; ++i) {
    const Event* event = event_of(batch[i].id);
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(event->cookie, i);
    ASSERT_EQ(event->outcome, i % 7 == 3 ? Outcome::kStale : Outcome::kDone) << i;
    if (event->outcome == Outcome::kDone) {
      EXPECT_EQ(std::memcmp(pieces[i].data, &memory_[i * 10'000], kBytes), 0) << i;
    }
  }
}

TEST_P(TransportTest, BytesAreHeldWhileTheyLeaveAndAllAreGivenBack) {
  if (!world_->a().capabilities().checks_generation) {
    GTEST_SKIP() << "the serving side takes no part in reads: its guard is not asked";
  }
  Memory to(kRegionBytes);
  const Piece piece{to.data(), to.size(), kNoRegion};
  ASSERT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kDone);
  EXPECT_GT(guard_.pins, 0u);
  EXPECT_TRUE(wait_for([&] { return guard_.held.empty(); }));
}

TEST_P(TransportTest, TheGuardMayBeBusy) {
  if (!world_->a().capabilities().checks_generation) {
    GTEST_SKIP() << "the serving side takes no part in reads: its guard is not asked";
  }
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  guard_.answer = Outcome::kBusy;
  EXPECT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kBusy);
  guard_.answer = Outcome::kDone;
  EXPECT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kDone);
}

TEST_P(TransportTest, RegionsGiveNoMoreThanTheirRights) {
  Memory bytes = pattern(4096, 2);
  const Memory as_it_was = bytes;
  Memory own(4096, std::byte{0x77});
  const Piece piece{own.data(), own.size(), kNoRegion};
  remote_ = share(bytes, 0);
  EXPECT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kRefused);
  if (world_->a().capabilities().write) {
    remote_ = share(bytes, kRemoteRead);
    Operation write = read(0, {&piece, 1});
    write.verb = Verb::kWrite;
    EXPECT_EQ(run(write).outcome, Outcome::kRefused);
    remote_ = share(bytes, kRemoteWrite);
    EXPECT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kRefused);
  }
  EXPECT_EQ(bytes, as_it_was);
  EXPECT_EQ(own, Memory(4096, std::byte{0x77}));
}

TEST_P(TransportTest, ClosedRegionsAreStale) {
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  ASSERT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kDone);
  ASSERT_TRUE(wait_for([&] { return guard_.held.empty(); }));
  EXPECT_TRUE(wait_for([&] { return world_->b().close_region(region_); }));
  EXPECT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kStale);
  EXPECT_FALSE(world_->b().describe(region_));
}

TEST_P(TransportTest, InvalidDescriptionsAreRefused) {
  auto text = world_->b().describe(region_).value();
  const auto import = [&](std::span<const std::byte> bytes) {
    return world_->a().import_region(peer_, bytes).has_value();
  };
  EXPECT_TRUE(import(text));
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(import(std::span(text).first(size))) << size;
  }
  text.push_back(std::byte{0});
  EXPECT_FALSE(import(text));
  EXPECT_FALSE(import(Memory(text.size() - 1)));
}

TEST_P(TransportTest, WriteLandsInItsRangeAndNowhereElse) {
  if (!world_->a().capabilities().write) GTEST_SKIP() << "the transport does not write";
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{3'000'001}}) {
    Memory target(4u << 20, std::byte{0x33});
    remote_ = share(target, kRemoteWrite);
    const Memory source = pattern(size, size);
    Memory own = source;
    const Piece pieces[2] = {{own.data(), (size + 1) / 2, kNoRegion},
                             {own.data() + (size + 1) / 2, size - (size + 1) / 2, kNoRegion}};
    Operation write = read(1001, std::span(pieces).first(size == 1 ? 1 : 2));
    write.verb = Verb::kWrite;
    ASSERT_EQ(run(write).outcome, Outcome::kDone);
    EXPECT_EQ(std::memcmp(target.data() + 1001, source.data(), size), 0);
    EXPECT_EQ(target[1000], std::byte{0x33});
    EXPECT_EQ(target[1001 + size], std::byte{0x33});
    EXPECT_TRUE(wait_for([&] { return world_->b().close_region(region_); }));
  }
}

TEST_P(TransportTest, AWriteIsDoneOnceItsGuardHasSettledAllOfIt) {
  const Capabilities& can = world_->a().capabilities();
  if (!can.write || !can.checks_generation) {
    GTEST_SKIP() << "the serving side takes no part in writes: its guard is not asked";
  }
  Memory target(4u << 20);
  remote_ = share(target, kRemoteWrite, &guard_);
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{3'000'001}}) {
    Memory own = pattern(size, size);
    const Piece piece{own.data(), size, kNoRegion};
    Operation write = read(0, {&piece, 1});
    write.verb = Verb::kWrite;
    guard_.settled_bytes = 0;
    ASSERT_EQ(run(write).outcome, Outcome::kDone);
    EXPECT_EQ(guard_.settled_bytes, size);
    guard_.settling = Outcome::kUnsupported;
    EXPECT_EQ(run(write).outcome, Outcome::kUnsupported);
    guard_.settling = Outcome::kDone;
  }
  EXPECT_TRUE(wait_for([&] { return world_->b().close_region(region_); }));
}

TEST_P(TransportTest, NotificationArrivesOnceWithItsSender) {
  const std::size_t most_bytes = world_->a().capabilities().max_notification_bytes;
  for (const std::size_t size : {std::size_t{1}, most_bytes}) {
    notified_.clear();
    Memory text = pattern(size, size);
    const Piece piece{text.data(), size, kNoRegion};
    Operation notify = read(0, {&piece, 1});
    notify.verb = Verb::kNotify;
    ASSERT_EQ(run(notify).outcome, Outcome::kDone);
    ASSERT_TRUE(wait_for([&] { return !notified_.empty(); }));
    for (int i = 0; i < 20; ++i) step();
    ASSERT_EQ(notified_.size(), 1u);
    EXPECT_EQ(notified_[0], text);
    EXPECT_EQ(at_b_.back().from, kNodeA);
  }
  Memory text(most_bytes + 1);
  const Piece piece{text.data(), text.size(), kNoRegion};
  Operation notify = read(0, {&piece, 1});
  notify.verb = Verb::kNotify;
  EXPECT_EQ(run(notify).outcome, Outcome::kInvalid);
}

TEST_P(TransportTest, NotificationsOfManySizesArriveWholeAndOnce) {
  const std::size_t most_bytes = world_->a().capabilities().max_notification_bytes;
  std::vector<Memory> texts;
  for (std::size_t i = 0; i < 96; ++i) texts.push_back(pattern(1 + (i * 7919) % most_bytes, i));
  std::size_t submitted = 0;
  while (submitted < texts.size()) {
    std::vector<OperationId> open;
    for (std::size_t i = 0; i < 32; ++i, ++submitted) {
      const Piece piece{texts[submitted].data(), texts[submitted].size(), kNoRegion};
      Operation notify = read(0, {&piece, 1});
      notify.verb = Verb::kNotify;
      open.push_back(submit(notify));
    }
    ASSERT_TRUE(wait_for([&] {
      return std::ranges::all_of(open, [&](OperationId id) { return event_of(id) != nullptr; });
    }));
    for (const OperationId id : open) EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
  }
  ASSERT_TRUE(wait_for([&] { return notified_.size() == texts.size(); }));
  std::ranges::sort(notified_);  // one may overtake another
  std::ranges::sort(texts);
  EXPECT_TRUE(notified_ == texts);
}

TEST_P(TransportTest, EveryOperationTakenEndsExactlyOnceAndRightly) {
  constexpr std::size_t kCount = 3000;
  struct Wanted {
    std::uint64_t offset;
    std::size_t at;
    std::size_t size;
  };
  std::vector<Wanted> wanted;
  std::vector<Operation> operations;
  std::uint64_t state = 5;
  const auto draw = [&state](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t size = 1 + draw(i % 100 == 0 ? 300'000 : 6000);
    wanted.push_back({draw(kRegionBytes - size), bytes, size});
    bytes += size;
  }
  Memory to(bytes);
  std::vector<Piece> pieces;
  for (const Wanted& each : wanted) pieces.push_back({&to[each.at], each.size, kNoRegion});
  for (std::size_t i = 0; i < kCount; ++i) {
    operations.push_back(read(wanted[i].offset, {&pieces[i], 1}));
    operations.back().cookie = i;
  }
  std::span<Operation> left(operations);
  ASSERT_TRUE(wait_for([&] {
    left = left.subspan(world_->a().submit(left, world_->now_ns()));
    return completed() >= kCount;
  }));
  for (int i = 0; i < 20; ++i) step();
  ASSERT_EQ(completed(), kCount);
  std::set<std::uint64_t> cookies;
  for (const Event& event : at_a_) {
    EXPECT_EQ(event.outcome, Outcome::kDone);
    EXPECT_TRUE(cookies.insert(event.cookie).second) << "twice: " << event.cookie;
    const Wanted& each = wanted[event.cookie];
    ASSERT_EQ(std::memcmp(&to[each.at], &memory_[each.offset], each.size), 0) << event.cookie;
  }
}

TEST_P(TransportTest, SubmitTakesNoMoreThanItsLimit) {
  Memory to(64);
  const Piece piece{to.data(), to.size(), kNoRegion};
  std::vector<Operation> operations(kMaxOperations + 1, read(0, {&piece, 1}));
  const std::size_t taken = world_->a().submit(operations, world_->now_ns());
  EXPECT_LT(taken, operations.size());
  EXPECT_GT(taken, 0u);
  ASSERT_TRUE(wait_for([&] { return completed() == taken; }));
  EXPECT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kDone);
}

TEST_P(TransportTest, AfterACancelNothingLandsAnyMore) {
  Memory to(kRegionBytes, std::byte{0});
  const Piece piece{to.data(), to.size(), kNoRegion};
  for (int steps = 0; steps < 24; ++steps) {
    const OperationId id = submit(read(0, {&piece, 1}));
    for (int i = 0; i < steps && event_of(id) == nullptr; ++i) step();
    world_->a().cancel(id);
    ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    const Event event = *event_of(id);
    EXPECT_TRUE(event.outcome == Outcome::kCancelled || event.outcome == Outcome::kDone);
    std::ranges::fill(to, std::byte{0xee});
    Memory other(100'000);
    const Piece elsewhere{other.data(), other.size(), kNoRegion};
    ASSERT_EQ(run(read(5, {&elsewhere, 1})).outcome, Outcome::kDone);
    EXPECT_EQ(std::memcmp(other.data(), &memory_[5], other.size()), 0);
    EXPECT_TRUE(std::ranges::all_of(to, [](std::byte byte) { return byte == std::byte{0xee}; }))
        << "after " << steps << " steps";
    world_->a().cancel(id);  // the id of an ended operation
  }
}

TEST_P(TransportTest, AnOperationPastItsDeadlineTimesOut) {
  Memory to(1u << 20, std::byte{0x44});
  const Piece piece{to.data(), to.size(), kNoRegion};
  Operation operation = read(0, {&piece, 1});
  operation.deadline_ns = world_->now_ns();
  EXPECT_EQ(run(operation).outcome, Outcome::kTimedOut);
  EXPECT_EQ(to, Memory(1u << 20, std::byte{0x44}));
}

TEST_P(TransportTest, OperationsToADeadPeerEndAsLost) {
  if (!world_->why_immortal().empty()) GTEST_SKIP() << world_->why_immortal();
  Memory to(kRegionBytes);
  const Piece piece{to.data(), to.size(), kNoRegion};
  const Piece small{to.data(), 100, kNoRegion};
  ASSERT_EQ(run(read(0, {&small, 1})).outcome, Outcome::kDone);
  const OperationId large = submit(read(0, {&piece, 1}));
  const OperationId little = submit(read(0, {&small, 1}));
  world_->kill_b();
  ASSERT_TRUE(wait_for([&] { return event_of(large) && event_of(little); }));
  EXPECT_EQ(event_of(large)->outcome, Outcome::kPeerLost);
  // A real device may have served the read before the peer was gone.
  EXPECT_TRUE(event_of(little)->outcome == Outcome::kPeerLost ||
              event_of(little)->outcome == Outcome::kDone);
  EXPECT_TRUE(std::ranges::any_of(
      at_a_, [](const Event& event) { return event.kind == Event::Kind::kPeerLost; }));
  EXPECT_EQ(run(read(0, {&small, 1})).outcome, Outcome::kPeerLost);
}

TEST_P(TransportTest, ClosingAPeerCancelsItsOperations) {
  Memory to(kRegionBytes);
  const Piece piece{to.data(), to.size(), kNoRegion};
  const OperationId id = submit(read(0, {&piece, 1}));
  step();
  if (event_of(id) != nullptr) GTEST_FAIL() << "8 MiB in one step";
  world_->a().close_peer(peer_);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kCancelled);
  EXPECT_EQ(run(read(0, {&piece, 1})).outcome, Outcome::kInvalid);
}

}  // namespace
}  // namespace mc::transport::testing
