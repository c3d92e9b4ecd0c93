// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "transport/rdma/address.h"

namespace mc::transport::rdma {

static void PrintTo(const Path& path, std::ostream* out) {
  *out << int{path.ours} << "-" << int{path.theirs};
}

namespace {

Gid ipv4(std::uint8_t c, std::uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, c, d};
}
Gid ipv6(std::uint8_t last) { return {0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}; }
Gid link_local(std::uint8_t last) {
  return {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, last};
}

GidEntry entry(std::uint32_t index, const Gid& gid, GidType type) {
  GidEntry made;
  std::memcpy(made.gid.raw, gid.data(), gid.size());
  made.type = type;
  made.index = index;
  return made;
}

std::optional<PortAddress> at(const Gid& gid, LinkLayer layer = LinkLayer::kEthernet) {
  return PortAddress{gid, layer, IBV_MTU_4096, 1};
}

TEST(RdmaAddress, RoceVersionTwoOfTheIpv4AddressIsChosenThenIpv6ThenLinkLocal) {
  const GidEntry v1 = entry(0, ipv4(0, 1), GidType::kRoceV1);
  const GidEntry local = entry(1, link_local(1), GidType::kRoceV2);
  const GidEntry v6 = entry(2, ipv6(1), GidType::kRoceV2);
  const GidEntry v4 = entry(3, ipv4(0, 1), GidType::kRoceV2);
  EXPECT_EQ(choose_gid(std::vector{v1, local, v6, v4}, -1)->index, 3u);
  EXPECT_EQ(choose_gid(std::vector{v1, local, v6}, -1)->index, 2u);
  EXPECT_EQ(choose_gid(std::vector{v1, local}, -1)->index, 1u);
  EXPECT_FALSE(choose_gid(std::vector{v1}, -1));
  EXPECT_EQ(choose_gid(std::vector{v1, v4}, 0)->index, 0u) << "who names one means it";
  EXPECT_FALSE(choose_gid(std::vector{v1, v4}, 7));
}

TEST(RdmaAddress, TheIndexThatSitesSetForOthersIsRespected) {
  ::setenv("NCCL_IB_GID_INDEX", "3", 1);
  EXPECT_EQ(gid_index_from_environment(), 3);
  ::setenv("NCCL_IB_GID_INDEX", "3x", 1);
  EXPECT_EQ(gid_index_from_environment(), -1);
  ::unsetenv("NCCL_IB_GID_INDEX");
  EXPECT_EQ(gid_index_from_environment(), -1);
}

TEST(RdmaAddress, DevicesOfOneSubnetMakeARailWhateverTheirOrder) {
  const std::vector ours = {at(ipv4(0, 1)), at(ipv4(1, 1))};
  const std::vector theirs = {at(ipv4(1, 2)), at(ipv4(0, 2))};
  EXPECT_EQ(pair_devices(ours, theirs), (std::vector<Path>{{0, 1}, {1, 0}}));
}

TEST(RdmaAddress, EachDeviceOfTheSideWithMoreIsInARail) {
  const std::vector one = {at(ipv4(0, 1))};
  const std::vector three = {at(ipv4(0, 2)), at(ipv4(0, 3)), at(ipv4(0, 4))};
  EXPECT_EQ(pair_devices(one, three), (std::vector<Path>{{0, 0}, {0, 1}, {0, 2}}));
  EXPECT_EQ(pair_devices(three, one), (std::vector<Path>{{0, 0}, {1, 0}, {2, 0}}));
}

TEST(RdmaAddress, DevicesThatCannotReachEachOtherMakeNoRail) {
  const auto ib = LinkLayer::kInfiniBand;
  EXPECT_TRUE(pair_devices(std::vector{at(ipv4(0, 1))}, std::vector{at(ipv6(2))}).empty());
  EXPECT_TRUE(pair_devices(std::vector{at(ipv6(1))}, std::vector{at(ipv6(2), ib)}).empty());
  EXPECT_EQ(pair_devices(std::vector{at(link_local(1), ib)}, std::vector{at(link_local(2), ib)}),
            (std::vector<Path>{{0, 0}}));
  EXPECT_TRUE(
      pair_devices(std::vector{at(link_local(1), ib)}, std::vector{at(ipv6(2), ib)}).empty());
  const std::vector<std::optional<PortAddress>> gone(3);
  EXPECT_TRUE(pair_devices(std::vector{at(ipv4(0, 1))}, gone).empty());
}

}  // namespace
}  // namespace mc::transport::rdma
