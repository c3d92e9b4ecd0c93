// SPDX-License-Identifier: Apache-2.0
//
// A region's descriptor for peers: the registered ranges, the limits, and the addresses.
#include "transport/one_sided/region_descriptor.h"

#include <gtest/gtest.h>

#include "transport/fabric/message.h"
#include "transport/rdma/message.h"

namespace mc::transport {
namespace {

class RegionDescriptorTest : public ::testing::TestWithParam<DescriptorFormat> {
 protected:
  std::optional<RegionDescriptor> round(const RegionDescriptor& descriptor) const {
    return RegionDescriptor::decode(GetParam(), descriptor.encode(GetParam()));
  }
  static RegionDescriptor sample() {
    RegionDescriptor descriptor;
    descriptor.region = 0xa1a2a3a400000001;
    descriptor.incarnation = 5;
    descriptor.base = 0x7f0000000000;
    descriptor.size_bytes = (1ull << 30) + 4096;
    descriptor.rights = kRemoteRead;
    descriptor.covers = {{0, 1u << 18}, {0, 1}};
    descriptor.devices = {{0, 0xe1, {0x11, 0x12}}, {3, 0xe2, {0x21, 0x22}}};
    return descriptor;
  }
};

TEST_P(RegionDescriptorTest, ARegistrationLiesWithinItsChunk) {
  const auto refused = [&](Cover cover) {
    RegionDescriptor descriptor = sample();
    descriptor.covers[1] = cover;
    return !round(descriptor);
  };
  EXPECT_FALSE(refused({0, 1}));
  EXPECT_FALSE(refused({0, 0}));
  EXPECT_FALSE(refused({1, 1}));
  EXPECT_TRUE(refused({0, 2}));
  EXPECT_TRUE(refused({1, 0}));
}

TEST_P(RegionDescriptorTest, StaysBelowItsLimitForTheLargestPools) {
  const std::uint32_t devices = GetParam().max_devices;
  for (const std::uint64_t size : {1ull, 1ull << 30, 5ull << 40, 64ull << 40}) {
    RegionDescriptor descriptor = sample();
    descriptor.size_bytes = size;
    descriptor.chunk_shift = chunk_shift_for(GetParam(), size, devices);
    EXPECT_GE(descriptor.chunk_shift, kUsualChunkShift);
    descriptor.covers.clear();
    for (std::uint64_t chunk = 0; chunk < descriptor.chunk_count(); ++chunk) {
      descriptor.covers.push_back(whole_chunk(size, descriptor.chunk_shift, chunk));
    }
    descriptor.devices.clear();
    for (std::uint8_t slot = 0; slot < devices; ++slot) {
      descriptor.devices.push_back(
          {slot, 1, std::vector<std::uint64_t>(descriptor.chunk_count(), slot)});
    }
    EXPECT_LE(descriptor.encode(GetParam()).size(), kMaxDescriptorBytes);
    EXPECT_TRUE(round(descriptor));
  }
}

TEST_P(RegionDescriptorTest, KeysAreOfKnownDevicesAndOfOneTransport) {
  const auto refused = [&](auto change) {
    RegionDescriptor descriptor = sample();
    change(descriptor);
    return !round(descriptor);
  };
  EXPECT_FALSE(refused([](RegionDescriptor&) {}));
  EXPECT_TRUE(refused([](RegionDescriptor& bent) { bent.devices[1].slot = 0; }));
  EXPECT_TRUE(refused([](RegionDescriptor& bent) { bent.devices[1].epoch = 0; }));
  EXPECT_TRUE(refused([](RegionDescriptor& bent) { bent.devices[1].keys.pop_back(); }));
  EXPECT_TRUE(refused([](RegionDescriptor& bent) { bent.base = ~std::uint64_t{0} - 4096; }));
  EXPECT_TRUE(refused([&](RegionDescriptor& bent) {
    bent.devices[1].slot = static_cast<std::uint8_t>(GetParam().max_devices);
  }));
  DescriptorFormat other = GetParam();
  ++other.magic;
  EXPECT_FALSE(RegionDescriptor::decode(other, sample().encode(GetParam())));
}

TEST_P(RegionDescriptorTest, ARangeIsCoveredIfAllOfItIsRegistered) {
  RegionDescriptor descriptor = sample();
  constexpr std::uint64_t kChunk = 1ull << 30;
  EXPECT_TRUE(descriptor.covers_all(0, descriptor.size_bytes));
  EXPECT_TRUE(descriptor.covers_all(kChunk - 1, 2));
  EXPECT_FALSE(descriptor.covers_all(0, 0));
  EXPECT_FALSE(descriptor.covers_all(1, descriptor.size_bytes));
  EXPECT_FALSE(descriptor.covers_all(~std::uint64_t{0}, 2));
  descriptor.covers[0] = {1, (1u << 18) - 1};
  EXPECT_TRUE(descriptor.covers_all(4096, kChunk - 2 * 4096));
  EXPECT_FALSE(descriptor.covers_all(4095, 1));
  EXPECT_FALSE(descriptor.covers_all(kChunk - 4096, 1));
  EXPECT_TRUE(descriptor.covers_all(kChunk, 4096));
}

TEST_P(RegionDescriptorTest, DevicesCountFromAnAddressOrFromTheRegistration) {
  RegionDescriptor descriptor = sample();
  EXPECT_EQ(descriptor.address_of(8192), 0x7f0000002000u);
  descriptor.base = 0;
  descriptor.covers[0] = {1, 1u << 18};
  EXPECT_EQ(descriptor.address_of(8192), 4096u);
  EXPECT_EQ(descriptor.address_of((1ull << 30) + 5), 5u);
}

INSTANTIATE_TEST_SUITE_P(Formats, RegionDescriptorTest,
                         ::testing::Values(rdma::kDescriptorFormat, fabric::kDescriptorFormat),
                         [](const auto& format) { return std::string(format.param.transport); });

}  // namespace
}  // namespace mc::transport
