// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the link between two rdma transports, and of the description of a region, as agents
// of this version send them.
#include <gtest/gtest.h>

#include "transport/rdma/message.h"
#include "unit/golden_file.h"

namespace mc::transport::rdma {
namespace {

constexpr Gid kGid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};

OpenBody sample_open() {
  OpenBody open{};
  open.lane = 3;
  open.serial = 0x0a0b0c0d;
  open.device_epoch = 0xe1e2e3e4e5e6e7e8;
  open.gid = kGid;
  open.pair_number = 0x112233;
  open.packet_number = 0x445566;
  open.lid = 0x0708;
  open.device = 2;
  open.layer = 2;
  open.mtu = IBV_MTU_4096;
  open.read_depth = 16;
  return open;
}

OpenedBody sample_opened() {
  OpenedBody opened{};
  opened.lane = 3;
  opened.serial = 0x0a0b0c0d;
  opened.gid = kGid;
  opened.pair_number = 0x112234;
  opened.packet_number = 0x445567;
  opened.lid = 0x0709;
  opened.mtu = IBV_MTU_1024;
  opened.read_depth = 8;
  return opened;
}

std::vector<DeviceEntry> sample_devices() {
  DeviceEntry there{0xe1e2e3e4e5e6e7e8, kGid, 7, 0, 2, IBV_MTU_4096, {}};
  DeviceEntry gone{0, kGid, 0, 1, 1, IBV_MTU_2048, {}};
  return {there, gone};
}

RegionDescriptor sample_descriptor() {
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

std::map<std::string, golden::Bytes> samples() {
  const std::byte text[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  return {{"hello", encode(HelloBody{0x1122334455667788, kLinkVersion, 0})},
          {"devices", encode(sample_devices())},
          {"open", encode(sample_open())},
          {"opened", encode(sample_opened())},
          {"close", encode(MessageKind::kClose, LaneBody{3, 9})},
          {"closed", encode(MessageKind::kClosed, LaneBody{3, 9})},
          {"describe", encode(RegionBody{0xa1a2a3a400000001})},
          {"description", encode(RegionBody{0xa1a2a3a400000001}, text)},
          {"ping", encode_empty(MessageKind::kPing)},
          {"pong", encode_empty(MessageKind::kPong)},
          {"region", sample_descriptor().encode(kDescriptorFormat)}};
}

std::optional<Message> decode(std::span<const std::byte> bytes, bool from_asker) {
  const auto header = decode_control_header(bytes.first(kControlHeaderBytes), kProtocol);
  if (!header) return std::nullopt;
  return decode_body(*header, bytes.subspan(kControlHeaderBytes), from_asker);
}

TEST(GoldenRdma, MessagesAndDescriptionsHaveTheBytesOfVersionOne) {
  golden::compare("rdma-v1.txt", samples());
}

TEST(GoldenRdma, TheFilesBytesAreUnderstoodFromTheRightEndOnly) {
  for (const auto& [name, bytes] : golden::read("rdma-v1.txt")) {
    if (name == "region") continue;
    const bool from_asker = decode(bytes, true).has_value();
    EXPECT_NE(from_asker, decode(bytes, false).has_value()) << name;
    EXPECT_EQ(from_asker, name == "hello" || name == "open" || name == "close" ||
                              name == "describe" || name == "ping")
        << name;
  }
  auto sections = golden::read("rdma-v1.txt");
  const auto open = decode(sections["open"], true);
  ASSERT_TRUE(open);
  EXPECT_EQ(open->open.pair_number, 0x112233u);
  EXPECT_EQ(open->open.gid, kGid);
  const auto devices = decode(sections["devices"], false);
  ASSERT_TRUE(devices);
  ASSERT_EQ(devices->devices.size(), 2u);
  EXPECT_EQ(devices->devices[1].epoch, 0u);
  const auto region = RegionDescriptor::decode(kDescriptorFormat, sections["region"]);
  ASSERT_TRUE(region);
  EXPECT_EQ(region->chunk_count(), 2u);
  EXPECT_EQ(region->covers[1], (Cover{0, 1}));
  EXPECT_EQ(region->devices[1].slot, 3);
  EXPECT_EQ(region->devices[1].keys[1], 0x22u);
}

TEST(GoldenRdma, ShortLongAndBentMessagesAreRefused) {
  for (const auto& [name, bytes] : samples()) {
    if (name == "region") continue;
    for (const bool from_asker : {true, false}) {
      for (std::size_t size = kControlHeaderBytes; size < bytes.size(); ++size) {
        EXPECT_FALSE(decode(std::span(bytes).first(size), from_asker)) << name << " " << size;
      }
      auto longer = bytes;
      longer.push_back(std::byte{0});
      EXPECT_FALSE(decode(longer, from_asker)) << name;
    }
  }
  const auto refused = [](auto change) {
    OpenBody open = sample_open();
    change(open);
    return !decode(encode(open), true);
  };
  EXPECT_FALSE(refused([](OpenBody&) {}));
  EXPECT_TRUE(refused([](OpenBody& open) { open.lane = kMaxPairs; }));
  EXPECT_TRUE(refused([](OpenBody& open) { open.serial = 0; }));
  EXPECT_TRUE(refused([](OpenBody& open) { open.device = kMaxDevices; }));
  EXPECT_TRUE(refused([](OpenBody& open) { open.mtu = 0; }));
  EXPECT_TRUE(refused([](OpenBody& open) { open.mtu = IBV_MTU_4096 + 1; }));
  EXPECT_TRUE(refused([](OpenBody& open) { open.layer = 3; }));
  EXPECT_TRUE(refused([](OpenBody& open) { open.pair_number = 1u << 24; }));
  EXPECT_TRUE(refused([](OpenBody& open) { open.read_depth = kMaxReadDepth + 1; }));
  EXPECT_TRUE(refused([](OpenBody& open) { open.reserved = 1; }));
}

}  // namespace
}  // namespace mc::transport::rdma
