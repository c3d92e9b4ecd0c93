// SPDX-License-Identifier: Apache-2.0
#include "libmc/device/pinned_buffers.h"

#include "device/device_fixture.h"

namespace mc::device::testing {
namespace {

class PinnedBuffersTest : public DeviceTest {
 protected:
  static std::vector<char> painted(std::size_t bytes, std::size_t seed) {
    std::vector<char> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(seed + i + i / 251);
    return made;
  }
  const Driver& driver_ = *Driver::find();
};

TEST_F(PinnedBuffersTest, CopiesPiecesOfAllSizesBothWaysWithoutPageableCopies) {
  const auto buffers = PinnedBuffers::create(driver_, 0);
  ASSERT_TRUE(buffers) << buffers.error().text();
  const std::size_t sizes[] = {1, 2, 4095, 70'000, 512 * 1024, 0, 3 * kMiB + 7, 1};
  std::size_t all = 0;
  for (const std::size_t size : sizes) all += size;
  const std::vector<char> value = painted(all, 3);
  const CUdeviceptr from = on_device(value.data(), all);
  const CUdeviceptr to = allocate(all);
  std::vector<char> host(all);
  std::vector<DevicePiece> out, in;
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    auto* const place = reinterpret_cast<std::byte*>(host.data()) + at;
    out.push_back({from + at, place, size});
    in.push_back({to + at, place, size});
    at += size;
  }
  const std::uint64_t pageable = has_gpu() ? 0 : fake().pageable_copies();
  ASSERT_TRUE((*buffers)->copy(Direction::kFromDevice, out).ok());
  EXPECT_TRUE(host == value);
  ASSERT_TRUE((*buffers)->copy(Direction::kToDevice, in).ok());
  if (!has_gpu()) {
    EXPECT_EQ(fake().pageable_copies(), pageable);
  }
  EXPECT_TRUE(from_device<char>(to, all) == value);
}

TEST_F(PinnedBuffersTest, AFailedCopyLeavesNothingUnderWay) {
  if (has_gpu()) GTEST_SKIP() << "no driver but the fake fails on demand";
  const auto buffers = PinnedBuffers::create(driver_, 0);
  ASSERT_TRUE(buffers);
  const std::vector<char> value = painted(4 * kMiB, 5);
  const CUdeviceptr from = on_device(value.data(), value.size());
  std::vector<char> host(value.size());
  const DevicePiece piece{from, reinterpret_cast<std::byte*>(host.data()), host.size()};
  for (const char* call : {"cuMemcpyDtoHAsync", "cuEventRecord", "cuEventSynchronize"}) {
    fake().fail(call, 2, 2);
    EXPECT_EQ((*buffers)->copy(Direction::kFromDevice, {&piece, 1}).code(), MC_DEVICE_FAILED)
        << call;
    fake().fail(nullptr, 0, 0);
    ASSERT_TRUE((*buffers)->copy(Direction::kFromDevice, {&piece, 1}).ok()) << call;
    EXPECT_TRUE(host == value) << call;
  }
}

TEST_F(PinnedBuffersTest, ADriverThatPinsNothingIsReported) {
  if (has_gpu()) GTEST_SKIP() << "no driver but the fake fails on demand";
  fake().fail("cuMemHostRegister", 0, 2);
  const auto buffers = PinnedBuffers::create(driver_, 0);
  fake().fail(nullptr, 0, 0);
  EXPECT_EQ(buffers.error().code(), MC_DEVICE_FAILED);
  EXPECT_STREQ(fake().leaks(), "1 streams\n");
}

}  // namespace
}  // namespace mc::device::testing
