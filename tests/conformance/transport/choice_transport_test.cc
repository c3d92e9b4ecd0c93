// SPDX-License-Identifier: Apache-2.0
//
// The choice between TCP and RDMA for reads that are small, stale, cut or not registered.
#include "conformance/transport/choice_fixture.h"

namespace mc::transport::testing {
namespace {

using ChoiceTransportTest = ChoiceRdmaTest;

TEST_F(ChoiceTransportTest, TcpCarriesReadsUntilRdmaLanesAreUpThenRdmaCarriesLargeReads) {
  start_both();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), 0u) << "nothing waits for queue pairs";
  ASSERT_TRUE(takes_one_sided());
  const std::uint64_t before = one_sided();
  const std::uint64_t served = b().counters().served_bytes;
  EXPECT_EQ(read(4096, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), before + 1);
  EXPECT_EQ(b().counters().served_bytes, served + 1) << "the byte that is asked for beside it";
  EXPECT_EQ(read(0, choice::kProbedBytes - 1), Outcome::kDone);
  EXPECT_EQ(one_sided(), before + 1);
  EXPECT_EQ(read(0, choice::kProbedBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), before + 2);
  EXPECT_EQ(a().choices().detours, 0u);
}

TEST_F(ChoiceTransportTest, TcpReadsAPeerThatDoesNotOfferRdma) {
  start_a(by_rdma({"a0"}));
  start_b_with_tcp();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), 0u);
  std::vector<RailReport> rails;
  a().report_rails(rails);
  EXPECT_TRUE(std::ranges::none_of(
      rails, [](const RailReport& rail) { return rail.name.starts_with("a0"); }));
}

TEST_F(ChoiceTransportTest, BytesOfAnotherGenerationAreStaleThoughRdmaBringsThem) {
  start_both();
  ASSERT_TRUE(takes_one_sided());
  guard_.generation = 2;
  const std::uint64_t before = one_sided();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kStale);
  EXPECT_EQ(one_sided(), before + 1);
  EXPECT_EQ(a().choices().detours, 0u);
  EXPECT_TRUE(guard_.held.empty());
}

TEST_F(ChoiceTransportTest, TcpRepeatsAReadWhoseRailsAllFailAndRdmaReturnsLater) {
  start_both();
  ASSERT_TRUE(takes_one_sided());
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
  const std::uint64_t before = one_sided();
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), before);
  for (const std::uint8_t subnet : {std::uint8_t{0}, std::uint8_t{1}}) fabric_.cut(subnet, false);
  EXPECT_TRUE(takes_one_sided());
}

TEST_F(ChoiceTransportTest, KeysThatNoLongerHoldCostOneRepetition) {
  start_both();
  ASSERT_TRUE(takes_one_sided());
  // The same name stands for other memory now, as after a change that the peer does not know yet.
  fabric_.fail_with(IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(a().choices().detours, 1u);
  fabric_.fail_with(IBV_WC_SUCCESS);
  EXPECT_TRUE(takes_one_sided());
}

TEST_F(ChoiceTransportTest, RdmaReadsTheBackedPartsOfASparseRegion) {
  start_both();
  ASSERT_TRUE(wait_for([&] { return b().close_region(region_); }));
  const std::size_t before = fabric_.registrations();
  share(b(), true);
  EXPECT_EQ(fabric_.registrations(), before) << "it has no memory yet";
  const MemoryRange half[] = {{0, kRegionBytes / 2}};
  b().set_backed(region_, half);
  EXPECT_EQ(fabric_.registrations(), before + 2) << "with each of two devices";
  ASSERT_TRUE(takes_one_sided());
  const std::uint64_t reads = one_sided();
  EXPECT_EQ(read(kRegionBytes / 2 - 4096, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), reads) << "it lies, in part, where nothing is registered";
  EXPECT_EQ(a().choices().detours, 0u);

  const MemoryRange all[] = {{0, kRegionBytes}};
  b().set_backed(region_, all);
  EXPECT_EQ(fabric_.registrations(), before + 4) << "the former keys hold until the next change";
  EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), reads + 1);
  EXPECT_EQ(a().choices().detours, 0u);
  ASSERT_TRUE(wait_for([&] {
    return read(kRegionBytes - kLargeBytes, kLargeBytes) == Outcome::kDone &&
           one_sided() > reads + 1;
  })) << "what is new is asked for within a second";

  b().set_backed(region_, half);
  EXPECT_EQ(fabric_.registrations(), before + 2) << "what has lost memory goes at once";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(kRegionBytes / 2, kLargeBytes), Outcome::kDone);
  ASSERT_TRUE(takes_one_sided());
  EXPECT_TRUE(wait_for([&] { return b().close_region(region_); }));
  EXPECT_EQ(fabric_.registrations(), before);
}

TEST_F(ChoiceTransportTest, TcpReadsAPoolThatCannotBeRegisteredAndReportsTheCause) {
  start_both();
  ASSERT_TRUE(wait_for([&] { return b().close_region(region_); }));
  share(b(), true);
  fabric_.device("b1").lockable_bytes = 0;
  const MemoryRange all[] = {{0, kRegionBytes}};
  b().set_backed(region_, all);
  EXPECT_NE(b().obstacles().find("LimitMEMLOCK"), std::string::npos) << b().obstacles();
  const std::uint64_t reads = one_sided();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(0, kLargeBytes), Outcome::kDone);
  EXPECT_EQ(one_sided(), reads);
}

TEST_F(ChoiceTransportTest, ClosingThePeerEndsItsOperations) {
  start_both();
  ASSERT_TRUE(takes_one_sided());
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

TEST_F(ChoiceTransportTest, ACancelledReadEndsOnceWithEitherTransport) {
  start_both();
  ASSERT_TRUE(takes_one_sided());
  at_a_.clear();
  fabric_.hold(true);
  const OperationId id = submit(0, kLargeBytes);
  a().cancel(id);
  fabric_.hold(false);
  ASSERT_TRUE(wait_for([&] { return event_of(id) != nullptr; }));
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(std::ranges::count(at_a_, id, &Event::id), 1);
  EXPECT_TRUE(takes_one_sided());
}

}  // namespace
}  // namespace mc::transport::testing
