// SPDX-License-Identifier: Apache-2.0
//
// The rules that the fake driver enforces. Results that a real driver leaves undefined end the process here.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "device/device_fixture.h"
#include "patience.h"

namespace mc::device::testing {
namespace {

constexpr CUmemAllocationProp kPosix{1, 1, {1, 0}, nullptr, {}};

// Host memory of whole pages, shared as a pool's is.
class HostMemory {
 public:
  explicit HostMemory(std::size_t bytes, int protection = PROT_READ | PROT_WRITE)
      : bytes_(bytes),
        data_(static_cast<unsigned char*>(
            ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() { ::munmap(data_, bytes_); }
  unsigned char* data() const { return data_; }

 private:
  const std::size_t bytes_;
  unsigned char* const data_;
};

class FakeDriverTest : public DeviceTest {
 protected:
  // A death test starts the program anew: a child of fork() cannot use the driver.
  FakeDriverTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void SetUp() override {
    if (has_gpu()) GTEST_SKIP() << "the rules of the fake driver, and MC_TEST_GPU is set";
  }
  ~FakeDriverTest() override {
    fake().fail(nullptr, 0, 0);
    fake().pin_limit(~std::uint64_t{0});
  }
  int pin(const HostMemory& memory, std::size_t bytes, unsigned flags = 3) {
    return CU(cuMemHostRegister_v2)(memory.data(), bytes, flags);
  }
  int unpin(const HostMemory& memory) { return CU(cuMemHostUnregister)(memory.data()); }
  // The stream stands still until the returned flag is set.
  std::shared_ptr<std::atomic<bool>> hold() {
    auto go = std::make_shared<std::atomic<bool>>(false);
    const auto wait = [](void* data) {
      while (!static_cast<std::atomic<bool>*>(data)->load()) ::usleep(100);
    };
    EXPECT_EQ(CU(cuLaunchHostFunc)(stream_, wait, go.get()), 0);
    return go;
  }
  int synchronize() { return CU(cuStreamSynchronize)(stream_); }
};
using FakeDriverDeathTest = FakeDriverTest;

TEST_F(FakeDriverTest, CallsNeedAContextAndContextsAreOfAThread) {
  std::thread([] {
    CUdeviceptr address = 0;
    EXPECT_EQ(CU(cuMemAlloc_v2)(&address, 1), 201);
    EXPECT_EQ(CU(cuCtxPopCurrent_v2)(nullptr), 201);
  }).join();
}

TEST_F(FakeDriverDeathTest, DeviceMemoryIsNotTheHosts) {
  auto* const address = reinterpret_cast<volatile char*>(allocate(kMiB));
  EXPECT_DEATH({ *address = 1; }, "");
}

TEST_F(FakeDriverDeathTest, AChildOfForkCannotUseTheDriver) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH({ CU(cuCtxSynchronize)(); }, "cuCtxSynchronize: a child of fork");
}

TEST_F(FakeDriverTest, AnAsynchronousCopyLandsLateAndReadsItsSourceLate) {
  HostMemory pinned(kMiB);
  ASSERT_EQ(pin(pinned, kMiB), 0);
  std::memset(pinned.data(), 1, kMiB);
  const CUdeviceptr device = on_device(pinned.data(), kMiB);
  auto go = hold();
  std::memset(pinned.data(), 2, kMiB);
  ASSERT_EQ(CU(cuMemcpyDtoHAsync_v2)(pinned.data(), device, kMiB, stream_), 0);
  EXPECT_NE(pinned.data()[0], 1) << "the bytes must not be there before the stream is";
  EXPECT_NE(pinned.data()[0], 2) << "nor may the old bytes: nobody may read them";
  EXPECT_EQ(CU(cuStreamQuery)(stream_), 600);
  *go = true;
  ASSERT_EQ(synchronize(), 0);
  EXPECT_EQ(pinned.data()[kMiB - 1], 1);

  go = hold();
  ASSERT_EQ(CU(cuMemcpyHtoDAsync_v2)(device, pinned.data(), kMiB, stream_), 0);
  std::memset(pinned.data(), 3, kMiB);  // too early
  *go = true;
  ASSERT_EQ(synchronize(), 0);
  EXPECT_EQ(from_device<unsigned char>(device, 1)[0], 3);
  EXPECT_EQ(unpin(pinned), 0);
}

TEST_F(FakeDriverTest, ACopyOfMemoryThatIsNotPinnedIsCounted) {
  const std::vector<unsigned char> bytes(1000, 4);
  const CUdeviceptr device = allocate(1000);
  const std::uint64_t before = fake().pageable_copies();
  ASSERT_EQ(CU(cuMemcpyHtoDAsync_v2)(device, bytes.data(), 1000, stream_), 0);
  ASSERT_EQ(synchronize(), 0);
  EXPECT_EQ(from_device<unsigned char>(device, 1000), bytes);
  EXPECT_EQ(fake().pageable_copies(), before + 2);
}

TEST_F(FakeDriverDeathTest, MemoryThatACopyUsesIsNeitherFreedNorUnpinned) {
  HostMemory pinned(kMiB);
  ASSERT_EQ(pin(pinned, kMiB), 0);
  const CUdeviceptr device = allocate(kMiB);
  const auto go = hold();
  ASSERT_EQ(CU(cuMemcpyDtoHAsync_v2)(pinned.data(), device, kMiB, stream_), 0);
  EXPECT_DEATH({ CU(cuMemFree_v2)(device); }, "cuMemFree_v2: a copy still uses the memory");
  EXPECT_DEATH({ unpin(pinned); }, "cuMemHostUnregister: a copy still uses the memory");
  *go = true;
  ASSERT_EQ(synchronize(), 0);
  EXPECT_EQ(unpin(pinned), 0);
}

TEST_F(FakeDriverTest, PinsDoNotOverlapAndACopyStaysInOne) {
  HostMemory memory(2 * kMiB);
  ASSERT_EQ(pin(memory, kMiB), 0);
  EXPECT_EQ(pin(memory, 4096), 712);
  EXPECT_EQ(CU(cuMemHostUnregister)(memory.data() + 4096), 713) << "only the exact address";
  const CUdeviceptr device = allocate(2 * kMiB);
  EXPECT_EQ(CU(cuMemcpyHtoDAsync_v2)(device, memory.data(), 2 * kMiB, stream_), 1)
      << "half of it is pinned";
  ASSERT_EQ(CU(cuMemHostRegister_v2)(memory.data() + kMiB, kMiB, 3), 0);
  EXPECT_EQ(CU(cuMemcpyHtoDAsync_v2)(device, memory.data(), 2 * kMiB, stream_), 1) << "two pins";
  EXPECT_EQ(CU(cuMemHostUnregister)(memory.data() + kMiB), 0);
  EXPECT_EQ(unpin(memory), 0);
  EXPECT_EQ(unpin(memory), 713);

  HostMemory readable(kMiB, PROT_READ);
  EXPECT_EQ(pin(readable, kMiB, 3), 1);
  EXPECT_EQ(pin(readable, kMiB, 3 | 8), 0);
  EXPECT_EQ(unpin(readable), 0);
  fake().pin_limit(kMiB);
  EXPECT_EQ(pin(memory, 2 * kMiB), 2);
  EXPECT_EQ(CU(cuMemHostRegister_v2)(reinterpret_cast<void*>(4096), 4096, 3), 1) << "no memory";
}

TEST_F(FakeDriverDeathTest, AHoleIsAnIllegalAddressLaterAndPoisonsTheProcess) {
  // In a process of its own, because no call succeeds afterwards.
  EXPECT_EXIT(
      {
        auto* const chunks = static_cast<std::byte*>(fake().allocate_chunks(2 * kMiB, 3, 1, 0));
        const CUdeviceptr to = allocate(6 * kMiB);
        const auto from = reinterpret_cast<CUdeviceptr>(chunks);
        if (CU(cuMemcpyAsync)(to, from, 6 * kMiB, stream_) != 0) ::_exit(1);
        if (synchronize() != 700) ::_exit(2);
        if (CU(cuMemAlloc_v2)(&allocated_[0], 1) != 700) ::_exit(3);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(FakeDriverTest, ABatchRefusesTheDefaultStreamAndHasNoOrder) {
  const std::vector<unsigned char> bytes(4096, 5);
  CUdeviceptr from[] = {on_device(bytes.data(), 4096), allocate(4096)};
  CUdeviceptr to[] = {allocate(4096), allocate(4096)};
  std::size_t sizes[] = {4096, 4096};
  std::size_t first = 0;
  CUmemcpyAttributes attributes{1, {}, {}, 0};
  EXPECT_EQ(CU(cuMemcpyBatchAsync_v2)(to, from, sizes, 2, &attributes, &first, 1, nullptr), 1);
  std::size_t failed = 0;
  EXPECT_EQ(CU(cuMemcpyBatchAsync)(to, from, sizes, 2, &attributes, &first, 1, &failed, stream_),
            0);
  ASSERT_EQ(synchronize(), 0);
  EXPECT_EQ(from_device<unsigned char>(to[0], 4096), bytes);
  attributes.srcAccessOrder = 0;
  EXPECT_EQ(CU(cuMemcpyBatchAsync_v2)(to, from, sizes, 2, &attributes, &first, 1, stream_), 1);
}

TEST_F(FakeDriverTest, AStreamWaitsForAValueOfAnotherStreamOrOfAProcessor) {
  HostMemory pinned(4096);
  ASSERT_EQ(pin(pinned, 4096), 0);
  CUdeviceptr flag = 0;
  ASSERT_EQ(CU(cuMemHostGetDevicePointer_v2)(&flag, pinned.data(), 0), 0);
  CUstream other = nullptr;
  ASSERT_EQ(CU(cuStreamCreate)(&other, 1), 0);
  auto* const value = reinterpret_cast<std::uint64_t*>(pinned.data());
  *value = 0;
  ASSERT_EQ(CU(cuStreamWaitValue64_v2)(stream_, flag, 5, 0), 0);
  ::usleep(20'000);
  EXPECT_EQ(CU(cuStreamQuery)(stream_), 600);
  ASSERT_EQ(CU(cuStreamWriteValue64_v2)(other, flag, 6, 0), 0);
  EXPECT_EQ(synchronize(), 0);
  EXPECT_EQ(CU(cuStreamSynchronize)(other), 0);
  EXPECT_EQ(*value, 6u);

  // The comparison is cyclic and signed: all ones are -1, which is less than 6.
  __atomic_store_n(value, ~std::uint64_t{0}, __ATOMIC_RELEASE);
  ASSERT_EQ(CU(cuStreamWaitValue64_v2)(stream_, flag, 6, 0), 0);
  ::usleep(20'000);
  EXPECT_EQ(CU(cuStreamQuery)(stream_), 600);
  __atomic_store_n(value, std::uint64_t{INT64_MAX}, __ATOMIC_RELEASE);
  EXPECT_EQ(synchronize(), 0);
  EXPECT_EQ(CU(cuStreamDestroy_v2)(other), 0);
  EXPECT_EQ(unpin(pinned), 0);
}

TEST_F(FakeDriverDeathTest, AStreamTakesADevicesAddressForAValue) {
  HostMemory pinned(4096);
  ASSERT_EQ(pin(pinned, 4096), 0);
  const auto host = reinterpret_cast<CUdeviceptr>(pinned.data());
  EXPECT_DEATH(
      {
        CU(cuStreamWriteValue64_v2)
        (stream_, host, 1, 0);
      },
      "cuStreamWriteValue64_v2: host memory needs the address");
  EXPECT_EQ(unpin(pinned), 0);
}

TEST_F(FakeDriverTest, TheDefaultStreamAndBlockingStreamsWaitForEachOther) {
  CUstream blocking = nullptr;
  ASSERT_EQ(CU(cuStreamCreate)(&blocking, 0), 0);
  const std::vector<unsigned char> bytes(4096, 6);
  const CUdeviceptr from = on_device(bytes.data(), 4096);
  const CUdeviceptr between = allocate(4096);
  for (int i = 0; i < 20; ++i) {
    const CUdeviceptr to = allocate(4096);
    ASSERT_EQ(CU(cuMemcpyAsync)(between, from, 4096, blocking), 0);
    ASSERT_EQ(CU(cuMemcpyAsync)(to, between, 4096, nullptr), 0);
    ASSERT_EQ(CU(cuMemcpyAsync)(between, allocate(4096), 4096, blocking), 0);
    ASSERT_EQ(CU(cuStreamSynchronize)(blocking), 0);
    EXPECT_EQ(from_device<unsigned char>(to, 4096), bytes);
  }
  EXPECT_EQ(CU(cuStreamDestroy_v2)(blocking), 0);
}

TEST_F(FakeDriverTest, AnEventIsCompleteWhenItsStreamIs) {
  CUevent event = nullptr;
  EXPECT_EQ(CU(cuEventCreate)(&event, 4), 1) << "an event between processes has no timing";
  ASSERT_EQ(CU(cuEventCreate)(&event, 6), 0);
  EXPECT_EQ(CU(cuEventQuery)(event), 0) << "never recorded";
  const auto go = hold();
  ASSERT_EQ(CU(cuEventRecord)(event, stream_), 0);
  EXPECT_EQ(CU(cuEventQuery)(event), 600);
  CUstream other = nullptr;
  ASSERT_EQ(CU(cuStreamCreate)(&other, 1), 0);
  ASSERT_EQ(CU(cuStreamWaitEvent)(other, event, 0), 0);
  EXPECT_EQ(CU(cuStreamQuery)(other), 600);
  *go = true;
  EXPECT_EQ(CU(cuEventSynchronize)(event), 0);
  EXPECT_EQ(CU(cuStreamSynchronize)(other), 0);
  EXPECT_EQ(CU(cuStreamDestroy_v2)(other), 0);
  EXPECT_EQ(CU(cuEventDestroy_v2)(event), 0);
}

TEST_F(FakeDriverDeathTest, AHostFunctionCallsNoDriver) {
  EXPECT_DEATH(
      {
        CU(cuLaunchHostFunc)
        (
            stream_,
            [](void*) {
              CU(cuCtxSynchronize)
              ();
            },
            nullptr);
        synchronize();
      },
      "cuCtxSynchronize: a host function must not call the driver");
}

TEST_F(FakeDriverTest, AStreamInCaptureRefusesToBeWaitedFor) {
  fake().capture(stream_, true);
  EXPECT_EQ(CU(cuStreamQuery)(stream_), 900);
  EXPECT_EQ(synchronize(), 900);
  fake().capture(stream_, false);
  EXPECT_EQ(synchronize(), 0);
}

TEST_F(FakeDriverTest, PhysicalMemoryIsMappedWholeAndThenMadeAccessible) {
  CUphysical handle = 0;
  EXPECT_EQ(CU(cuMemCreate)(&handle, kMiB, &kPosix, 0), 1) << "not a multiple of 2 MiB";
  ASSERT_EQ(CU(cuMemCreate)(&handle, 2 * kMiB, &kPosix, 0), 0);
  CUdeviceptr address = 0;
  ASSERT_EQ(CU(cuMemAddressReserve)(&address, 4 * kMiB, 0, 0, 0), 0);
  EXPECT_EQ(CU(cuMemMap)(address, 2 * kMiB, 4096, handle, 0), 1);
  ASSERT_EQ(CU(cuMemMap)(address, 2 * kMiB, 0, handle, 0), 0);
  const CUmemAccessDesc access{{1, 0}, 3};
  ASSERT_EQ(CU(cuMemSetAccess)(address, 2 * kMiB, &access, 1), 0);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(CU(cuMemGetAddressRange_v2)(&base, &bytes, address + 5), 0);
  EXPECT_EQ(bytes, 2 * kMiB);
  ASSERT_EQ(CU(cuPointerGetAttribute)(&bytes, 12, address), 0);
  EXPECT_EQ(bytes, 4 * kMiB) << "the reservation";

  // Another mapping of the same bytes, by a descriptor. The handle may go: mappings keep the memory.
  int fd = -1;
  CUphysical imported = 0;
  EXPECT_EQ(CU(cuMemExportToShareableHandle)(&fd, handle, 8, 0), 1) << "not asked for at creation";
  ASSERT_EQ(CU(cuMemExportToShareableHandle)(&fd, handle, 1, 0), 0);
  ASSERT_EQ(CU(cuMemRelease)(handle), 0);
  auto* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  ASSERT_EQ(CU(cuMemImportFromShareableHandle)(&imported, descriptor, 1), 0);
  ASSERT_EQ(::close(fd), 0);
  ASSERT_EQ(CU(cuMemMap)(address + 2 * kMiB, 2 * kMiB, 0, imported, 0), 0);
  ASSERT_EQ(CU(cuMemSetAccess)(address + 2 * kMiB, 2 * kMiB, &access, 1), 0);
  ASSERT_EQ(CU(cuMemRelease)(imported), 0);
  const std::vector<unsigned char> written(100, 9);
  ASSERT_EQ(CU(cuMemcpyHtoD_v2)(address, written.data(), 100), 0);
  EXPECT_EQ(from_device<unsigned char>(address + 2 * kMiB, 100), written);
  EXPECT_EQ(fake().charged(), 2 * kMiB);
  ASSERT_EQ(CU(cuMemUnmap)(address, 4 * kMiB), 0);
  ASSERT_EQ(CU(cuMemAddressFree)(address, 4 * kMiB), 0);
  EXPECT_EQ(fake().charged(), 0u);

  CUmemAllocationProp fabric = kPosix;
  fabric.requestedHandleTypes = 8;
  ASSERT_EQ(CU(cuMemCreate)(&handle, 2 * kMiB, &fabric, 0), 0) << "creation succeeds";
  std::byte name[64];
  EXPECT_EQ(CU(cuMemExportToShareableHandle)(name, handle, 8, 0), 800);
  EXPECT_EQ(CU(cuMemRelease)(handle), 0);
}

TEST_F(FakeDriverTest, ADmaBufIsOfWholePages) {
  const CUdeviceptr address = allocate(4 * kMiB);
  int fd = -1;
  EXPECT_EQ(CU(cuMemGetHandleForAddressRange)(&fd, address + 8, 4096, 1, 0), 1);
  EXPECT_EQ(CU(cuMemGetHandleForAddressRange)(&fd, address, 4096, 1, 1), 801);
  ASSERT_EQ(CU(cuMemGetHandleForAddressRange)(&fd, address, 4 * kMiB, 1, 0), 0);
  EXPECT_EQ(::close(fd), 0);
}

TEST_F(FakeDriverTest, ACallFailsOnDemandAndCallsAreCounted) {
  const std::uint64_t before = fake().calls("cuMemAlloc_v2");
  fake().fail("cuMemAlloc", 1, 2);
  CUdeviceptr address = allocate(100);
  EXPECT_EQ(CU(cuMemAlloc_v2)(&address, 100), 2);
  fake().fail(nullptr, 0, 0);
  EXPECT_EQ(fake().calls("cuMemAlloc_v2"), before + 2);
}

TEST_F(FakeDriverTest, AListOfLeaksNamesWhatIsHeld) {
  EXPECT_STREQ(fake().leaks(), "1 streams\n");
  allocate(100);
  CUevent event = nullptr;
  ASSERT_EQ(CU(cuEventCreate)(&event, 0), 0);
  EXPECT_STREQ(fake().leaks(), "1 allocations\n1 streams\n1 events\n");
  EXPECT_EQ(CU(cuEventDestroy_v2)(event), 0);
}

}  // namespace
}  // namespace mc::device::testing
