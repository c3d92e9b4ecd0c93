// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the link between two fabric transports, and of the description of a region, as
// agents of this version send them.
#include <gtest/gtest.h>

#include <algorithm>

#include "transport/fabric/message.h"
#include "unit/golden_file.h"

namespace mc::transport::fabric {
namespace {

DomainEntry sample_domain(std::uint16_t slot) {
  DomainEntry domain{};
  domain.epoch = 0xe1e2e3e4e5e6e7e8;
  domain.beacon_address = 0x7f0000001000;
  domain.beacon_key = 0x1122334455667788;
  domain.address_format = 2;
  domain.protocol = 3;
  domain.slot = slot;
  domain.address_bytes = 16;
  const std::string name = "rdmap0s6-rdm";
  std::ranges::copy(name, domain.name.begin());
  for (std::uint8_t i = 0; i < 16; ++i) domain.address[i] = static_cast<std::uint8_t>(0xa0 + i);
  return domain;
}

RegionDescriptor sample_descriptor() {
  RegionDescriptor descriptor;
  descriptor.region = 0xa1a2a3a400000001;
  descriptor.incarnation = 5;
  descriptor.base = 0x7f0000000000;
  descriptor.size_bytes = (1ull << 30) + 4096;
  descriptor.rights = kRemoteRead;
  descriptor.covers = {{0, 1u << 18}, {0, 1}};
  descriptor.devices = {{0, 0xe1, {0x1112131415161718, 0x12}}, {31, 0xe2, {0x21, 0x22}}};
  return descriptor;
}

std::map<std::string, golden::Bytes> samples() {
  const std::byte text[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  const std::vector<DomainEntry> domains = {sample_domain(0), sample_domain(31)};
  return {{"hello", encode(HelloBody{kLinkVersion, 0})},
          {"domains", encode(domains)},
          {"describe", encode(RegionBody{0xa1a2a3a400000001})},
          {"description", encode(RegionBody{0xa1a2a3a400000001}, text)},
          {"notify", encode(NotifyBody{7}, text)},
          {"notified", encode(NotifiedBody{7, static_cast<std::uint8_t>(Outcome::kBusy), {}})},
          {"ping", encode_empty(MessageKind::kPing)},
          {"move", encode(MoveBody{0xe1e2e3e4e5e6e7e8, 31, 0})},
          {"attend", encode_empty(MessageKind::kAttend)},
          {"pong", encode_empty(MessageKind::kPong)},
          {"region", sample_descriptor().encode(kDescriptorFormat)}};
}

std::optional<Message> decode(std::span<const std::byte> bytes, bool from_asker) {
  const auto header = decode_control_header(bytes.first(kControlHeaderBytes), kProtocol);
  if (!header) return std::nullopt;
  return decode_body(*header, bytes.subspan(kControlHeaderBytes), from_asker);
}

TEST(GoldenFabric, MessagesAndDescriptionsHaveTheBytesOfVersionOne) {
  golden::compare("fabric-v1.txt", samples());
}

TEST(GoldenFabric, TheFilesBytesAreUnderstoodFromTheRightEndOnly) {
  auto sections = golden::read("fabric-v1.txt");
  for (const auto& [name, bytes] : sections) {
    if (name == "region") continue;
    const bool from_asker = decode(bytes, true).has_value();
    EXPECT_NE(from_asker, decode(bytes, false).has_value()) << name;
    EXPECT_EQ(from_asker, name == "hello" || name == "describe" || name == "notify" ||
                              name == "ping" || name == "attend" || name == "move")
        << name;
  }
  const auto domains = decode(sections["domains"], false);
  ASSERT_TRUE(domains);
  ASSERT_EQ(domains->domains.size(), 2u);
  EXPECT_EQ(domains->domains[1].slot, 31);
  EXPECT_STREQ(domains->domains[0].name.data(), "rdmap0s6-rdm");
  const auto notify = decode(sections["notify"], true);
  ASSERT_TRUE(notify);
  EXPECT_EQ(notify->notify.number, 7u);
  EXPECT_EQ(notify->text.size(), 3u);
  const auto region = RegionDescriptor::decode(kDescriptorFormat, sections["region"]);
  ASSERT_TRUE(region);
  EXPECT_EQ(region->base, 0x7f0000000000u);
  EXPECT_EQ(region->devices[0].keys[0], 0x1112131415161718u);
  EXPECT_EQ(region->devices[1].slot, 31u);
}

TEST(GoldenFabric, ShortLongAndBentMessagesAreRefused) {
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
    std::vector<DomainEntry> domains = {sample_domain(0), sample_domain(1)};
    change(domains[1]);
    return !decode(encode(domains), false);
  };
  EXPECT_FALSE(refused([](DomainEntry&) {}));
  EXPECT_FALSE(decode(encode(MoveBody{0, 31, 0}), true)) << "no endpoint has this epoch";
  EXPECT_FALSE(decode(encode(MoveBody{1, kMaxDomains, 0}), true));
  EXPECT_FALSE(decode(encode(MoveBody{1, 31, 1}), true));
  EXPECT_TRUE(refused([](DomainEntry& domain) { domain.slot = 0; }));
  EXPECT_TRUE(refused([](DomainEntry& domain) { domain.slot = kMaxDomains; }));
  EXPECT_TRUE(refused([](DomainEntry& domain) { domain.epoch = 0; }));
  EXPECT_TRUE(refused([](DomainEntry& domain) { domain.address_bytes = 0; }));
  EXPECT_TRUE(refused([](DomainEntry& domain) { domain.address_bytes = kMaxAddressBytes + 1; }));
  EXPECT_TRUE(refused([](DomainEntry& domain) { domain.address_bytes = 15; }));
  EXPECT_TRUE(refused([](DomainEntry& domain) { domain.name.fill('x'); }));
  EXPECT_TRUE(refused([](DomainEntry& domain) { domain.reserved = 1; }));
}

TEST(GoldenFabric, NotificationsAreTakenUpToTheirLimit) {
  const std::vector<std::byte> most(kMaxOneSidedNotificationBytes);
  const std::vector<std::byte> too_many(kMaxOneSidedNotificationBytes + 1);
  EXPECT_TRUE(decode(encode(NotifyBody{1}, most), true));
  EXPECT_FALSE(decode(encode(NotifyBody{1}, too_many), true));
  EXPECT_FALSE(decode(encode(NotifyBody{1}, {}), true));
}

}  // namespace
}  // namespace mc::transport::fabric
