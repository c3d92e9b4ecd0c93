// SPDX-License-Identifier: Apache-2.0
//
// What it is: memory of GPUs as the engine sees it: which addresses are such memory, and copies
//   between it and memory of the host. One table of driver functions, taken from the libcuda.so.1
//   that this process has loaded: who has device memory has loaded it, and nobody else pays.
//   CUDA's unified addressing makes an address enough: no two memories of a process share one.
// Threads: any. Copies are synchronous and run on the device's primary context and default stream:
//   what was written by other streams must have been waited for.
// Owns: nothing; primary contexts stay retained until the process ends.
// Trusts: the driver.
#pragma once

#include <cstdint>

#include "mc/status.h"

namespace mc::transfer {

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
  // The one of this process; null: it has loaded none. A driver that lacks a function counts as
  // none.
  static const DeviceDriver* loaded();

  static constexpr int kHost = -1;
  // Whose memory all of the range is; kHost also for what is no memory at all, and for managed
  // memory, which the host reaches. Errors: MC_INVALID_ARGUMENT (it ends beyond its allocation).
  Result<int> device_of(const void* address, std::uint64_t size_bytes) const;

  // Both return when the bytes are there. Errors: MC_INTERNAL with the driver's word.
  Status to_host(int device, std::byte* host, const std::byte* from, std::uint64_t bytes) const;
  Status to_device(int device, std::byte* to, const std::byte* host, std::uint64_t bytes) const;

 private:
  class Current;
  Status failed(const char* what, int error) const;
  CudaCalls calls_{};
};

}  // namespace mc::transfer
