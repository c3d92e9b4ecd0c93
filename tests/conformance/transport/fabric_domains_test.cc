// SPDX-License-Identifier: Apache-2.0
//
// Domains of libfabric that cannot be opened, break, and come back, while the other domains work.
#include <rdma/fi_errno.h>

#include "conformance/transport/fabric_faults.h"
#include "conformance/transport/fabric_fixture.h"

namespace mc::transport::testing {
namespace {

class FabricDomainsTest : public FabricTransportTest {
 protected:
  void SetUp() override {
    const auto library = fabric::load_libfabric();
    if (!library) GTEST_SKIP() << library.error().to_string();
    faults_.emplace(*library);
    library_ = faults_->library();
  }
  void TearDown() override { pair_.reset(); }

  static fabric::FabricOptions both(NodeId node) {
    auto options = FabricPair::options(node, "tcp;ofi_rxm", "127.0.0.1");
    options.domains = {first_domain(), FabricFaults::kSpare};
    return options;
  }
  // The provider's name of the domain.
  static std::string first_domain() {
    fabric::FabricOptions options = FabricPair::options(kNodeA, "tcp;ofi_rxm", "127.0.0.1");
    const auto found = fabric::find_domains(fabric::load_libfabric().value(), options);
    return found.value().front()->domain_attr->name;
  }
  void start_both() { start(both(kNodeA), both(kNodeB)); }
  Outcome read_all() {
    std::ranges::fill(to_, std::byte{0});
    const Piece piece{to_.data(), to_.size(), kNoRegion};
    const Outcome outcome = run(operation(Verb::kRead, remote_, piece));
    EXPECT_TRUE(outcome != Outcome::kDone || to_ == memory_);
    return outcome;
  }
  bool spare_is_up() const { return rails().find("spare0 to their 1: up") != std::string::npos; }
  // Reads until the spare domain carries reads too.
  bool takes_spare() {
    return wait_for([&] { return read_all() == Outcome::kDone && spare_is_up(); });
  }

  std::optional<FabricFaults> faults_;
  Memory to_ = Memory(kRegionBytes);
};

TEST_F(FabricDomainsTest, ADomainThatCannotBeOpenedIsReportedAndOpenedLater) {
  FabricFaults::break_spare(FI_ENODEV);
  start_both();
  EXPECT_EQ(read_all(), Outcome::kDone) << rails();
  EXPECT_NE(pair_->a().obstacles().find("domain spare0: cannot open it"), std::string::npos)
      << pair_->a().obstacles();
  EXPECT_EQ(pair_->a().describe_devices().find("spare0"), std::string::npos);
  FabricFaults::mend_spare();
  EXPECT_TRUE(takes_spare()) << rails();
  EXPECT_EQ(pair_->a().obstacles(), "");
  EXPECT_EQ(pair_->b().obstacles(), "");
  EXPECT_FALSE(has(Event::Kind::kPeerLost));
}

TEST_F(FabricDomainsTest, IfNoDomainOpensEachIsNamedWithItsCause) {
  class Nobody : public Dialer {
    void dial(const DialRequest&) override {}
  } nobody;
  FabricFaults::break_spare(FI_ENODEV);
  auto options = both(kNodeA);
  options.domains = {FabricFaults::kSpare};
  const auto made = fabric::FabricTransport::create(options, *library_, nobody);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), MC_UNSUPPORTED);
  EXPECT_NE(made.error().to_string().find("spare0: cannot open it"), std::string::npos)
      << made.error().to_string();
}

TEST_F(FabricDomainsTest, ADomainWhoseDeviceGoesIsClosedAndReopenedWhileTheOtherWorks) {
  start_both();
  ASSERT_TRUE(takes_spare()) << rails();
  for (int round = 0; round < 2; ++round) {
    FabricFaults::break_spare(FI_ENODEV);
    // Lanes to b end. One of the lanes cannot be opened again.
    pair_->kill_b();
    auto options = both(kNodeB);
    options.incarnation = static_cast<std::uint64_t>(round) + 2;
    pair_->start_b(options);
    ASSERT_TRUE(wait_for([&] { return !pair_->a().obstacles().empty(); })) << rails();
    EXPECT_NE(pair_->a().obstacles().find("spare0: cannot open an endpoint"), std::string::npos)
        << pair_->a().obstacles();
    region_ = register_at(pair_->b(), memory_.data(), memory_.size(), kRemoteRead);
    ASSERT_TRUE(wait_for([&] {
      remote_ = import(region_);
      return read_all() == Outcome::kDone;
    })) << rails();
    EXPECT_EQ(rails().find("spare0"), std::string::npos) << rails();
    FabricFaults::mend_spare();
    ASSERT_TRUE(takes_spare()) << rails();
    EXPECT_EQ(pair_->a().obstacles(), "");
  }
}

TEST_F(FabricDomainsTest, ADomainThatCannotServeAnewIsClosedWhileTheOtherIsRead) {
  start_both();
  ASSERT_TRUE(takes_spare()) << rails();
  Memory other(4096);
  const RegionId closed = register_at(pair_->b(), other.data(), other.size(), kRemoteRead);
  FabricFaults::break_spare(FI_EMFILE);
  // The provider has begun requests that only the close of the serving endpoint ends.
  EXPECT_TRUE(wait_for([&] { return pair_->b().close_region(closed); }));
  EXPECT_NE(pair_->b().obstacles().find("spare0"), std::string::npos);
  EXPECT_TRUE(wait_for([&] {
    return read_all() == Outcome::kDone && rails().find("to their 1") == std::string::npos;
  })) << rails();
  FabricFaults::mend_spare();
  EXPECT_TRUE(wait_for([&] { return pair_->b().obstacles().empty(); }));
  EXPECT_TRUE(takes_spare()) << rails();
}

}  // namespace
}  // namespace mc::transport::testing
