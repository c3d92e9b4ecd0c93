// SPDX-License-Identifier: Apache-2.0
//
// A libcuda.so.1 with two devices for tests. An access of the host to device memory
//   ends with SIGSEGV. Tests reach the same bytes at another address.
#pragma once

#include <cstddef>
#include <cstdint>

struct FakeCuda {
  // managed: memory that both the host and the device can access.
  void* (*allocate)(std::size_t bytes, int device, bool managed);
  // Memory as torch's expandable segments: chunks of equal size in one reservation, of which one is
  // not mapped.
  void* (*allocate_chunks)(std::size_t chunk_bytes, std::size_t count, std::size_t hole,
                           int device);
  // The host address of the bytes at a device address.
  std::byte* (*behind)(const void* device_address);
  // After `good` more copies, copies fail with CUDA_ERROR_ILLEGAL_ADDRESS; -1: no copy fails.
  void (*fail_after)(int good);
  int (*copies)();
};

extern "C" const FakeCuda* fake_cuda();
