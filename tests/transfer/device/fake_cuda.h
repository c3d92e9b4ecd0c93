// SPDX-License-Identifier: Apache-2.0
//
// What it is: a libcuda.so.1 of two devices for tests. Device memory has addresses that the host
//   cannot touch: who does ends with SIGSEGV. It can be had for tests at another address.
// Threads: any. Owns what was allocated until the process ends. Trusts its caller, except with
//   pointers: a copy outside of allocations, or without a current context, fails as a driver's
//   does.
#pragma once

#include <cstddef>
#include <cstdint>

struct FakeCuda {
  // managed: memory that host and device reach alike.
  void* (*allocate)(std::size_t bytes, int device, bool managed);
  // Where a test reads and writes what is at the device's address.
  std::byte* (*behind)(const void* device_address);
  // The next copies but `good` fail with CUDA_ERROR_ILLEGAL_ADDRESS; -1: none does.
  void (*fail_after)(int good);
  int (*copies)();
};

extern "C" const FakeCuda* fake_cuda();
