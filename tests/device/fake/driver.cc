// SPDX-License-Identifier: Apache-2.0
//
// Devices, contexts and errors, and the functions of fake_driver.h.
#include <cstring>

#include "device/fake/exports.h"
#include "device/fake/fake_driver.h"
#include "device/fake/memory.h"
#include "device/fake/misuse.h"
#include "device/fake/streams.h"

namespace mc::fake {

namespace {

struct ErrorName {
  int error;
  const char* name;
};
constexpr ErrorName kErrorNames[] = {
    {kSuccess, "CUDA_SUCCESS"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND"},
    {kNotReady, "CUDA_ERROR_NOT_READY"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
};

// The addresses serve as handles of the primary contexts.
int contexts[kDevices];
std::atomic<int> retained[kDevices];

bool is_device(int device) { return device >= 0 && device < kDevices; }

// ---- What tests ask ---------------------------------------------------------------------------

void* allocate(std::size_t bytes, int device, bool managed) {
  initialize();
  const int physical = Machine::get().physical_device(device);
  return reinterpret_cast<void*>(Memory::get().allocate(bytes, physical, managed));
}

void* allocate_chunks(std::size_t chunk_bytes, std::size_t count, std::size_t hole, int device) {
  initialize();
  constexpr const char* kCall = "allocate_chunks";
  const int physical = Machine::get().physical_device(device);
  const CUdeviceptr start = Memory::get().reserve(chunk_bytes * count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i == hole) continue;
    const int block = Machine::get().make_block(BlockKind::kPhysical, physical, chunk_bytes);
    const CUdeviceptr at = start + i * chunk_bytes;
    if (block < 0 || Memory::get().map(kCall, at, chunk_bytes, block) != kSuccess ||
        Memory::get().set_access(at, chunk_bytes) != kSuccess) {
      return nullptr;
    }
    Machine::get().release(block);  // the mapping keeps the block
  }
  return reinterpret_cast<void*>(start);
}

std::byte* behind(const void* device_address) {
  return Memory::get().host_address(reinterpret_cast<CUdeviceptr>(device_address));
}

std::uint64_t charged() { return Machine::get().charged(Machine::get().self()); }

void capture(void* stream, bool on) { Streams::get().find("capture", stream)->set_capturing(on); }

void set_pin_limit(std::uint64_t bytes) { Memory::get().set_pin_limit(bytes); }

const char* leaks() {
  static thread_local std::string text;
  text = Memory::get().leaks();
  const auto add = [](std::uint64_t count, const char* kind) {
    if (count != 0) text += std::to_string(count) + " " + kind + "\n";
  };
  add(Streams::get().count(), "streams");
  add(Events::get().count(), "events");
  add(count_modules(), "modules");
  add(count_handles(), "handles of physical memory");
  return text.c_str();
}

constexpr FakeDriver kFake{allocate,    allocate_chunks,       behind,  fail_calls,    count_calls,
                           charged,     count_pageable_copies, capture, set_pin_limit, leaks,
                           kernel_image};

}  // namespace

}  // namespace mc::fake

using namespace mc::fake;  // NOLINT(google-build-using-namespace): the functions below are C

extern "C" {

const FakeDriver* fake_driver() { return &kFake; }

int cuInit(unsigned flags) {
  const Entry entry("cuInit", Entry::Needs::kNothing);
  if (entry.error() != kSuccess) return entry.error();
  if (flags != 0) return kInvalidValue;
  initialize();
  return kSuccess;
}

int cuDriverGetVersion(int* version) {
  const Entry entry("cuDriverGetVersion", Entry::Needs::kNothing);
  *version = 13000;
  return entry.error();
}

int cuGetErrorName(int error, const char** name) {
  for (const ErrorName& known : kErrorNames) {
    if (known.error != error) continue;
    *name = known.name;
    return kSuccess;
  }
  return kInvalidValue;
}

int cuDeviceGetCount(int* count) {
  const Entry entry("cuDeviceGetCount", Entry::Needs::kDriver);
  *count = kDevices;
  return entry.error();
}

int cuDeviceGet(int* device, int ordinal) {
  const Entry entry("cuDeviceGet", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

int cuDeviceGetUuid_v2(CUuuid* uuid, int device) {
  const Entry entry("cuDeviceGetUuid_v2", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (!is_device(device)) return kInvalidDevice;
  *uuid = {};
  uuid->bytes[0] = 0xfa;
  uuid->bytes[15] = static_cast<unsigned char>(Machine::get().physical_device(device));
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Entry entry("cuDeviceGetAttribute", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (!is_device(device)) return kInvalidDevice;
  switch (attribute) {
    case kDeviceVmm:
    case kDevicePosixHandles:
    case kDeviceReadOnlyPins:
    case kDeviceDmaBuf:
      *value = 1;
      return kSuccess;
    case kDeviceFabric:
    case kDeviceComputeMode:
      *value = 0;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

int cuDevicePrimaryCtxRetain(CUcontext* context, int device) {
  const Entry entry("cuDevicePrimaryCtxRetain", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (!is_device(device)) return kInvalidDevice;
  ++retained[device];
  *context = &contexts[device];
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  const Entry entry("cuDevicePrimaryCtxRelease_v2", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (!is_device(device)) return kInvalidDevice;
  if (retained[device]-- == 0) misuse(entry.call(), "more releases than retains");
  return kSuccess;
}

int cuCtxPushCurrent_v2(CUcontext context) {
  const Entry entry("cuCtxPushCurrent_v2", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  const auto device = static_cast<int*>(context) - contexts;
  if (device < 0 || device >= kDevices) misuse(entry.call(), "no such context");
  if (retained[device] == 0) misuse(entry.call(), "the context was released");
  if (!push_context(static_cast<int>(device))) misuse(entry.call(), "a push without a pop");
  return kSuccess;
}

int cuCtxPopCurrent_v2(CUcontext* context) {
  const Entry entry("cuCtxPopCurrent_v2", Entry::Needs::kDriver);
  const int device = pop_context();
  if (device < 0) return entry.error() != kSuccess ? entry.error() : kInvalidContext;
  if (context != nullptr) *context = &contexts[device];
  return entry.error();
}

int cuCtxGetCurrent(CUcontext* context) {
  const Entry entry("cuCtxGetCurrent", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  const int device = current_device();
  *context = device < 0 ? nullptr : &contexts[device];
  return kSuccess;
}

int cuCtxSynchronize() {
  const Entry entry("cuCtxSynchronize");
  if (entry.error() != kSuccess) return entry.error();
  Streams::get().drain(Machine::get().physical_device(current_device()));
  return poison_error();
}

}  // extern "C"
