// SPDX-License-Identifier: Apache-2.0
//
// The choice of a transport beside TCP, and the stated reason if there is none.
#include "transport/choice/direct_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/fabric/library.h"

namespace mc::transport::choice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Nobody : public Dialer {
  void dial(const DialRequest&) override {}
};

class DirectWayTest : public ::testing::Test {
 protected:
  DirectWayTest() {
    options_.node = options_.incarnation = 1;
    options_.address = "127.0.0.1";
  }
  Result<DirectWay> open() { return open_direct_way(options_, nobody_); }
  std::string refusal() {
    const auto way = open();
    EXPECT_FALSE(way);
    return way ? "" : std::string(way.error().text());
  }
  static bool has_libfabric() { return fabric::load_libfabric().has_value(); }

  DirectOptions options_;
  Nobody nobody_;
};

TEST_F(DirectWayTest, TcpAloneIsNoLack) {
  options_.transports = "tcp";
  const auto way = open();
  ASSERT_TRUE(way);
  EXPECT_EQ(way->transport, nullptr);
  EXPECT_THAT(way->why_not, IsEmpty());
}

TEST_F(DirectWayTest, UnderTlsThereIsTcpOnly) {
  options_.encrypted = true;
  const auto way = open();
  ASSERT_TRUE(way);
  EXPECT_EQ(way->transport, nullptr);
  EXPECT_THAT(way->why_not, HasSubstr("in the clear"));
  for (const char* const transport : {"rdma", "fabric"}) {
    options_.transports = transport;
    EXPECT_THAT(refusal(), HasSubstr("in the clear"));
  }
}

TEST_F(DirectWayTest, AProviderThatThisHostHasNotIsRefusedIfNamedAndElseSaid) {
  options_.fabric_provider = "warp";
  options_.rdma_devices = {"none0"};
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
TEST_F(DirectWayTest, SharedMemoryIsNoWayBetweenProcesses) {
  options_.rdma_devices = {"none0"};
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

TEST_F(DirectWayTest, AnUnknownTransportIsRefused) {
  options_.transports = "carrier pigeon";
  EXPECT_THAT(refusal(), HasSubstr("carrier pigeon"));
}

TEST_F(DirectWayTest, LibfabricIsTakenWhereThereIsNoRdma) {
  if (!has_libfabric()) GTEST_SKIP() << "no libfabric on this host";
  options_.fabric_provider = "tcp;ofi_rxm";
  options_.rdma_devices = {"none0"};
  for (const char* const transports : {"fabric", "auto"}) {
    options_.transports = transports;
    const auto way = open();
    ASSERT_TRUE(way) << way.error().to_string();
    ASSERT_NE(way->transport, nullptr);
    EXPECT_EQ(way->transport->protocol(), LinkProtocol::kFabric);
    EXPECT_THAT(way->transport->describe_devices(), HasSubstr("ofi_rxm"));
    EXPECT_THAT(way->transport->obstacles(), IsEmpty());
  }
}

}  // namespace
}  // namespace mc::transport::choice
