// SPDX-License-Identifier: Apache-2.0
//
// The driver of the host's devices: a table of functions, loaded at run time from the library of the
//   first vendor that the host has. A vendor is a library and a list of names (driver.cc).
// Threads: any.
// Owns: the library and the primary contexts, until the process ends.
// Trusts: the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mc/status.h"

namespace mc::device {

struct Uuid {
  unsigned char bytes[16];
  bool operator==(const Uuid&) const = default;
};
// As nvidia-smi -L prints it: "GPU-6a1b...".
std::string text_of(const Uuid& uuid);
// A handle of memory or of an event, for another process.
struct IpcHandle {
  unsigned char bytes[64];
};
// CUmemAccessDesc: kind and number of a location, rights.
struct Access {
  int location_type;
  int location;
  int rights;
};
// CUDA_MEMCPY2D. Types of memory: 1 host, 2 device.
struct Copy2d {
  std::size_t from_x;
  std::size_t from_y;
  int from_type;
  const void* from_host;
  std::uint64_t from_device;
  void* from_array;
  std::size_t from_pitch;
  std::size_t to_x;
  std::size_t to_y;
  int to_type;
  void* to_host;
  std::uint64_t to_device;
  void* to_array;
  std::size_t to_pitch;
  std::size_t row_bytes;
  std::size_t rows;
};

// Flags of calls, and their names in CUDA.
inline constexpr unsigned kPortable = 1;   // CU_MEMHOSTREGISTER_PORTABLE
inline constexpr unsigned kDeviceMap = 2;  // CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr unsigned kReadOnly = 8;   // CU_MEMHOSTREGISTER_READ_ONLY
inline constexpr unsigned kNonBlocking =
    1;  // CU_STREAM_NON_BLOCKING: not ordered by the default stream
inline constexpr unsigned kWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned kAtLeast = 0;        // CU_STREAM_WAIT_VALUE_GEQ: cyclic

// The members have the signatures of the CUDA driver API: CUresult and CUdevice are int, CUdeviceptr
// is an integer, and handles are pointers.
struct Calls {
  int (*init)(unsigned flags);
  int (*get_device_count)(int* count);
  int (*get_device_uuid)(Uuid* uuid, int device);
  int (*get_error_name)(int error, const char** name);
  int (*pointer_get_attribute)(void* data, int attribute, std::uint64_t pointer);
  int (*get_address_range)(std::uint64_t* base, std::size_t* bytes, std::uint64_t pointer);
  int (*primary_context_retain)(void** context, int device);
  int (*context_push)(void* context);
  int (*context_pop)(void** context);
  int (*copy_to_host)(void* host, std::uint64_t device, std::size_t bytes);
  int (*copy_to_device)(std::uint64_t device, const void* host, std::size_t bytes);
  int (*copy_to_host_async)(void* host, std::uint64_t device, std::size_t bytes, void* stream);
  int (*copy_to_device_async)(std::uint64_t device, const void* host, std::size_t bytes,
                              void* stream);
  int (*copy_2d_async)(const Copy2d* copy, void* stream);
  int (*host_register)(void* host, std::size_t bytes, unsigned flags);
  int (*host_unregister)(void* host);
  int (*get_device_pointer)(std::uint64_t* address, void* host, unsigned flags);
  int (*get_memory_handle)(IpcHandle* handle, std::uint64_t address);
  int (*open_memory)(std::uint64_t* address, IpcHandle handle, unsigned flags);
  int (*close_memory)(std::uint64_t address);
  int (*reserve_addresses)(std::uint64_t* address, std::size_t bytes, std::size_t alignment,
                           std::uint64_t wanted, unsigned long long flags);
  int (*free_addresses)(std::uint64_t address, std::size_t bytes);
  int (*retain_chunk)(unsigned long long* handle, void* address);
  int (*export_chunk)(void* descriptor, unsigned long long handle, int type,
                      unsigned long long flags);
  int (*import_chunk)(unsigned long long* handle, void* descriptor, int type);
  int (*map_chunk)(std::uint64_t address, std::size_t bytes, std::size_t offset,
                   unsigned long long handle, unsigned long long flags);
  int (*unmap_chunk)(std::uint64_t address, std::size_t bytes);
  int (*set_access)(std::uint64_t address, std::size_t bytes, const Access* access,
                    std::size_t count);
  int (*release_chunk)(unsigned long long handle);
  int (*stream_create)(void** stream, unsigned flags);
  int (*stream_destroy)(void* stream);
  int (*stream_synchronize)(void* stream);
  int (*stream_is_capturing)(void* stream, int* status);  // 0: no
  int (*stream_write_value)(void* stream, std::uint64_t address, std::uint32_t value,
                            unsigned flags);
  int (*stream_wait_value)(void* stream, std::uint64_t address, std::uint32_t value,
                           unsigned flags);
  int (*event_create)(void** event, unsigned flags);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_query)(void* event);
  int (*event_synchronize)(void* event);
  int (*module_load_data)(void** module, const void* image);
  int (*module_unload)(void* module);
  int (*module_get_function)(void** function, void* module, const char* name);
  int (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       void* stream, void** parameters, void** extra);
};

struct Vendor {
  struct Name {
    std::size_t member;  // its offset in Calls
    const char* symbol;
  };
  const char* library;
  std::span<const Name> names;
};

class Driver {
 public:
  // Loads the host's driver once. Null: there is no driver, or the driver lacks a function. This call
  // does not initialize the driver. Until the process does, every address counts as host memory.
  static const Driver* find();
  // The result of find() so far. Costs one load.
  static const Driver* found() { return found_.load(std::memory_order_acquire); }

  // Errors: MC_DEVICE_FAILED with the name of the function and the driver's error.
  template <auto kMember, typename... Arguments>
  Status call(Arguments... arguments) const {
    const int error = (calls_.*kMember)(arguments...);
    if (error == 0) return {};
    const auto offset = reinterpret_cast<const std::byte*>(&(calls_.*kMember)) -
                        reinterpret_cast<const std::byte*>(&calls_);
    return failed(static_cast<std::size_t>(offset), error);
  }
  // The functions, for callers that read an error as an answer.
  const Calls& calls() const { return calls_; }

  // The device's primary context. Errors: MC_DEVICE_FAILED.
  Result<void*> context_of(int device) const;

 private:
  static constexpr int kMaxDevices = 64;

  explicit Driver(const Vendor& vendor) : vendor_(vendor) {}
  // False: the library lacks a function.
  bool load(void* library);
  Status failed(std::size_t member, int error) const;

  static inline std::atomic<const Driver*> found_{nullptr};
  const Vendor& vendor_;
  Calls calls_{};
  mutable std::array<std::atomic<void*>, kMaxDevices> contexts_{};  // each is retained once
};

// A context that is current in this thread while the object lives.
class Current {
 public:
  Current(const Driver& driver, int device);
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current();
  const Status& status() const { return status_; }

 private:
  const Driver& driver_;
  Status status_;
};

}  // namespace mc::device
