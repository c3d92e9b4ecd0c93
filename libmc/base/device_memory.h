// SPDX-License-Identifier: Apache-2.0
//
// GPU memory as this process sees it: which addresses are GPU memory, and copies
//   between GPU and host memory. A table of functions of the CUDA driver, libcuda.so.1, loaded at
//   run time if the host has it. An address is enough, because CUDA's unified addressing gives each
//   memory of a process its own range.
// Threads: any. Copies are synchronous and use the device's primary context and default stream. The
//   caller must wait for writes of other streams first.
// Owns: the driver and primary contexts, until the process ends.
// Trusts: the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mc/status.h"

namespace mc {

// Signatures of the CUDA driver API (CUresult and CUdevice are int, CUcontext is a pointer).
struct CudaCalls {
  int (*pointer_get_attribute)(void* data, int attribute, std::uint64_t pointer);
  int (*primary_context_retain)(void** context, int device);
  int (*context_push)(void* context);
  int (*context_pop)(void** context);
  int (*copy_to_host)(void* host, std::uint64_t device, std::size_t bytes);
  int (*copy_to_device)(std::uint64_t device, const void* host, std::size_t bytes);
  int (*stream_synchronize)(void* stream);
  int (*get_error_name)(int error, const char** name);
};

class DeviceDriver {
 public:
  // Loads the host's driver once. Null: there is no driver, or a function is missing. This call
  // does not initialize the driver. Until the process does, every address counts as host memory.
  static const DeviceDriver* find();
  // The result of find() so far. Costs one load.
  static const DeviceDriver* found() { return found_.load(std::memory_order_acquire); }

  explicit DeviceDriver(const CudaCalls& calls) : calls_(calls) {}

  static constexpr int kHost = -1;
  // The device that owns the whole range. kHost: host memory, managed memory (which the host can
  // access), or no memory at all. Errors: MC_INVALID_ARGUMENT (the range ends beyond its
  // allocation).
  Result<int> device_of(const void* address, std::uint64_t size_bytes) const;

  // Both return after the bytes have arrived. Errors: MC_DEVICE_FAILED with the driver's error.
  Status to_host(int device, std::byte* host, const std::byte* from, std::uint64_t bytes) const;
  Status to_device(int device, std::byte* to, const std::byte* host, std::uint64_t bytes) const;

 private:
  class Current;
  static constexpr int kMaxDevices = 64;

  Result<void*> context_of(int device) const;
  Status failed(const char* what, int error) const;

  static inline std::atomic<const DeviceDriver*> found_{nullptr};
  CudaCalls calls_;
  mutable std::array<std::atomic<void*>, kMaxDevices> contexts_{};  // each is retained once
};

}  // namespace mc
