// SPDX-License-Identifier: Apache-2.0
//
// What it is: memory of GPUs as this process sees it: which addresses are such memory, and copies
//   between it and memory of the host. One table of functions of the CUDA driver, libcuda.so.1,
//   taken at run time where a host has one. CUDA's unified addressing makes an address enough: no
//   two memories of a process share one.
// Threads: any. Copies are synchronous and run on the device's primary context and default stream:
//   what was written by other streams must have been waited for.
// Owns: the driver and primary contexts, until the process ends. Trusts: the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mc/status.h"

namespace mc {

// Signatures of the CUDA driver API (CUresult and CUdevice are int, CUcontext a pointer).
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
  // Loads the host's driver, once; null: there is none, or it lacks a function. It is not
  // initialized by this: until the process does that itself, no address is a device's.
  static const DeviceDriver* find();
  // What find() has found. Costs a load.
  static const DeviceDriver* found() { return found_.load(std::memory_order_acquire); }

  explicit DeviceDriver(const CudaCalls& calls) : calls_(calls) {}

  static constexpr int kHost = -1;
  // Whose memory all of the range is; kHost also for what is no memory at all, and for managed
  // memory, which the host reaches. Errors: MC_INVALID_ARGUMENT (it ends beyond its allocation).
  Result<int> device_of(const void* address, std::uint64_t size_bytes) const;

  // Both return when the bytes are there. Errors: MC_DEVICE_FAILED with the driver's word.
  Status to_host(int device, std::byte* host, const std::byte* from, std::uint64_t bytes) const;
  Status to_device(int device, std::byte* to, const std::byte* host, std::uint64_t bytes) const;

 private:
  class Current;
  static constexpr int kMaxDevices = 64;

  Result<void*> context_of(int device) const;
  Status failed(const char* what, int error) const;

  static inline std::atomic<const DeviceDriver*> found_{nullptr};
  CudaCalls calls_;
  mutable std::array<std::atomic<void*>, kMaxDevices> contexts_{};  // retained once each
};

}  // namespace mc
