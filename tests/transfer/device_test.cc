// SPDX-License-Identifier: Apache-2.0
//
// Device memory on either side of a transfer. The driver is a fake; a direct access to its device
// memory ends the process. No GPU takes part.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "device/driver_library.h"
#include "mc/transfer.h"
#include "patience.h"
#include "transport/engine/local/staging.h"

namespace mc::transfer::testing {
namespace {

constexpr std::size_t kBytes = 9 << 20;

void fill(std::byte* at, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
}

struct Place {
  bool device = false;
  void* address = nullptr;
  std::byte* bytes = nullptr;  // the host's view of the bytes
};

struct Owned {
  mc_transfer_engine* engine = nullptr;
  explicit Owned(bool same_host) {
    mc_transfer_options options = MC_TRANSFER_OPTIONS_INIT;
    options.same_host = same_host ? 0 : 1;
    options.timeout_ns = kWatchdogNs;
    EXPECT_EQ(mc_transfer_open(&options, &engine), MC_OK) << mc_transfer_last_error();
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { mc_transfer_close(engine); }
  mc_transfer_info info() const {
    mc_transfer_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(mc_transfer_get_info(engine, &info), MC_OK);
    return info;
  }
};

class DeviceTransfer : public ::testing::TestWithParam<bool> {
 protected:
  Place place(bool device, std::size_t bytes = kBytes) {
    Place made{device, nullptr, nullptr};
    if (device) {
      made.address = cuda_.allocate(bytes, 1, false);
      made.bytes = cuda_.behind(made.address);
    } else {
      memory_.push_back(std::make_unique<std::byte[]>(bytes));
      made.address = made.bytes = memory_.back().get();
    }
    return made;
  }
  mc_status share(const Place& place, std::size_t bytes = kBytes, std::uint32_t rights = 3) {
    const mc_transfer_range range{place.address, bytes};
    return mc_transfer_register(owner_.engine, &range, 1, rights);
  }
  mc_transfer_segment segment() {
    mc_transfer_segment segment = 0;
    EXPECT_EQ(mc_transfer_open_segment(asker_.engine, owner_.info().name, 0, &segment), MC_OK);
    return segment;
  }
  mc_status run(mc_transfer_verb verb, const Place& local, std::size_t from, const Place& remote,
                std::size_t to, std::size_t bytes) {
    const mc_transfer_request request{verb,
                                      0,
                                      static_cast<std::byte*>(local.address) + from,
                                      segment(),
                                      reinterpret_cast<std::uint64_t>(remote.address) + to,
                                      bytes};
    return mc_transfer_run(asker_.engine, &request, 1, nullptr);
  }

  const FakeDriver& cuda_ = mc::device::testing::fake();
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  Owned owner_{GetParam()};
  Owned asker_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Paths, DeviceTransfer, ::testing::Values(false, true),
                         [](const auto& way) { return way.param ? "SameHost" : "Tcp"; });

TEST_P(DeviceTransfer, MovesBytesOfEverySizeToAndFromDevices) {
  std::uint32_t within_host = 2;
  ASSERT_EQ(mc_transfer_segment_is_local(asker_.engine, segment(), &within_host), MC_OK);
  ASSERT_EQ(within_host, GetParam() ? 1u : 0u);
  for (const auto& [local_device, remote_device] :
       {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    const Place local = place(local_device);
    const Place remote = place(remote_device);
    ASSERT_EQ(share(remote), MC_OK) << mc_transfer_last_error();
    unsigned seed = 0;
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{4096}, (std::size_t{1} << 20) + 3, std::size_t{8} << 20}) {
      SCOPED_TRACE(bytes);
      fill(local.bytes, kBytes, ++seed);
      fill(remote.bytes, kBytes, ++seed);
      const std::vector<std::byte> before(remote.bytes, remote.bytes + kBytes);
      ASSERT_EQ(run(MC_TRANSFER_PUT, local, 5, remote, 77, bytes), MC_OK)
          << mc_transfer_last_error();
      EXPECT_TRUE(std::equal(local.bytes + 5, local.bytes + 5 + bytes, remote.bytes + 77));
      EXPECT_TRUE(std::equal(before.begin(), before.begin() + 77, remote.bytes));
      EXPECT_TRUE(std::equal(before.begin() + 77 + static_cast<std::ptrdiff_t>(bytes), before.end(),
                             remote.bytes + 77 + bytes));
      fill(remote.bytes, kBytes, ++seed);
      ASSERT_EQ(run(MC_TRANSFER_GET, local, 9, remote, 13, bytes), MC_OK)
          << mc_transfer_last_error();
      EXPECT_TRUE(std::equal(remote.bytes + 13, remote.bytes + 13 + bytes, local.bytes + 9));
    }
    void* address = remote.address;
    ASSERT_EQ(mc_transfer_unregister(owner_.engine, &address, 1), MC_OK);
    EXPECT_EQ(run(MC_TRANSFER_GET, local, 0, remote, 0, 1), MC_INVALID_ARGUMENT);
  }
  EXPECT_GT(owner_.info().device_bytes, 30u << 20);
  EXPECT_GT(asker_.info().device_bytes, 30u << 20);
}

TEST_P(DeviceTransfer, ManyTransfersOfOnePlaceAtOnceNeverSeeEachOthersPages) {
  const Place remote = place(true);
  ASSERT_EQ(share(remote), MC_OK);
  fill(remote.bytes, kBytes, 3);
  const mc_transfer_segment at = segment();
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      std::vector<std::byte> mine(300'000);
      for (unsigned turn = 0; turn < 40; ++turn) {
        // Every thread reads the upper half and writes its part of the lower half.
        const std::uint64_t part = (number * 1'000'000) + turn * 311;
        const std::uint64_t shared = 4'500'000 + turn * 4099;
        const auto base = reinterpret_cast<std::uint64_t>(remote.address);
        mc_transfer_request request{MC_TRANSFER_GET, 0,          mine.data(), at,
                                    base + shared,   mine.size()};
        ASSERT_EQ(mc_transfer_run(asker_.engine, &request, 1, nullptr), MC_OK);
        ASSERT_EQ(std::memcmp(mine.data(), remote.bytes + shared, mine.size()), 0);
        fill(mine.data(), mine.size(), number + turn);
        request.verb = MC_TRANSFER_PUT;
        request.remote = base + part;
        ASSERT_EQ(mc_transfer_run(asker_.engine, &request, 1, nullptr), MC_OK);
        ASSERT_EQ(std::memcmp(mine.data(), remote.bytes + part, mine.size()), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(DeviceTransfer, ADriverErrorFailsOnlyItsRequest) {
  const Place device = place(true);
  const Place host = place(false);
  fill(host.bytes, kBytes, 1);
  ASSERT_EQ(share(device), MC_OK);
  cuda_.fail("cuMemcpy", 0, 700);
  EXPECT_EQ(run(MC_TRANSFER_PUT, host, 0, device, 0, 5000), MC_UNSUPPORTED);
  EXPECT_EQ(run(MC_TRANSFER_GET, host, 0, device, 0, 5000), MC_UNSUPPORTED);
  EXPECT_NE(std::string(mc_transfer_last_error()).find("driver"), std::string::npos);
  EXPECT_EQ(run(MC_TRANSFER_PUT, device, 0, device, 0, 5000), MC_DEVICE_FAILED);
  EXPECT_NE(std::string(mc_transfer_last_error()).find("CUDA_ERROR_ILLEGAL_ADDRESS"),
            std::string::npos);
  cuda_.fail("cuMemcpy", 1, 700);  // the owner's copy succeeds, the requester's copy fails
  EXPECT_EQ(run(MC_TRANSFER_GET, device, 0, device, 8 << 10, 5000), MC_DEVICE_FAILED);
  cuda_.fail(nullptr, 0, 0);
  ASSERT_EQ(run(MC_TRANSFER_PUT, host, 0, device, 0, 5000), MC_OK) << mc_transfer_last_error();
  EXPECT_EQ(std::memcmp(device.bytes, host.bytes, 5000), 0);
}

TEST_P(DeviceTransfer, RangesBeyondAnAllocationAndTooMuchAtOnceAreRefused) {
  const Place device = place(true);
  EXPECT_EQ(share(device, kBytes + 1), MC_INVALID_ARGUMENT);
  EXPECT_NE(std::string(mc_transfer_last_error()).find("beyond its allocation on device 1"),
            std::string::npos);
  ASSERT_EQ(share(device, kBytes, MC_TRANSFER_READ), MC_OK);
  EXPECT_EQ(share(device, kBytes, MC_TRANSFER_READ), MC_INVALID_ARGUMENT);  // overlaps
  EXPECT_EQ(run(MC_TRANSFER_PUT, place(true), 0, device, 0, 1), MC_PERMISSION_DENIED);
  EXPECT_EQ(run(MC_TRANSFER_GET, place(true), kBytes - 1, device, 0, 2), MC_INVALID_ARGUMENT);

  const Place large = place(true, MC_MAX_TRANSFER_DEVICE_BYTES + 1);
  const mc_transfer_segment at = segment();
  std::vector<mc_transfer_request> requests(
      2, {MC_TRANSFER_GET, 0, large.address, at, 1, MC_MAX_TRANSFER_DEVICE_BYTES / 2 + 1});
  EXPECT_EQ(mc_transfer_run(asker_.engine, requests.data(), 2, nullptr), MC_BUSY);
  // The staging budget no longer counts a refused request: half of the budget is free for a later
  // one.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(mc_transfer_run(asker_.engine, requests.data(), 1, nullptr), MC_INVALID_ARGUMENT);
  }
}

TEST_P(DeviceTransfer, ManagedMemoryCountsAsHostMemory) {
  Place managed;
  managed.address = cuda_.allocate(8192, 0, true);
  managed.bytes = cuda_.behind(managed.address);
  fill(managed.bytes, 8192, 9);
  ASSERT_EQ(share(managed, 8192), MC_OK);
  const Place host = place(false);
  const std::uint64_t before = cuda_.calls("cuMemcpy");
  ASSERT_EQ(run(MC_TRANSFER_GET, host, 0, managed, 0, 8192), MC_OK);
  EXPECT_EQ(std::memcmp(host.bytes, managed.bytes, 8192), 0);
  EXPECT_EQ(cuda_.calls("cuMemcpy"), before);
}

TEST_P(DeviceTransfer, UnregisteringLocalMemoryEndsTheRequestsThatNameIt) {
  const Place local = place(true);
  const mc_transfer_range range{local.address, kBytes};
  ASSERT_EQ(mc_transfer_register(asker_.engine, &range, 1, 3), MC_OK);
  const Place remote = place(true);
  ASSERT_EQ(share(remote), MC_OK);
  const mc_transfer_request request{
      MC_TRANSFER_GET, 0, local.address, segment(), reinterpret_cast<std::uint64_t>(remote.address),
      8 << 20};
  mc_transfer_batch batch = 0;
  ASSERT_EQ(mc_transfer_submit(asker_.engine, &request, 1, nullptr, &batch), MC_OK);
  void* address = local.address;
  ASSERT_EQ(mc_transfer_unregister(asker_.engine, &address, 1), MC_OK);
  std::uint32_t ended = 0;
  mc_transfer_status status{};
  ASSERT_EQ(mc_transfer_poll(asker_.engine, batch, &ended, &status, 1), MC_OK);
  EXPECT_EQ(ended, 1u);
  EXPECT_TRUE(status.status == MC_CANCELLED || status.status == MC_OK);
}

TEST(DeviceMemory, TheDriverIsFoundWhereTheHostHasOneAndNowhereElse) {
  const device::Driver* const driver = device::Driver::find();
  EXPECT_EQ(driver != nullptr, ::dlopen("libcuda.so.1", RTLD_NOW) != nullptr);
  EXPECT_EQ(device::Driver::found(), driver);
}

TEST(DeviceMemory, AWriteThatBreaksOffLeavesTheDeviceAsItWas) {
  const FakeDriver& cuda = mc::device::testing::fake();
  const device::Driver* const driver = device::Driver::find();
  ASSERT_NE(driver, nullptr);
  auto* const address = static_cast<std::byte*>(cuda.allocate(65536, 0, false));
  std::byte* const seen = cuda.behind(address);
  fill(seen, 65536, 1);
  std::uint64_t moved = 0;
  auto region = StagedRegion::make({driver, 0, address, 65536}, &moved);
  ASSERT_TRUE(region);
  std::uint64_t broken = 0;
  std::uint64_t whole = 0;
  transport::Access access{1, 1, 0, 100, 30000, true};
  ASSERT_EQ((*region)->pin(access, &broken), transport::Outcome::kDone);
  std::memset((*region)->data() + 100, 0xee, 30000);
  access.offset_bytes = 40000;
  access.size_bytes = 20000;
  ASSERT_EQ((*region)->pin(access, &whole), transport::Outcome::kDone);
  std::memset((*region)->data() + 40000, 0xdd, 20000);
  (*region)->unpin(broken);
  ASSERT_EQ((*region)->settle(whole), transport::Outcome::kDone);
  (*region)->unpin(whole);
  std::vector<std::byte> wanted(65536);
  fill(wanted.data(), wanted.size(), 1);
  std::memset(wanted.data() + 40000, 0xdd, 20000);
  EXPECT_EQ(std::memcmp(seen, wanted.data(), wanted.size()), 0);
  EXPECT_EQ(moved, 20000u);
  // A read of the broken-off slice returns the device's bytes.
  std::uint64_t reading = 0;
  ASSERT_EQ((*region)->pin({1, 1, 0, 0, 65536, false}, &reading), transport::Outcome::kDone);
  EXPECT_EQ(std::memcmp((*region)->data(), wanted.data(), wanted.size()), 0);
  (*region)->unpin(reading);
  EXPECT_EQ((*region)->data()[8192], std::byte{0}) << "its pages were given back";
}

}  // namespace
}  // namespace mc::transfer::testing
