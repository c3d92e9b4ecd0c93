// SPDX-License-Identifier: Apache-2.0
//
// A strict libcuda.so.1 for tests. Device memory lies in files, streams are threads that are late on
//   purpose, and a misuse ends the process with the name of the call (README.md has the rules).
//   Processes with the same folder in MC_FAKE_DRIVER share the devices; without that variable a
//   process has two devices that no other process sees.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

// Answers and faults that a real driver does not offer.
struct FakeDriver {
  // Initializes the driver, as an engine does, and allocates. managed: memory that both the host and
  // the device can access. Null: no memory.
  void* (*allocate)(std::size_t bytes, int device, bool managed);
  // Memory as torch's expandable segments: chunks of equal size in a reservation. The chunk `hole` is
  // not mapped. Sizes are multiples of 2 MiB.
  void* (*allocate_chunks)(std::size_t chunk_bytes, std::size_t count, std::size_t hole,
                           int device);
  // The host address of the bytes at a device address; null: no device memory.
  std::byte* (*behind)(const void* device_address);
  // After `good` more calls whose names begin with `prefix`, such calls return the error. Null: no
  // call fails.
  void (*fail)(const char* prefix, int good, int error);
  // The calls so far whose names begin with `prefix`.
  std::uint64_t (*calls)(const char* prefix);
  // The bytes of device memory that the driver charges to this process.
  std::uint64_t (*charged)();
  // The copies between device memory and memory that is not pinned.
  std::uint64_t (*pageable_copies)();
  // A stream in capture refuses calls that a capture cannot hold.
  void (*capture)(void* stream, bool on);
  // Pinning fails with CUDA_ERROR_OUT_OF_MEMORY beyond so many bytes in this process.
  void (*pin_limit)(std::uint64_t bytes);
  // A line for each kind of thing that this process still holds; empty: nothing. The text lives
  // until the thread's next call.
  const char* (*leaks)();
  // An image that cuModuleLoadData() takes, with the kernels of libmc/device/kernels.
  const void* (*kernels)();
};

extern "C" __attribute__((visibility("default"))) const FakeDriver* fake_driver();
