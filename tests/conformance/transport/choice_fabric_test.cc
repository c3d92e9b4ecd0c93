// SPDX-License-Identifier: Apache-2.0
//
// Reads by libfabric beside TCP: from memory that comes and goes, and between hosts of which only
// a single host has libfabric.
#include "conformance/transport/choice_fixture.h"

namespace mc::transport::testing {
namespace {

class ChoiceFabricTest : public ChoiceTest {
 protected:
  void SetUp() override {
    const auto library = fabric::load_libfabric();
    if (!library) GTEST_SKIP() << library.error().to_string();
    library_ = *library;
  }
  void start() {
    start_a(by_fabric(library_));
    start_b(by_fabric(library_));
  }
  fabric::Library library_;
};

TEST_F(ChoiceFabricTest, LibfabricCarriesLargeReadsAndTcpAsksTheGuard) {
  start();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), 0u) << "nothing waits for endpoints";
  ASSERT_TRUE(takes_one_sided());
  const std::uint64_t before = one_sided();
  const std::uint64_t served = b().counters().served_bytes;
  EXPECT_EQ(read(4096, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), before + 1);
  EXPECT_EQ(b().counters().served_bytes, served + 1) << "the byte that is asked for beside it";
  EXPECT_EQ(read(0, choice::kProbedBytes - 1), Outcome::kDone);
  EXPECT_EQ(one_sided(), before + 1);
  guard_.generation = 2;
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kStale);
  EXPECT_EQ(one_sided(), before + 2);
  EXPECT_EQ(a().choices().detours, 0u);
}

TEST_F(ChoiceFabricTest, RailsOfBothTransportsAreCounted) {
  start();
  ASSERT_TRUE(takes_one_sided());
  std::vector<RailCounts> counts;
  a().count_rails(counts);
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[0].transport, "tcp");
  EXPECT_EQ(counts[1].transport, "fabric");
  EXPECT_GT(counts[1].up, 0u);
  std::vector<RailReport> rails;
  a().report_rails(rails);
  std::uint64_t all = 0;
  for (const RailCounts& of : counts) all += of.up + of.down + of.idle;
  EXPECT_EQ(all, rails.size());
}

TEST_F(ChoiceFabricTest, LibfabricReadsTheBackedPartsOfASparseRegion) {
  start();
  ASSERT_TRUE(wait_for([&] { return b().close_region(region_); }));
  share(b(), true);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), 0u) << "it has no memory yet";
  // The backed part does not begin at the region's begin, so keys count from another place.
  const MemoryRange part[] = {{4096, kRegionBytes / 2}};
  b().set_backed(region_, part);
  ASSERT_TRUE(wait_for([&] {
    return read(8192, kLargeBytes) == Outcome::kDone && one_sided() > 0;
  })) << "registered beside the loop, and asked for within a second";
  std::uint64_t reads = one_sided();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(read(kRegionBytes / 2, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), reads) << "these lie, in part, where nothing is registered";

  const MemoryRange all[] = {{0, kRegionBytes}};
  b().set_backed(region_, all);
  ASSERT_TRUE(wait_for([&] {
    return read(kRegionBytes - kLargeBytes, kLargeBytes) == Outcome::kDone && one_sided() > reads;
  }));
  EXPECT_EQ(a().choices().detours, 0u) << "the former key held meanwhile";
  reads = one_sided();

  b().set_backed(region_, part);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(read(kRegionBytes - kLargeBytes, kLargeBytes), Outcome::kDone);
  }
  EXPECT_EQ(one_sided() - reads, a().choices().detours) << "what has lost memory goes at once";
  ASSERT_TRUE(wait_for([&] {
    return read(8192, kLargeBytes) == Outcome::kDone && one_sided() > reads + a().choices().detours;
  }));
}

TEST_F(ChoiceFabricTest, AReadOfMemoryThatGoesIsRightOrRepeatedByTcp) {
  start();
  ASSERT_TRUE(wait_for([&] { return b().close_region(region_); }));
  share(b(), true);
  const MemoryRange all[] = {{0, kRegionBytes}};
  const MemoryRange half[] = {{0, kRegionBytes / 2}};
  for (int round = 0; round < 10; ++round) {
    b().set_backed(region_, all);
    const std::uint64_t before = one_sided();
    ASSERT_TRUE(wait_for([&] {
      return read(kRegionBytes / 2, kLargeBytes) == Outcome::kDone && one_sided() > before;
    }));
    at_a_.clear();
    const OperationId id = submit(0, kRegionBytes);
    for (int i = 0; i < round; ++i) step();
    b().set_backed(region_, half);
    ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
    EXPECT_EQ(event_of(id)->outcome, Outcome::kDone);
    EXPECT_TRUE(std::ranges::equal(to_, memory_));
  }
}

TEST_F(ChoiceFabricTest, TcpReadsPeersWithoutLibfabric) {
  start_a(by_fabric(library_));
  start_b_with_tcp();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), 0u);
}

TEST_F(ChoiceFabricTest, AHostWithRdmaAndOneWithLibfabricReadEachOtherByTcp) {
  VerbsFabric devices;
  devices.add({.name = "a0", .subnet = 0, .host = 1});
  start_a(by_rdma({"a0"}));
  start_b(by_fabric(library_));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), 0u);
  std::vector<RailReport> rails;
  a().report_rails(rails);
  EXPECT_TRUE(
      std::ranges::all_of(rails, [](const RailReport& rail) { return rail.transport == "tcp"; }));
  a_.reset();
}

TEST_F(ChoiceFabricTest, LibfabricReadsAPeerAgainAfterItsRestart) {
  start();
  ASSERT_TRUE(takes_one_sided());
  at_a_.clear();
  const OperationId id = submit(0, kRegionBytes);
  b_.reset();
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  EXPECT_EQ(event_of(id)->outcome, Outcome::kPeerLost);
  std::ranges::fill(to_, std::byte{0x11});
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(to_, Memory(kRegionBytes, std::byte{0x11})) << "landed late";
  start_b(by_fabric(library_));
  ASSERT_TRUE(wait_for([&] {
    return std::ranges::any_of(
        at_a_, [](const Event& event) { return event.kind == Event::Kind::kPeerBack; });
  }));
  EXPECT_TRUE(takes_one_sided());
}

}  // namespace
}  // namespace mc::transport::testing
