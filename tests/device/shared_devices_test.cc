// SPDX-License-Identifier: Apache-2.0
//
// Device memory and events of another process, by the fake driver: the promises of an import, and
// imports after the owner's death.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "device/device_fixture.h"
#include "device/peer_process.h"
#include "patience.h"

namespace mc::device::testing {
namespace {

// The processes of this program's tests, and their children, share a machine.
class SharedMachine : public ::testing::Environment {
 public:
  void SetUp() override {
    if (has_gpu() || std::getenv("MC_FAKE_DRIVER") != nullptr) return;
    std::string made = ::testing::TempDir() + "mc-devices-XXXXXX";
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
    ::setenv("MC_FAKE_DRIVER", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

 private:
  std::string folder_;
};
const ::testing::Environment* const kMachine =
    ::testing::AddGlobalTestEnvironment(new SharedMachine);

class SharedDevices : public DeviceTest {
 protected:
  SharedDevices() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void SetUp() override {
    if (has_gpu()) GTEST_SKIP() << "deaths of the fake driver's processes, and MC_TEST_GPU is set";
  }
  CUdeviceptr open(const CUipcHandle& handle) {
    CUdeviceptr address = 0;
    EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&address, handle, 1), 0);
    return address;
  }

  PeerProcess peer_;
};
using SharedDevicesDeathTest = SharedDevices;

TEST_F(SharedDevices, AnImportShowsTheBytesAtOneAddressUntilItsLastClose) {
  const std::uint64_t theirs = peer_.allocate(4194304);
  peer_.fill(theirs, 4194304, 7);
  const CUipcHandle handle = peer_.share(theirs);
  CUdeviceptr address = 0;
  EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&address, handle, 0), 1) << "the flag must be 1";
  address = open(handle);
  EXPECT_NE(address, theirs);
  EXPECT_EQ(open(handle), address);
  EXPECT_EQ(from_device<unsigned char>(address + 4 * kMiB - 1, 1)[0], 7);
  const unsigned char nine = 9;
  ASSERT_EQ(CU(cuMemcpyHtoD_v2)(address, &nine, 1), 0);
  ASSERT_EQ(CU(cuStreamSynchronize)(nullptr), 0);
  EXPECT_EQ(peer_.tell_of("byte", theirs), "9");
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(address), 0);
  EXPECT_EQ(from_device<unsigned char>(address, 1)[0], 9) << "opened twice, closed once";
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(address), 0);
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(address), 1);
}

TEST_F(SharedDevices, AHandleOfAFreedAllocationCanMeanTheNextOne) {
  const std::uint64_t first = peer_.allocate(2097152);
  const CUipcHandle handle = peer_.share(first);
  EXPECT_EQ(peer_.tell_of("free", first), "ok");
  CUdeviceptr address = 0;
  EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&address, handle, 1), 1);
  const CUipcHandle next = peer_.share(peer_.allocate(2097152));
  EXPECT_EQ(std::memcmp(&handle, &next, sizeof handle), 0);
}

TEST_F(SharedDevices, AHandleOfASmallAllocationShowsItsWholeBlock) {
  const std::uint64_t first = peer_.allocate(1000);
  const std::uint64_t second = peer_.allocate(1000);
  peer_.fill(first, 1000, 3);
  const CUdeviceptr address = open(peer_.share(second));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(CU(cuMemGetAddressRange_v2)(&base, &bytes, address), 0);
  EXPECT_EQ(bytes, 2 * kMiB);
  EXPECT_EQ(address - base, second - first);
  EXPECT_EQ(from_device<unsigned char>(base, 1)[0], 3) << "another allocation's bytes";
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(address), 0);
}

TEST_F(SharedDevices, AProcessCannotOpenItsOwnHandleNorAForgedOne) {
  CUipcHandle handle{};
  ASSERT_EQ(CU(cuIpcGetMemHandle)(&handle, allocate(100)), 0);
  CUdeviceptr address = 0;
  EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&address, handle, 1), 201);
  std::memset(handle.bytes, 0x5a, sizeof handle.bytes);
  EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&address, handle, 1), 1);
  CUevent event = nullptr;
  EXPECT_EQ(CU(cuIpcOpenEventHandle)(&event, handle), 400);
}

TEST_F(SharedDevices, TheOwnerMustNotFreeWhatIsOpen) {
  const std::uint64_t theirs = peer_.allocate(2097152);
  const CUdeviceptr address = open(peer_.share(theirs));
  EXPECT_EQ(peer_.tell_of("free", theirs), "") << "the peer is gone";
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(address), 0);
}

TEST_F(SharedDevices, MemoryOfADeadOwnerStaysUntilItIsClosedAndIsChargedToTheImporter) {
  const std::uint64_t theirs = peer_.allocate(8388608);
  peer_.fill(theirs, 8388608, 5);
  const std::uint64_t other = peer_.allocate(8388608);
  const CUipcHandle never_opened = peer_.share(other);
  const CUdeviceptr address = open(peer_.share(theirs));
  EXPECT_EQ(peer_.number("charged"), 16 * kMiB);
  EXPECT_EQ(fake().charged(), 0u);
  peer_.kill();
  EXPECT_EQ(from_device<unsigned char>(address + 8 * kMiB - 1, 1)[0], 5);
  EXPECT_EQ(fake().charged(), 8 * kMiB);
  CUdeviceptr late = 0;
  EXPECT_EQ(CU(cuIpcOpenMemHandle_v2)(&late, never_opened, 1), 400);
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(address), 0);
  EXPECT_EQ(fake().charged(), 0u);
}

TEST_F(SharedDevices, AStreamWaitsForAnotherProcesssEvent) {
  CUevent event = nullptr;
  ASSERT_EQ(CU(cuIpcOpenEventHandle)(&event, peer_.handle("event")), 0);
  EXPECT_EQ(CU(cuEventQuery)(event), 0) << "never recorded";
  ASSERT_EQ(peer_.tell("record"), "ok");
  ASSERT_EQ(CU(cuStreamWaitEvent)(stream_, event, 0), 0);
  EXPECT_EQ(CU(cuEventQuery)(event), 600);
  EXPECT_EQ(CU(cuStreamQuery)(stream_), 600);
  ASSERT_EQ(peer_.tell("finish"), "ok");
  EXPECT_EQ(CU(cuStreamSynchronize)(stream_), 0);
  EXPECT_EQ(CU(cuEventQuery)(event), 0);
  EXPECT_EQ(CU(cuEventDestroy_v2)(event), 0);
}

TEST_F(SharedDevicesDeathTest, AStreamThatWaitsForADeadProcessNeverEndsAndHoldsUpAFree) {
  // In a process of its own: only the end of the process ends the wait.
  EXPECT_EXIT(
      {
        CUevent event = nullptr;
        const int opened = CU(cuIpcOpenEventHandle)(&event, peer_.handle("event"));
        if (opened != 0 || peer_.tell("record") != "ok") ::_exit(1);
        if (CU(cuStreamWaitEvent)(stream_, event, 0) != 0) ::_exit(2);
        peer_.kill();
        const CUdeviceptr memory = allocate(100);
        std::atomic<bool> freed{false};
        std::thread([&] {
          static_cast<void>(CU(cuCtxPushCurrent_v2)(context_));
          static_cast<void>(CU(cuMemFree_v2)(memory));
          freed = true;
        }).detach();
        if (!until([] { return fake().calls("cuMemFree_v2") > 0; })) ::_exit(5);
        ::usleep(100'000);
        if (CU(cuStreamQuery)(stream_) != 600 || CU(cuEventQuery)(event) != 600) ::_exit(3);
        ::_exit(freed ? 4 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(SharedDevices, UuidsTellWhichDevicesAreTheSame) {
  CUuuid first{};
  CUuuid second{};
  ASSERT_EQ(CU(cuDeviceGetUuid_v2)(&first, 0), 0);
  ASSERT_EQ(CU(cuDeviceGetUuid_v2)(&second, 1), 0);
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
  // The first device of the other process is the second device of this process.
  const CUdeviceptr address = open(peer_.share(peer_.allocate(2097152)));
  int ordinal = -1;
  ASSERT_EQ(CU(cuPointerGetAttribute)(&ordinal, 9, address), 0);
  EXPECT_EQ(ordinal, 1);
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(address), 0);
}

}  // namespace
}  // namespace mc::device::testing
