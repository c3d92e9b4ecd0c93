// SPDX-License-Identifier: Apache-2.0
//
// The rdma transport and the devices: registrations and rights, addresses, limits.
#include <sys/mman.h>

#include <cstring>

#include "conformance/transport/rdma_fixture.h"

namespace mc::transport::testing {
namespace {

using RdmaDevicesTest = RdmaTransportTest;

TEST_F(RdmaDevicesTest, PeersWriteOnlyRegionsRegisteredForWriting) {
  EXPECT_EQ(fabric_.remote_writable_bytes(), 0u);
  Memory target(5000);
  register_at(pair_->b(), target.data(), target.size(), kRemoteWrite);
  EXPECT_EQ(fabric_.remote_writable_bytes(), 2 * target.size());  // with each of two devices
}

TEST_F(RdmaDevicesTest, LargeRegionsAreRegisteredInChunksAndReadAcrossTheirBorders) {
  constexpr std::uint64_t kChunk = 1u << kUsualChunkShift;
  constexpr std::uint64_t kSize = 3 * kChunk + 4096;
  void* data = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(data);
  const std::size_t before = fabric_.registrations();
  const RegionId region = register_at(pair_->b(), bytes, kSize, kRemoteRead);
  EXPECT_EQ(fabric_.registrations() - before, 2 * 4u);
  remote_ = import(region);
  const Memory mark = pattern(200'000, 5);
  std::memcpy(bytes + kChunk - 100'001, mark.data(), mark.size());
  Memory to(mark.size());
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(kChunk - 100'001, piece)), Outcome::kDone);
  EXPECT_EQ(to, mark);
  EXPECT_TRUE(wait_for([&] { return pair_->b().close_region(region); }));
  EXPECT_EQ(fabric_.registrations(), before);
  ::munmap(data, kSize);
}

TEST_F(RdmaDevicesTest, TheLimitOfLockedMemoryIsAnErrorThatNamesTheRemedy) {
  fabric_.device("b1").lockable_bytes = 0;
  RegionSpec spec;
  Memory more(4096);
  spec.data = more.data();
  spec.size_bytes = more.size();
  const std::size_t before = fabric_.registrations();
  const auto refused = pair_->b().register_region(spec);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), MC_NO_MEMORY);
  EXPECT_NE(refused.error().text().find("b1"), std::string_view::npos);
  EXPECT_NE(refused.error().text().find("LimitMEMLOCK"), std::string_view::npos);
  EXPECT_EQ(fabric_.registrations(), before) << "what the other device had was not given back";
}

TEST_F(RdmaDevicesTest, DeviceMemoryIsRegisteredByItsDmaBufOrElseByAddress) {
  Memory stands_for(4096);
  RegionSpec spec;
  spec.kind = MemoryKind::kDevice;
  spec.data = stands_for.data();
  spec.size_bytes = stands_for.size();
  spec.rights = kRemoteRead;
  spec.fd = 77;
  EXPECT_TRUE(pair_->b().register_region(spec));
  EXPECT_EQ(fabric_.last_dmabuf_fd(), 77);
  spec.fd = -1;
  EXPECT_TRUE(pair_->b().register_region(spec));
  spec.fd = 77;
  fabric_.device("b0").takes_dmabuf = false;
  const auto refused = pair_->b().register_region(spec);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), MC_UNSUPPORTED);
  EXPECT_NE(refused.error().text().find("nvidia-peermem"), std::string_view::npos);
  spec.kind = MemoryKind::kFile;
  EXPECT_EQ(pair_->b().register_region(spec).error().code(), MC_UNSUPPORTED);
}

TEST_F(RdmaDevicesTest, MemoryIsNotPinnedWhereTheDeviceFaultsPages) {
  EXPECT_EQ(fabric_.last_access() & IBV_ACCESS_ON_DEMAND, 0u);
  EXPECT_NE(fabric_.last_access() & IBV_ACCESS_RELAXED_ORDERING, 0u);
  pair_.reset();
  fabric_.device("a0").faults_pages = fabric_.device("a1").faults_pages = true;
  fabric_.device("b0").faults_pages = fabric_.device("b1").faults_pages = true;
  start();
  EXPECT_NE(fabric_.last_access() & IBV_ACCESS_ON_DEMAND, 0u);
  pair_.reset();
  options_a_.on_demand_paging = options_b_.on_demand_paging = false;
  options_a_.relaxed_ordering = options_b_.relaxed_ordering = false;
  start();
  EXPECT_EQ(fabric_.last_access(), unsigned{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
}

TEST_F(RdmaDevicesTest, AHostWithoutUsableDevicesSaysWhy) {
  class Nobody : public Dialer {
    void dial(const DialRequest&) override {}
  } nobody;
  const auto none = [&](const rdma::RdmaOptions& options) {
    auto made = rdma::RdmaTransport::create(options, VerbsFabric::verbs(), nobody);
    EXPECT_FALSE(made);
    return made ? std::string() : std::string(made.error().text());
  };
  EXPECT_NE(none(RdmaPair::options(5, {"mlx5_9"})).find("no RDMA device mlx5_9"),
            std::string::npos);
  auto options = RdmaPair::options(5, {"a0"});
  options.gid_index = 9;
  EXPECT_NE(none(options).find("no GID 9"), std::string::npos);
  fabric_.set_port("a0", false);
  EXPECT_NE(none(RdmaPair::options(5, {"a0"})).find("not active"), std::string::npos);
  fabric_.add({.name = "efa_0", .node_type = IBV_NODE_UNSPECIFIED});
  EXPECT_NE(none(RdmaPair::options(5, {"efa_0"})).find("use the fabric transport"),
            std::string::npos);
}

TEST_F(RdmaDevicesTest, TheSmallerMtuIsUsedAndOddPiecesGoThroughDevicesThatTakeFew) {
  pair_.reset();
  fabric_.device("b0").mtu = IBV_MTU_1024;
  fabric_.device("b1").max_pieces = 2;
  fabric_.device("a1").max_pieces = 3;
  start();
  warm_up();
  Memory to(64 * 1000);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < 64; ++i) pieces.push_back({&to[i * 1000], 1000, kNoRegion});
  Operation operation = read(17, pieces[0]);
  operation.pieces = pieces;
  EXPECT_EQ(run(operation), Outcome::kDone);
  EXPECT_TRUE(holds_bytes(to, 17));
}

// The line rate counts until the rail has been measured.
TEST_F(RdmaDevicesTest, ARailStartsWithTheLineRateOfItsPort) {
  pair_.reset();
  fabric_.device("a0").lanes = 2;        // four
  fabric_.device("a0").lane_speed = 64;  // 50 Gb/s
  fabric_.device("a1").lanes = 1;
  fabric_.device("a1").lane_speed = 32;  // 25 Gb/s
  start();
  std::vector<RailReport> reports;
  ASSERT_TRUE(wait_for([&] {
    reports.clear();
    pair_->a().report_rails(reports);
    return reports.size() == 4;
  }));
  for (const RailReport& report : reports) {
    EXPECT_EQ(report.status.bytes_per_ns, report.name.starts_with("a0") ? 25 : 3.125)
        << report.name;
  }
  pair_.reset();
  fabric_.device("a1").lanes = 3;  // not a valid width
  start();
  warm_up();
}

TEST_F(RdmaDevicesTest, DevicesOfAnotherKindOfNetworkMakeNoRail) {
  pair_.reset();
  fabric_.device("b0").link_layer = IBV_LINK_LAYER_INFINIBAND;
  start();
  Memory to(64);
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(0, piece)), Outcome::kDone);
  EXPECT_EQ(rails().find("their 0"), std::string::npos) << rails();
  pair_.reset();
  at_a_.clear();
  fabric_.device("b1").link_layer = IBV_LINK_LAYER_INFINIBAND;
  start();
  EXPECT_EQ(run(read(0, piece)), Outcome::kPeerLost);
}

}  // namespace
}  // namespace mc::transport::testing
