// SPDX-License-Identifier: Apache-2.0
#include "libmc/device/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace mc::device {

namespace {

constexpr Vendor::Name kCudaNames[] = {
    {offsetof(Calls, init), "cuInit"},
    {offsetof(Calls, get_device_count), "cuDeviceGetCount"},
    {offsetof(Calls, get_device_uuid), "cuDeviceGetUuid_v2"},
    {offsetof(Calls, get_error_name), "cuGetErrorName"},
    {offsetof(Calls, pointer_get_attribute), "cuPointerGetAttribute"},
    {offsetof(Calls, get_address_range), "cuMemGetAddressRange_v2"},
    {offsetof(Calls, primary_context_retain), "cuDevicePrimaryCtxRetain"},
    {offsetof(Calls, context_push), "cuCtxPushCurrent_v2"},
    {offsetof(Calls, context_pop), "cuCtxPopCurrent_v2"},
    {offsetof(Calls, copy_to_host), "cuMemcpyDtoH_v2"},
    {offsetof(Calls, copy_to_device), "cuMemcpyHtoD_v2"},
    {offsetof(Calls, copy_to_host_async), "cuMemcpyDtoHAsync_v2"},
    {offsetof(Calls, copy_to_device_async), "cuMemcpyHtoDAsync_v2"},
    {offsetof(Calls, copy_2d_async), "cuMemcpy2DAsync_v2"},
    {offsetof(Calls, host_register), "cuMemHostRegister_v2"},
    {offsetof(Calls, host_unregister), "cuMemHostUnregister"},
    {offsetof(Calls, get_device_pointer), "cuMemHostGetDevicePointer_v2"},
    {offsetof(Calls, get_memory_handle), "cuIpcGetMemHandle"},
    {offsetof(Calls, open_memory), "cuIpcOpenMemHandle_v2"},
    {offsetof(Calls, close_memory), "cuIpcCloseMemHandle"},
    {offsetof(Calls, reserve_addresses), "cuMemAddressReserve"},
    {offsetof(Calls, free_addresses), "cuMemAddressFree"},
    {offsetof(Calls, retain_chunk), "cuMemRetainAllocationHandle"},
    {offsetof(Calls, export_chunk), "cuMemExportToShareableHandle"},
    {offsetof(Calls, import_chunk), "cuMemImportFromShareableHandle"},
    {offsetof(Calls, map_chunk), "cuMemMap"},
    {offsetof(Calls, unmap_chunk), "cuMemUnmap"},
    {offsetof(Calls, set_access), "cuMemSetAccess"},
    {offsetof(Calls, release_chunk), "cuMemRelease"},
    {offsetof(Calls, stream_create), "cuStreamCreate"},
    {offsetof(Calls, stream_destroy), "cuStreamDestroy_v2"},
    {offsetof(Calls, stream_synchronize), "cuStreamSynchronize"},
    {offsetof(Calls, stream_is_capturing), "cuStreamIsCapturing"},
    {offsetof(Calls, stream_write_value), "cuStreamWriteValue32_v2"},
    {offsetof(Calls, stream_wait_value), "cuStreamWaitValue32_v2"},
    {offsetof(Calls, event_create), "cuEventCreate"},
    {offsetof(Calls, event_destroy), "cuEventDestroy_v2"},
    {offsetof(Calls, event_record), "cuEventRecord"},
    {offsetof(Calls, event_query), "cuEventQuery"},
    {offsetof(Calls, event_synchronize), "cuEventSynchronize"},
    {offsetof(Calls, module_load_data), "cuModuleLoadData"},
    {offsetof(Calls, module_unload), "cuModuleUnload"},
    {offsetof(Calls, module_get_function), "cuModuleGetFunction"},
    {offsetof(Calls, launch_kernel), "cuLaunchKernel"},
};
static_assert(std::size(kCudaNames) * sizeof(void*) == sizeof(Calls));

constexpr Vendor kVendors[] = {{"libcuda.so.1", kCudaNames}};

}  // namespace

std::string text_of(const Uuid& uuid) {
  std::string text = "GPU";
  char digits[3];
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::snprintf(digits, sizeof digits, "%02x", uuid.bytes[i]);
    text += digits;
  }
  return text;
}

bool Driver::load(void* library) {
  for (const Vendor::Name& name : vendor_.names) {
    void* const symbol = ::dlsym(library, name.symbol);
    if (symbol == nullptr) return false;
    std::memcpy(reinterpret_cast<std::byte*>(&calls_) + name.member, &symbol, sizeof symbol);
  }
  return true;
}

const Driver* Driver::find() {
  if (const Driver* const driver = found()) return driver;
  for (const Vendor& vendor : kVendors) {
    void* const library = ::dlopen(vendor.library, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    // The library stays loaded, because contexts live as long as the process.
    static const Driver* const made = [&]() -> const Driver* {
      auto* const driver = new Driver(vendor);
      if (driver->load(library)) return driver;
      delete driver;
      return nullptr;
    }();
    found_.store(made, std::memory_order_release);
    return made;
  }
  return nullptr;
}

Status Driver::failed(std::size_t member, int error) const {
  const char* symbol = "the driver";
  for (const Vendor::Name& name : vendor_.names) {
    if (name.member == member) symbol = name.symbol;
  }
  const char* name = nullptr;
  if (calls_.get_error_name(error, &name) != 0 || name == nullptr) name = "an unknown error";
  return {MC_DEVICE_FAILED, std::string(symbol) + ": " + name + " (" + std::to_string(error) +
                                "); was the memory freed, or does the device have to be reset?"};
}

Result<void*> Driver::context_of(int device) const {
  if (device < 0 || device >= kMaxDevices) {
    return fail(MC_DEVICE_FAILED, "device " + std::to_string(device) + " is out of range");
  }
  std::atomic<void*>& known = contexts_[static_cast<std::size_t>(device)];
  void* context = known.load(std::memory_order_acquire);
  if (context != nullptr) return context;
  // Two threads may both retain the context, which is never released.
  const Status retained = call<&Calls::primary_context_retain>(&context, device);
  if (!retained.ok()) return fail(retained);
  known.store(context, std::memory_order_release);
  return context;
}

Current::Current(const Driver& driver, int device) : driver_(driver) {
  const auto context = driver.context_of(device);
  status_ = context ? driver.call<&Calls::context_push>(*context) : context.error();
}

Current::~Current() {
  void* context = nullptr;
  if (status_.ok()) static_cast<void>(driver_.calls().context_pop(&context));
}

}  // namespace mc::device
