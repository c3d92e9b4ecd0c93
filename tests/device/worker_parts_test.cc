// SPDX-License-Identifier: Apache-2.0
//
// Parts of the worker of a device (agent/gpu): imports, pinned memory, copies.
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "agent/gpu/copier.h"
#include "agent/gpu/imports.h"
#include "agent/gpu/pinned_memory.h"
#include "device/device_fixture.h"
#include "device/peer_process.h"
#include "patience.h"

namespace mc::gpu {
namespace {

using device::testing::kMiB;

class WorkerParts : public device::testing::DeviceTest {
 protected:
  const device::Driver& driver_ = *device::Driver::find();
};

class CopierTest : public WorkerParts {
 protected:
  CopierTest() {
    file_ = MemoryFile::create("host", kBytes).value();
    EXPECT_TRUE(file_.reserve(0, kBytes).ok());
    pinned_ = std::make_unique<PinnedMemory>(
        driver_, 0, Mapping::map_all(file_, Mapping::Access::kReadWrite).value(), kBytes, true);
    memory_ = pinned_->data();
    EXPECT_TRUE(pinned_->grow(0, kBytes).value());
    auto made = Copier::create(driver_, 0);
    EXPECT_TRUE(made);
    copier_ = std::move(*made);
    std::minstd_rand chance(11);
    for (std::size_t i = 0; i < kBytes; ++i) memory_[i] = static_cast<std::byte>(chance());
  }
  ~CopierTest() override {
    copier_.reset();
    pinned_.reset();
  }
  // Polls until the group has ended.
  void finish(std::uint64_t tag) {
    ASSERT_TRUE(until([&] {
      EXPECT_TRUE(copier_->poll(done_).ok());
      return std::find(done_.begin(), done_.end(), tag) != done_.end();
    }));
  }
  std::uint64_t calls(const char* prefix) { return device::testing::fake().calls(prefix); }

  static constexpr std::size_t kBytes = 5 * kMiB;
  MemoryFile file_;
  std::byte* memory_ = nullptr;
  std::unique_ptr<PinnedMemory> pinned_;
  std::unique_ptr<Copier> copier_;
  std::vector<std::uint64_t> done_;
};

TEST_F(CopierTest, CopiesOfEverySizeArriveBothWays) {
  const CUdeviceptr device = allocate(kBytes);
  std::uint64_t tag = 0;
  for (const std::uint64_t bytes :
       {1UL, 2UL, 3UL, 4095UL, 4096UL, 32767UL, 32768UL, 300001UL, 2 * kMiB}) {
    ASSERT_TRUE(
        copier_->submit(std::vector<Copy>{{true, device + 64, memory_, bytes}}, ++tag).ok());
    finish(tag);
    std::byte* const back = memory_ + 2 * kMiB;
    std::fill_n(back, bytes + 1, std::byte{0x77});
    ASSERT_TRUE(copier_->submit(std::vector<Copy>{{false, device + 64, back, bytes}}, ++tag).ok());
    finish(tag);
    EXPECT_TRUE(std::equal(back, back + bytes, memory_)) << bytes;
    EXPECT_EQ(back[bytes], std::byte{0x77}) << "a byte behind the copy of " << bytes;
  }
  EXPECT_TRUE(copier_->is_idle());
}

TEST_F(CopierTest, SmallCopiesToADeviceAreNoLinearOnes) {
  if (device::testing::has_gpu()) GTEST_SKIP() << "no driver but the fake counts calls";
  const CUdeviceptr device = allocate(kBytes);
  const std::uint64_t linear = calls("cuMemcpyHtoDAsync");
  ASSERT_TRUE(copier_->submit(std::vector<Copy>{{true, device, memory_, 16385}}, 1).ok());
  finish(1);
  EXPECT_EQ(calls("cuMemcpyHtoDAsync"), linear);
}

TEST_F(CopierTest, NeighboursAreOneCopyAndAGroupEndsOnce) {
  if (device::testing::has_gpu()) GTEST_SKIP() << "no driver but the fake counts calls";
  const CUdeviceptr device = allocate(kBytes);
  const std::uint64_t before = calls("cuMemcpyDtoHAsync");
  std::vector<Copy> copies;
  for (std::uint64_t i = 0; i < 16; ++i) {
    copies.push_back({false, device + i * 4096, memory_ + i * 4096, 4096});
  }
  copies.push_back({false, device + 100 * 4096, memory_ + 16 * 4096, 4096});
  copies[7].apart = true;
  ASSERT_TRUE(copier_->submit(copies, 1).ok());
  EXPECT_EQ(calls("cuMemcpyDtoHAsync"), before + 3);
  // An empty group ends, too.
  ASSERT_TRUE(copier_->submit({}, 2).ok());
  finish(1);
  finish(2);
  EXPECT_EQ(done_.size(), 2u);
}

TEST_F(CopierTest, ARefusedCopyIsAnErrorWithTheNameOfTheCall) {
  if (device::testing::has_gpu()) GTEST_SKIP() << "no driver but the fake fails on demand";
  const CUdeviceptr device = allocate(kBytes);
  device::testing::fake().fail("cuMemcpyDtoHAsync", 0, 2);
  const Status status = copier_->submit(std::vector<Copy>{{false, device, memory_, 4096}}, 1);
  device::testing::fake().fail(nullptr, 0, 0);
  EXPECT_EQ(status.code(), MC_DEVICE_FAILED);
  EXPECT_NE(status.text().find("cuMemcpyDtoHAsync"), std::string_view::npos);
}

TEST_F(WorkerParts, MemoryIsPinnedAsItComesAndUnpinnedBeforeItGoes) {
  constexpr std::uint64_t kPiece = PinnedMemory::kPieceBytes;
  constexpr std::uint64_t kPart = 2 * kPiece;
  const std::uint64_t parts[] = {kPart, kPart};
  const MemoryFile file = MemoryFile::create_growing("pool", parts).value();
  ASSERT_TRUE(file.reserve(0, kPart).ok());
  ASSERT_TRUE(file.reserve(kPart, 8192).ok());
  const std::uint64_t pins =
      device::testing::has_gpu() ? 0 : device::testing::fake().calls("cuMemHostRegister");
  PinnedMemory pinned(driver_, 0, Mapping::map_all(file, Mapping::Access::kReadWrite).value(),
                      kPart, true);
  EXPECT_EQ(pinned.pinned_from(0), 0u);
  EXPECT_TRUE(pinned.grow(0, 4096).value());
  EXPECT_EQ(pinned.pinned_from(5), 4091u);
  EXPECT_TRUE(pinned.grow(0, kPart).value());
  EXPECT_EQ(pinned.pinned_from(5), 4091u) << "a copy stays within one registration";
  EXPECT_EQ(pinned.pinned_from(4096), kPiece);
  EXPECT_TRUE(pinned.grow(0, kPart).value());
  EXPECT_FALSE(pinned.grow(0, kPart).value());
  EXPECT_EQ(pinned.pinned_bytes(), kPart);
  EXPECT_EQ(pinned.pinned_from(kPart), 0u) << "the second part";
  EXPECT_TRUE(pinned.grow(1, 8192).value());
  EXPECT_EQ(pinned.pinned_from(kPart), 8192u);
  pinned.shrink(0, kPiece);
  EXPECT_EQ(pinned.pinned_from(kPiece + 4096), 0u);
  EXPECT_LE(pinned.pinned_bytes(), kPiece + 8192);
  EXPECT_EQ(pinned.pinned_from(kPart), 8192u);
  if (!device::testing::has_gpu()) {
    EXPECT_EQ(device::testing::fake().calls("cuMemHostRegister"), pins + 4);
  }
}

class ImportsTest : public WorkerParts {
 protected:
  // A line for each kind of thing that this process holds. A real driver does not tell.
  static std::string held() {
    return device::testing::has_gpu() ? "" : device::testing::fake().leaks();
  }
  static device::IpcHandle handle_of(const CUipcHandle& handle) {
    device::IpcHandle same{};
    std::copy(std::begin(handle.bytes), std::end(handle.bytes), same.bytes);
    return same;
  }
  device::IpcHandle share(std::uint64_t address) { return handle_of(peer_.share(address)); }

  device::testing::PeerProcess peer_;
  Imports imports_{driver_, 0};
};

TEST_F(ImportsTest, AnAllocationIsOpenedOnceHoweverManyCallsUseIt) {
  const std::uint64_t theirs = peer_.allocate(4 * kMiB);
  peer_.fill(theirs, 4 * kMiB, 6);
  const device::IpcHandle handle = share(theirs);
  const std::uint64_t calls =
      device::testing::has_gpu() ? 0 : device::testing::fake().calls("cuIpcOpenMemHandle");
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(imports_.open({1, 1}, handle, 4 * kMiB).ok());
    const auto at = imports_.use({1, 1}, 4 * kMiB - 1, 1);
    ASSERT_TRUE(at);
    if (i == 0) {
      EXPECT_EQ(from_device<unsigned char>(*at, 1)[0], 6);
    }
    imports_.done({1, 1});
  }
  EXPECT_EQ(imports_.counters().opened, 1u);
  if (!device::testing::has_gpu()) {
    EXPECT_EQ(device::testing::fake().calls("cuIpcOpenMemHandle"), calls + 1);
  }
}

TEST_F(ImportsTest, ARangeBeyondTheAllocationAndAWrongHandleAreRefused) {
  const std::uint64_t theirs = peer_.allocate(4096);
  const device::IpcHandle handle = share(theirs);
  EXPECT_EQ(imports_.open({1, 1}, handle, 3 * kMiB).code(), MC_INVALID_ARGUMENT)
      << "the block has 2 MiB";
  ASSERT_TRUE(imports_.open({1, 1}, handle, 4096).ok());
  EXPECT_EQ(imports_.use({1, 1}, 4096, 1).error().code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(imports_.use({1, 1}, ~std::uint64_t{0}, 2).error().code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(imports_.use({1, 1}, 1, ~std::uint64_t{0}).error().code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(imports_.use({2, 1}, 0, 1).error().code(), MC_NOT_FOUND) << "another client's";
  device::IpcHandle forged{};
  EXPECT_EQ(imports_.open({1, 1}, forged, 4096).code(), MC_INVALID_ARGUMENT) << "the name is taken";
  EXPECT_EQ(imports_.open({1, 2}, forged, 4096).code(), MC_DEVICE_FAILED);
  EXPECT_EQ(imports_.size(), 1u);
}

TEST_F(ImportsTest, AnImportIsClosedWhenTheLastCopyHasEnded) {
  ASSERT_TRUE(imports_.open({1, 1}, share(peer_.allocate(4096)), 4096).ok());
  ASSERT_TRUE(imports_.open({1, 2}, share(peer_.allocate(2 * kMiB)), 2 * kMiB).ok());
  ASSERT_TRUE(imports_.open({2, 1}, share(peer_.allocate(2 * kMiB)), 2 * kMiB).ok());
  ASSERT_TRUE(imports_.use({1, 1}, 0, 10));
  imports_.close_all(1);
  EXPECT_EQ(imports_.counters().closed, 1u);
  EXPECT_EQ(imports_.use({1, 1}, 0, 10).error().code(), MC_NOT_FOUND);
  imports_.done({1, 1});
  EXPECT_EQ(imports_.counters().closed, 2u);
  EXPECT_EQ(imports_.size(), 1u);
  peer_.kill();
  expect_charged(2 * kMiB);  // a dead client's memory
  imports_.close_all(2);
  expect_charged(0);
}

TEST_F(ImportsTest, ChunksAreMappedOneBehindTheOtherAllOrNone) {
  if (device::testing::has_gpu()) GTEST_SKIP() << "no driver but the fake fails on demand";
  const std::uint64_t theirs = peer_.number("chunks 3");
  peer_.fill(theirs, 2 * kMiB, 1);
  peer_.fill(theirs + 2 * kMiB, 4 * kMiB, 2);
  const Fd chunks[] = {peer_.chunk(0), peer_.chunk(1), peer_.chunk(2)};
  const std::uint64_t sizes[] = {2 * kMiB, 2 * kMiB, 2 * kMiB};
  const auto add = [&](std::size_t from, std::size_t count) {
    return imports_.add_chunks({1, 1}, 6 * kMiB, std::span(chunks).subspan(from, count),
                               std::span(sizes).subspan(from, count));
  };
  const std::string before = held();
  ASSERT_TRUE(add(0, 1).ok());
  EXPECT_EQ(imports_.use({1, 1}, 2 * kMiB - 1, 2).error().code(), MC_INVALID_ARGUMENT);
  // The second of two chunks fails: none is added.
  device::testing::fake().fail("cuMemMap", 1, 2);
  EXPECT_EQ(add(1, 2).code(), MC_DEVICE_FAILED);
  device::testing::fake().fail("cuMemSetAccess", 0, 2);
  EXPECT_EQ(add(1, 2).code(), MC_DEVICE_FAILED);
  device::testing::fake().fail(nullptr, 0, 0);
  EXPECT_EQ(imports_.use({1, 1}, 2 * kMiB - 1, 2).error().code(), MC_INVALID_ARGUMENT);
  ASSERT_TRUE(add(1, 2).ok());
  const auto at = imports_.use({1, 1}, 2 * kMiB - 1, 2);
  ASSERT_TRUE(at);
  EXPECT_EQ(from_device<unsigned char>(*at, 2), (std::vector<unsigned char>{1, 2}));
  EXPECT_EQ(add(0, 1).code(), MC_INVALID_ARGUMENT) << "beyond the reservation";
  EXPECT_EQ(imports_.size(), 1u);
  imports_.close({1, 1});
  EXPECT_EQ(imports_.size(), 1u) << "in use";
  imports_.done({1, 1});
  EXPECT_EQ(imports_.size(), 0u);
  EXPECT_EQ(held(), before);
}

TEST_F(ImportsTest, ForgedChunksAreRefusedAndLeaveNothing) {
  const std::string before = held();
  peer_.number("chunks 1");
  const Fd chunks[] = {Fd(::memfd_create("no chunk", MFD_CLOEXEC)), peer_.chunk(0)};
  const auto add = [&](std::uint64_t whole, const Fd& chunk, std::uint64_t bytes) {
    return imports_.add_chunks({1, 2}, whole, std::span(&chunk, 1), std::span(&bytes, 1)).code();
  };
  EXPECT_EQ(add(2 * kMiB, chunks[0], 2 * kMiB), MC_DEVICE_FAILED);
  EXPECT_EQ(add(2 * kMiB, chunks[1], 4096), MC_DEVICE_FAILED) << "not the chunk's size";
  EXPECT_EQ(add(2 * kMiB, chunks[1], 0), MC_INVALID_ARGUMENT);
  EXPECT_EQ(add(2 * kMiB, chunks[1], 4 * kMiB), MC_INVALID_ARGUMENT);
  EXPECT_EQ(add(0, chunks[1], 2 * kMiB), MC_INVALID_ARGUMENT);
  EXPECT_EQ(add(~std::uint64_t{0}, chunks[1], 2 * kMiB), MC_INVALID_ARGUMENT);
  EXPECT_EQ(imports_.size(), 0u);
  // A name stands for a handle or for chunks.
  const std::uint64_t theirs = peer_.allocate(2 * kMiB);
  ASSERT_TRUE(imports_.open({1, 2}, share(theirs), 2 * kMiB).ok());
  EXPECT_EQ(add(2 * kMiB, chunks[1], 2 * kMiB), MC_INVALID_ARGUMENT);
  imports_.close({1, 2});
  EXPECT_EQ(add(2 * kMiB, chunks[1], 2 * kMiB), MC_OK);
  EXPECT_EQ(imports_.open({1, 2}, share(theirs), 2 * kMiB).code(), MC_INVALID_ARGUMENT);
  imports_.close({1, 2});
  EXPECT_EQ(held(), before);
}

}  // namespace
}  // namespace mc::gpu
