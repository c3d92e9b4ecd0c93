// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/device_memory.h"

#include <dlfcn.h>

#include <string>

namespace mc {

namespace {

constexpr const char* kLibrary = "libcuda.so.1";

// Values of the enums CUpointer_attribute and CUmemorytype in cuda.h.
constexpr int kMemoryType = 2;
constexpr int kIsManaged = 8;
constexpr int kDeviceOrdinal = 9;
constexpr int kRangeStart = 11;
constexpr int kRangeSize = 12;
constexpr unsigned kDeviceMemory = 2;

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, CudaCalls* calls) {
  return find(library, "cuPointerGetAttribute", calls->pointer_get_attribute) &&
         find(library, "cuDevicePrimaryCtxRetain", calls->primary_context_retain) &&
         find(library, "cuCtxPushCurrent_v2", calls->context_push) &&
         find(library, "cuCtxPopCurrent_v2", calls->context_pop) &&
         find(library, "cuMemcpyDtoH_v2", calls->copy_to_host) &&
         find(library, "cuMemcpyHtoD_v2", calls->copy_to_device) &&
         find(library, "cuStreamSynchronize", calls->stream_synchronize) &&
         find(library, "cuGetErrorName", calls->get_error_name);
}

}  // namespace

const DeviceDriver* DeviceDriver::find() {
  if (const DeviceDriver* const driver = found()) return driver;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  // The library stays loaded, because contexts live as long as the process.
  static const DeviceDriver* const made = [library]() -> const DeviceDriver* {
    CudaCalls calls{};
    return find_all(library, &calls) ? new DeviceDriver(calls) : nullptr;
  }();
  found_.store(made, std::memory_order_release);
  return made;
}

Status DeviceDriver::failed(const char* what, int error) const {
  const char* name = nullptr;
  if (calls_.get_error_name(error, &name) != 0 || name == nullptr) name = "an unknown error";
  return {MC_DEVICE_FAILED, std::string(what) + ": " + name + " (" + std::to_string(error) +
                                "); was the memory freed, or does the device have to be reset?"};
}

Result<void*> DeviceDriver::context_of(int device) const {
  if (device < 0 || device >= kMaxDevices) return fail(failed("a device out of range", device));
  std::atomic<void*>& known = contexts_[static_cast<std::size_t>(device)];
  void* context = known.load(std::memory_order_acquire);
  if (context != nullptr) return context;
  // Two threads may both retain the context, which is never released.
  if (const int error = calls_.primary_context_retain(&context, device); error != 0) {
    return fail(failed("cuDevicePrimaryCtxRetain", error));
  }
  known.store(context, std::memory_order_release);
  return context;
}

Result<int> DeviceDriver::device_of(const void* address, std::uint64_t size_bytes) const {
  const auto at = reinterpret_cast<std::uint64_t>(address);
  unsigned type = 0;
  unsigned managed = 0;
  int device = kHost;
  // The driver says "invalid value" for an address that it does not know.
  if (calls_.pointer_get_attribute(&type, kMemoryType, at) != 0 || type != kDeviceMemory ||
      (calls_.pointer_get_attribute(&managed, kIsManaged, at) == 0 && managed != 0) ||
      calls_.pointer_get_attribute(&device, kDeviceOrdinal, at) != 0) {
    return kHost;
  }
  std::uint64_t start = 0;
  std::uint64_t size = 0;
  if (calls_.pointer_get_attribute(&start, kRangeStart, at) == 0 &&
      calls_.pointer_get_attribute(&size, kRangeSize, at) == 0 &&
      (at < start || size_bytes > size || at - start > size - size_bytes)) {
    return fail(MC_INVALID_ARGUMENT,
                "the range ends beyond its allocation on device " + std::to_string(device));
  }
  return device;
}

// A context that is current in this thread while this object lives.
class DeviceDriver::Current {
 public:
  Current(const CudaCalls& calls, void* context)
      : calls_(calls), error_(calls.context_push(context)) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    void* context = nullptr;
    if (error_ == 0) static_cast<void>(calls_.context_pop(&context));
  }
  int error() const { return error_; }

 private:
  const CudaCalls& calls_;
  int error_;
};

Status DeviceDriver::to_host(int device, std::byte* host, const std::byte* from,
                             std::uint64_t bytes) const {
  const auto context = context_of(device);
  if (!context) return context.error();
  const Current current(calls_, *context);
  if (current.error() != 0) return failed("cuCtxPushCurrent", current.error());
  const int error = calls_.copy_to_host(host, reinterpret_cast<std::uint64_t>(from), bytes);
  return error == 0 ? Status() : failed("cuMemcpyDtoH", error);
}

Status DeviceDriver::to_device(int device, std::byte* to, const std::byte* host,
                               std::uint64_t bytes) const {
  const auto context = context_of(device);
  if (!context) return context.error();
  const Current current(calls_, *context);
  if (current.error() != 0) return failed("cuCtxPushCurrent", current.error());
  int error = calls_.copy_to_device(reinterpret_cast<std::uint64_t>(to), host, bytes);
  // The copy from pageable memory returns when the bytes have left the source, before they arrive.
  if (error == 0) error = calls_.stream_synchronize(nullptr);
  return error == 0 ? Status() : failed("cuMemcpyHtoD", error);
}

}  // namespace mc
