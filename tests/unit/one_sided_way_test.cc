// SPDX-License-Identifier: Apache-2.0
//
// The agent's choice of a transport beside TCP, and the stated reason if there is none.
#include "agent/cluster/peer/one_sided_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/fabric/library.h"

namespace mc::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Nobody : public transport::Dialer {
  void dial(const transport::DialRequest&) override {}
};

class OneSidedWayTest : public ::testing::Test {
 protected:
  Result<OneSidedWay> open() { return open_one_sided_way(options_, 1, 1, "127.0.0.1", nobody_); }
  std::string refusal() {
    const auto way = open();
    EXPECT_FALSE(way);
    return way ? "" : std::string(way.error().text());
  }
  static bool has_libfabric() { return transport::fabric::load_libfabric().has_value(); }

  Options options_;
  Nobody nobody_;
};

TEST_F(OneSidedWayTest, TcpAloneIsNoLack) {
  options_.transports = "tcp";
  const auto way = open();
  ASSERT_TRUE(way);
  EXPECT_EQ(way->transport, nullptr);
  EXPECT_THAT(way->why_not, IsEmpty());
}

TEST_F(OneSidedWayTest, UnderTlsThereIsTcpOnly) {
  options_.peer_tls_cert = "agent.pem";
  const auto way = open();
  ASSERT_TRUE(way);
  EXPECT_EQ(way->transport, nullptr);
  EXPECT_THAT(way->why_not, HasSubstr("in the clear"));
  for (const char* const transport : {"rdma", "fabric"}) {
    options_.transports = transport;
    EXPECT_THAT(refusal(), HasSubstr("in the clear"));
  }
}

TEST_F(OneSidedWayTest, AProviderThatThisHostHasNotIsRefusedIfNamedAndElseSaid) {
  options_.fabric_provider = "warp";
  options_.rdma_devices = "none0";
  options_.transports = "fabric";
  EXPECT_THAT(refusal(), HasSubstr(has_libfabric() ? "warp" : "libfabric1"));
  EXPECT_THAT(refusal(), HasSubstr("transports = \"auto\""));
  options_.transports = "auto";
  const auto way = open();
  ASSERT_TRUE(way);
  EXPECT_EQ(way->transport, nullptr);
  EXPECT_THAT(way->why_not, HasSubstr(has_libfabric() ? "warp" : "libfabric1"));
  EXPECT_THAT(way->why_not, HasSubstr("RDMA")) << "both are looked for";
}

// Locks in shared memory outlive a killed owner.
TEST_F(OneSidedWayTest, SharedMemoryIsNoWayBetweenAgents) {
  options_.rdma_devices = "none0";
  for (const char* const provider : {"shm", "sm2", "ofi_rxd;shm"}) {
    options_.fabric_provider = provider;
    options_.transports = "fabric";
    EXPECT_THAT(refusal(), HasSubstr("would hang the others"));
    options_.transports = "auto";
    const auto way = open();
    ASSERT_TRUE(way);
    EXPECT_EQ(way->transport, nullptr);
    EXPECT_THAT(way->why_not, HasSubstr("would hang the others"));
  }
}

TEST_F(OneSidedWayTest, LibfabricIsTakenWhereThereIsNoRdma) {
  if (!has_libfabric()) GTEST_SKIP() << "no libfabric on this host";
  options_.fabric_provider = "tcp;ofi_rxm";
  options_.rdma_devices = "none0";
  for (const char* const transports : {"fabric", "auto"}) {
    options_.transports = transports;
    const auto way = open();
    ASSERT_TRUE(way) << way.error().to_string();
    ASSERT_NE(way->transport, nullptr);
    EXPECT_EQ(way->transport->protocol(), transport::LinkProtocol::kFabric);
    EXPECT_THAT(way->transport->describe_devices(), HasSubstr("ofi_rxm"));
    EXPECT_THAT(way->transport->obstacles(), IsEmpty());
  }
}

}  // namespace
}  // namespace mc::agent
