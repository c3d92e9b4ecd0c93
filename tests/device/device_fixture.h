// SPDX-License-Identifier: Apache-2.0
//
// Tests on a device: the fake driver, or a real driver (driver_library.h).
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "device/driver_library.h"
#include "libmc/device/driver.h"

namespace mc::device::testing {

inline constexpr std::size_t kMiB = 1 << 20;

// The first device is current in the test's thread.
class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() {
    EXPECT_EQ(CU(cuInit)(0), 0);
    EXPECT_EQ(CU(cuDevicePrimaryCtxRetain)(&context_, 0), 0);
    EXPECT_EQ(CU(cuCtxPushCurrent_v2)(context_), 0);
    EXPECT_EQ(CU(cuStreamCreate)(&stream_, 1), 0);
  }
  ~DeviceTest() override {
    for (const CUdeviceptr address : allocated_) EXPECT_EQ(CU(cuMemFree_v2)(address), 0);
    EXPECT_EQ(CU(cuStreamDestroy_v2)(stream_), 0);
    EXPECT_EQ(CU(cuCtxPopCurrent_v2)(nullptr), 0);
    EXPECT_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), 0);
  }

  CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(CU(cuMemAlloc_v2)(&address, bytes), 0);
    allocated_.push_back(address);
    return address;
  }
  CUdeviceptr on_device(const void* bytes, std::size_t size) {
    const CUdeviceptr address = allocate(size);
    EXPECT_EQ(CU(cuMemcpyHtoD_v2)(address, bytes, size), 0);
    EXPECT_EQ(CU(cuStreamSynchronize)(nullptr), 0);
    return address;
  }
  template <typename Item>
  std::vector<Item> from_device(CUdeviceptr address, std::size_t count) {
    std::vector<Item> items(count);
    EXPECT_EQ(CU(cuMemcpyDtoH_v2)(items.data(), address, count * sizeof(Item)), 0);
    return items;
  }

  // The bytes of device memory that this process keeps. A real driver does not tell.
  static void expect_charged(std::uint64_t bytes) {
    if (!has_gpu()) {
      EXPECT_EQ(fake().charged(), bytes);
    }
  }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<CUdeviceptr> allocated_;
};

}  // namespace mc::device::testing
