// SPDX-License-Identifier: Apache-2.0
//
// The transfer engine on real RDMA devices, through its C++ face: devices carry registered memory of every size,
// and requests go on while devices go.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "mc/transfer.hpp"
#include "rdma/rdma_hosts.h"

namespace mc::transfer::testing {
namespace {

using transport::testing::devices_a;
using transport::testing::devices_b;
using transport::testing::shell;

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

class EngineOnRdma : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 4 << 20;

  void SetUp() override {
    if (devices_a().size() < 2 || devices_b().size() < 2) {
      GTEST_SKIP() << "no RDMA devices here; tests/run --rdma starts a machine that has them";
    }
    a_ = open(joined(devices_a()));
    b_ = open(joined(devices_b()));
    const TransferRange here{local_.data(), kBytes}, there{remote_.data(), kBytes};
    ASSERT_TRUE(a_.register_memory({&here, 1}, MC_TRANSFER_READ, "cpu:0").ok());
    ASSERT_TRUE(b_.register_memory({&there, 1}, MC_TRANSFER_READ | MC_TRANSFER_WRITE).ok());
    const auto segment = a_.open_segment(b_.info().value().name);
    ASSERT_TRUE(segment) << segment.error().to_string();
    segment_ = *segment;
    ASSERT_TRUE(until([&] { return put(0, 1).ok() && direct_bytes() > 0; })) << ways();
  }

  static TransferEngine open(const std::string& devices) {
    TransferOptions options;
    options.transports = "rdma";
    options.devices = devices.c_str();
    options.same_host = false;
    options.rdma_ack_timeout = transport::testing::kAckTimeout;
    options.timeout_ns = kWatchdogNs;
    auto engine = TransferEngine::open(options);
    EXPECT_TRUE(engine) << engine.error().to_string();
    return engine ? std::move(*engine) : TransferEngine();
  }
  std::uint64_t address(std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t>(remote_.data() + offset);
  }
  Status put(std::uint64_t offset, std::uint64_t bytes, const TransferSubmitOptions& how = {}) {
    const auto request = transfer_put(local_.data() + offset, segment_, address(offset), bytes);
    return a_.run({&request, 1}, how);
  }
  Status get(std::uint64_t offset, std::uint64_t bytes) {
    const auto request = transfer_get(local_.data() + offset, segment_, address(offset), bytes);
    return a_.run({&request, 1});
  }
  std::uint64_t direct_bytes() const { return a_.info().value().direct_bytes; }
  std::string ways() const {
    std::string text(1 << 16, ' ');
    text.resize(std::min(text.size(), a_.describe(text).value_or(0)));
    return text;
  }

  std::vector<unsigned char> local_ = std::vector<unsigned char>(kBytes, 1);
  std::vector<unsigned char> remote_ = std::vector<unsigned char>(kBytes, 2);
  TransferEngine a_, b_;
  TransferSegment segment_ = 0;
};

TEST_F(EngineOnRdma, DevicesCarryWritesAndReadsOfEverySize) {
  for (const std::uint64_t bytes : {8ull, 4096ull, 65'537ull, 1ull << 20}) {
    const std::uint64_t before = direct_bytes();
    std::fill_n(local_.begin() + 1, bytes, static_cast<unsigned char>(bytes % 251));
    TransferSubmitOptions how;
    how.checksum = true;
    how.priority = MC_TRANSFER_PREFETCH;
    ASSERT_TRUE(put(1, bytes, how).ok()) << ways();
    EXPECT_EQ(std::memcmp(local_.data() + 1, remote_.data() + 1, bytes), 0);
    std::fill_n(remote_.begin() + 1, bytes, static_cast<unsigned char>(bytes % 13));
    ASSERT_TRUE(get(1, bytes).ok()) << ways();
    EXPECT_EQ(local_[bytes], bytes % 13);
    EXPECT_EQ(direct_bytes() - before, 2 * bytes) << ways();
  }
}

TEST_F(EngineOnRdma, MemoryThatIsNoLongerRegisteredIsOutOfReach) {
  void* const address = remote_.data();
  ASSERT_TRUE(b_.unregister_memory({&address, 1}).ok());
  std::fill(remote_.begin(), remote_.end(), static_cast<unsigned char>(9));
  EXPECT_EQ(put(0, 65536).code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(std::count(remote_.begin(), remote_.end(), 9), static_cast<long>(kBytes));
  const TransferRange again{remote_.data(), kBytes};
  ASSERT_TRUE(b_.register_memory({&again, 1}, MC_TRANSFER_WRITE).ok());
  ASSERT_TRUE(put(0, 65536).ok());
  EXPECT_EQ(get(0, 65536).code(), MC_PERMISSION_DENIED);
  const std::uint64_t before = direct_bytes();
  EXPECT_TRUE(until([&] { return put(0, 65536).ok() && direct_bytes() > before; })) << ways();
}

TEST_F(EngineOnRdma, RequestsGoOnByTcpWhileTheDevicesAreDown) {
  shell("ip link set a0 down; ip link set a1 down");
  const Status without = put(0, 1 << 20);
  shell("ip link set a0 up; ip link set a1 up");
  EXPECT_TRUE(without.ok()) << without.to_string() << "\n" << ways();
  EXPECT_EQ(remote_[(1 << 20) - 1], local_[(1 << 20) - 1]);
  const std::uint64_t before = direct_bytes();
  EXPECT_TRUE(until([&] { return put(0, 65536).ok() && direct_bytes() > before; })) << ways();
}

}  // namespace
}  // namespace mc::transfer::testing
