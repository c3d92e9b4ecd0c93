// SPDX-License-Identifier: Apache-2.0
//
// The rdma transport on real verbs devices: keys, rails that are cut, devices that go.
#include <algorithm>
#include <cstring>

#include "defect.h"
#include "rdma/rdma_hosts.h"

namespace mc::transport::testing {
namespace {

TEST_F(RdmaHostsTest, KeysThatThePeerDidNotGiveAreRefusedByTheDevice) {
  warm_up();
  auto described =
      RegionDescriptor::decode(rdma::kDescriptorFormat, pair_->b().describe(region_).value())
          .value();
  Memory to(4096, std::byte{7});
  const Piece piece{to.data(), to.size(), kNoRegion};
  const auto forge = [&](const auto& change) {
    RegionDescriptor forged = described;
    change(forged);
    remote_ = pair_->a().import_region(peer_, forged.encode(rdma::kDescriptorFormat)).value();
  };
  forge([](RegionDescriptor& forged) {
    for (RegionKeys& device : forged.devices) device.keys[0] ^= 0x5a5a00;
  });
  EXPECT_EQ(run(read(0, piece)), Outcome::kStale);
  // A right that the region does not give, with the right keys.
  forge([](RegionDescriptor& forged) { forged.rights = kRemoteRead | kRemoteWrite; });
  Operation write = read(0, piece);
  write.verb = Verb::kWrite;
  EXPECT_EQ(run(write), Outcome::kStale);
  // Beyond the region.
  forge([](RegionDescriptor& forged) { forged.size_bytes += 1u << 20; });
  EXPECT_EQ(run(read(kRegionBytes, piece)), Outcome::kStale);
  EXPECT_EQ(memory_, pattern(kRegionBytes, 3));
  EXPECT_EQ(to, Memory(4096, std::byte{7}));
  EXPECT_EQ(run(read(0, piece)), Outcome::kDone);
  EXPECT_EQ(std::memcmp(to.data(), memory_.data(), to.size()), 0);
}

TEST_F(RdmaHostsTest, WhenARailIsCutUnderLoadNoOperationFailsAndItComesBack) {
  warm_up();
  const Load calm = read_until([] { return false; }, kSecondNs);
  EXPECT_EQ(calm.failed, 0u);
  // The packets go to a station that does not exist. Neither side is told.
  shell("ip neigh replace 10.77.0.2 lladdr 02:de:ad:00:00:01 dev a0 nud permanent");
  const std::uint64_t cut_ns = now_ns();
  const Load cut =
      read_until([&] { return up() == 2 && now_ns() >= cut_ns + 3 * kSecondNs; }, 20 * kSecondNs);
  EXPECT_TRUE(cut.held) << rails();
  EXPECT_EQ(cut.failed, 0u);
  EXPECT_EQ(cut.wrong, 0u) << kWrongBytes;
  EXPECT_GT(pair_->a().counters().resent_slices, 0u);
  shell("ip neigh del 10.77.0.2 dev a0");
  const std::uint64_t healed_ns = now_ns();
  const Load back = read_until([&] { return up() == 4; }, 10 * kSecondNs);
  EXPECT_TRUE(back.held) << rails();
  EXPECT_EQ(back.failed, 0u);
  EXPECT_EQ(back.wrong, 0u) << kWrongBytes;
  std::printf(
      "reads before %lu, without the rail %lu; longest pause %lu ms, before %lu ms; "
      "rail back after %lu ms\n",
      calm.done, cut.done, cut.longest_gap_ns / 1'000'000, calm.longest_gap_ns / 1'000'000,
      (now_ns() - healed_ns) / 1'000'000);
}

TEST_F(RdmaHostsTest, ADeviceThatIsDeletedUnderLoadIsMissedAndUsedAgainWhenItIsBack) {
  warm_up();
  for (const std::string side : {"b", "a"}) {
    const std::string device = "rxe" + side + "1";
    // In the background: the deletion waits for every user of the device.
    shell("(rdma link delete " + device + " >/dev/null 2>&1 &) && sleep 0.1");
    const Load gone = read_until([&] { return up() == 2; }, 10 * kSecondNs);
    EXPECT_TRUE(gone.held) << rails() << pair_->a().describe_devices();
    EXPECT_EQ(gone.failed, 0u) << device;
    EXPECT_EQ(gone.wrong, 0u) << kWrongBytes << device;
    shell("until ! rdma link show " + device + "/1 >/dev/null 2>&1; do sleep 0.1; done");
    shell("rdma link add " + device + " type rxe netdev " + side + "1");
    const Load back = read_until([&] { return up() == 4; }, 15 * kSecondNs);
    EXPECT_TRUE(back.held) << rails() << pair_->a().describe_devices();
    EXPECT_EQ(back.failed, 0u) << device;
    EXPECT_EQ(back.wrong, 0u) << kWrongBytes << device;
    std::printf("%s: longest pause %lu ms when it went, %lu ms when it came\n", device.c_str(),
                gone.longest_gap_ns / 1'000'000, back.longest_gap_ns / 1'000'000);
  }
}

TEST_F(RdmaHostsTest, AnInterfaceThatGoesDownIsLeftAndComesBack) {
  warm_up();
  shell("ip link set b1 down");
  const Load down = read_until([&] { return up() == 2; }, 10 * kSecondNs);
  EXPECT_TRUE(down.held) << rails();
  EXPECT_EQ(down.failed, 0u);
  EXPECT_EQ(down.wrong, 0u) << kWrongBytes;
  shell("ip link set b1 up");
  const Load back = read_until([&] { return up() == 4; }, 15 * kSecondNs);
  EXPECT_TRUE(back.held) << rails() << pair_->b().describe_devices();
  EXPECT_EQ(back.failed, 0u);
  EXPECT_EQ(back.wrong, 0u) << kWrongBytes;
}

TEST_F(RdmaHostsTest, ALoopThatSleepsIsWokenByItsCompletions) {
  warm_up();
  Memory to(4096);
  const Piece piece{to.data(), to.size(), kNoRegion};
  int slept = 0;
  int woken = 0;
  for (int i = 0; i < 100; ++i) {
    const OperationId id = submit(read(0, piece));
    bool sleeping = false;
    while (event_of(id) == nullptr) {
      step();
      const std::uint64_t until_ns = pair_->a().next_poll_ns();
      if (event_of(id) != nullptr || until_ns <= now_ns()) continue;
      if (!sleeping) ++slept;
      sleeping = true;
      if (wait_readable(pair_->a().wait_fd(), until_ns - now_ns())) ++woken;
    }
    // Lets the loop request a notification of the device, so that the next read ends a sleep.
    while (pair_->a().next_poll_ns() <= now_ns()) step();
  }
  EXPECT_GT(slept, 0);
  EXPECT_GE(woken, slept);
}

TEST_F(RdmaHostsTest, TheSmallerMtuOfTwoSidesIsUsed) {
  pair_.reset();
  options_b_.max_mtu_bytes = 1024;
  start();
  Memory to(1u << 20);
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(11, piece)), Outcome::kDone);
  EXPECT_EQ(std::memcmp(to.data(), &memory_[11], to.size()), 0);
}

TEST_F(RdmaHostsTest, AddressesOfDifferentKindsMakeNoRail) {
  pair_.reset();
  options_b_.gid_index = 0;  // link-local, while the other side has an IPv4 address
  start();
  Memory to(64);
  const Piece piece{to.data(), to.size(), kNoRegion};
  EXPECT_EQ(run(read(0, piece)), Outcome::kPeerLost);
}

}  // namespace
}  // namespace mc::transport::testing
