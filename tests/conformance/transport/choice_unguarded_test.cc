// SPDX-License-Identifier: Apache-2.0
//
// Memory without a guard, as that of transfer engines: the direct transport writes it, and carries operations of
// every size that the caller wants.
#include "conformance/transport/choice_fixture.h"

namespace mc::transport::testing {
namespace {

class ChoiceUnguardedTest : public ChoiceRdmaTest {
 protected:
  ChoiceUnguardedTest() {
    direct_bytes_ = 1;
    guarded_ = false;
    rights_ = kRemoteRead | kRemoteWrite;
  }
  void start() {
    start_both();
    ASSERT_TRUE(takes_one_sided());
  }
  OperationId submit_write(const Piece& piece) {
    Operation operation;
    operation.verb = Verb::kWrite;
    operation.peer = peer_;
    operation.region = remote_;
    operation.pieces = {&piece, 1};
    operation.deadline_ns = mc::now_ns() + kWatchdogNs;
    EXPECT_EQ(a().submit({&operation, 1}, mc::now_ns()), 1u);
    return operation.id;
  }
  Outcome write(const Piece& piece) {
    at_a_.clear();
    const OperationId id = submit_write(piece);
    EXPECT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    return event_of(id) == nullptr ? Outcome::kBusy : event_of(id)->outcome;
  }
};

TEST_F(ChoiceUnguardedTest, ReadsOfEverySizeGoDirectlyWithoutAProbe) {
  start();
  const std::uint64_t before = one_sided();
  const std::uint64_t served = b().counters().served_bytes;
  std::uint64_t count = 0;
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4096}, kLargeBytes}) {
    EXPECT_EQ(read(512, bytes), Outcome::kDone);
    EXPECT_EQ(one_sided(), before + ++count);
  }
  EXPECT_EQ(b().counters().served_bytes, served);
}

TEST_F(ChoiceUnguardedTest, TheOperationAfterTheFirstGoesDirectly) {
  start_both();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), 0u);
  const auto has_lane = [this] {
    std::vector<RailReport> rails;
    a().report_rails(rails);
    return std::ranges::any_of(rails, [](const RailReport& rail) {
      return rail.name.starts_with("a0") && rail.status.health == RailHealth::kUp;
    });
  };
  ASSERT_TRUE(wait_for(has_lane));
  const std::uint64_t until_ns = mc::now_ns() + 100'000'000;  // for the keys
  while (mc::now_ns() < until_ns) step();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), 1u);
}

TEST_F(ChoiceUnguardedTest, WritesGoDirectly) {
  start();
  const std::uint64_t before = one_sided();
  Memory from(kLargeBytes, std::byte{0x42});
  for (const std::uint64_t bytes : {std::uint64_t{1}, kLargeBytes}) {
    EXPECT_EQ(write({from.data(), bytes, kNoRegion}), Outcome::kDone);
  }
  EXPECT_EQ(one_sided(), before + 2);
  EXPECT_TRUE(std::ranges::equal(from, std::span(memory_).first(kLargeBytes)));
  EXPECT_EQ(b().counters().taken_bytes, 0u);
}

TEST_F(ChoiceUnguardedTest, MemoryThatIsNotRegisteredHereGoesByTcp) {
  start();
  const std::uint64_t before = one_sided();
  std::vector<std::byte> from(4096, std::byte{0x43});
  EXPECT_EQ(write({from.data(), from.size(), kNoRegion}), Outcome::kDone);
  EXPECT_TRUE(std::ranges::equal(from, std::span(memory_).first(from.size())));
  EXPECT_EQ(one_sided(), before);
  EXPECT_EQ(a().choices().detours, 0u);
}

TEST_F(ChoiceUnguardedTest, AWriteWhoseRailsAllFailIsRepeatedByTcpWhenNoByteCanLandAnyMore) {
  start();
  at_a_.clear();
  Memory from(kRegionBytes, std::byte{0x44});
  const OperationId id = submit_write({from.data(), from.size(), kNoRegion});
  for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) fabric_.cut(subnet, true);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
  EXPECT_TRUE(std::ranges::equal(from, memory_));
  EXPECT_EQ(a().choices().detours, 1u);
  // The owner reuses the memory now.
  std::ranges::fill(memory_, std::byte{0x55});
  for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) fabric_.cut(subnet, false);
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_TRUE(std::ranges::all_of(memory_, [](std::byte byte) { return byte == std::byte{0x55}; }))
      << "landed late";
}

TEST_F(ChoiceUnguardedTest, ARegionThatIsTwoSidedOnlyIsRegisteredWithNoDevice) {
  start();
  const std::size_t before = fabric_.registrations();
  RegionSpec spec;
  spec.data = memory_.data();
  spec.size_bytes = 4096;
  spec.rights = kRemoteRead;
  spec.two_sided_only = true;
  const RegionId region = b().register_region(spec).value();
  EXPECT_EQ(fabric_.registrations(), before);
  remote_ = a().import_region(peer_, b().describe(region).value()).value();
  const std::uint64_t direct = one_sided();
  EXPECT_EQ(read(0, 4096), Outcome::kDone);
  EXPECT_EQ(one_sided(), direct);
  EXPECT_EQ(a().choices().detours, 0u);
}

}  // namespace

class ChoiceGuardedTest : public ChoiceUnguardedTest {
 protected:
  ChoiceGuardedTest() { guarded_ = true; }
};

TEST_F(ChoiceGuardedTest, WritesAndSmallReadsAskTheGuard) {
  start();
  const std::uint64_t before = one_sided();
  const std::uint64_t pins = guard_.pins;
  Memory from(kLargeBytes, std::byte{0x46});
  EXPECT_EQ(read(0, choice::kProbedBytes - 1), Outcome::kDone);
  EXPECT_EQ(one_sided(), before);
  EXPECT_GT(guard_.pins, pins);
}

}  // namespace mc::transport::testing
