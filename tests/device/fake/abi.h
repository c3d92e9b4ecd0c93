// SPDX-License-Identifier: Apache-2.0
//
// Functions, structs and numbers of the CUDA driver API that the fake driver offers, as in cuda.h of
//   CUDA 13. The build needs no toolkit, so this header names functions and numbers once more.
#pragma once

#include <cstddef>
#include <cstdint>

using CUdeviceptr = std::uint64_t;
using CUcontext = void*;
using CUstream = void*;
// The default stream has two names.
inline bool is_default_stream(CUstream stream) {
  return stream == nullptr || stream == reinterpret_cast<CUstream>(1);  // CU_STREAM_LEGACY
}
using CUevent = void*;
using CUmodule = void*;
using CUfunction = void*;
using CUphysical = unsigned long long;  // CUmemGenericAllocationHandle

struct CUuuid {
  unsigned char bytes[16];
};
struct CUipcHandle {  // CUipcMemHandle and CUipcEventHandle
  unsigned char bytes[64];
};
struct CUmemLocation {
  int type;
  int id;
};
struct CUmemAllocationProp {
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};
struct CUmemcpy2d {  // CUDA_MEMCPY2D
  std::size_t srcXInBytes;
  std::size_t srcY;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  std::size_t srcPitch;
  std::size_t dstXInBytes;
  std::size_t dstY;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  std::size_t dstPitch;
  std::size_t WidthInBytes;
  std::size_t Height;
};
struct CUmemcpyAttributes {
  int srcAccessOrder;
  CUmemLocation srcLocHint;
  CUmemLocation dstLocHint;
  unsigned flags;
};

namespace mc::fake {

enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
};

// CUpointer_attribute.
inline constexpr int kAttributeMemoryType = 2;
inline constexpr int kAttributeSyncMemops = 6;
inline constexpr int kAttributeBufferId = 7;
inline constexpr int kAttributeIsManaged = 8;
inline constexpr int kAttributeOrdinal = 9;
inline constexpr int kAttributeLegacyIpc = 10;
inline constexpr int kAttributeRangeStart = 11;
inline constexpr int kAttributeRangeSize = 12;
inline constexpr int kAttributeHandleTypes = 14;
inline constexpr int kAttributeBlockId = 20;
// CUdevice_attribute.
inline constexpr int kDeviceComputeMode = 20;
inline constexpr int kDeviceVmm = 102;
inline constexpr int kDevicePosixHandles = 103;
inline constexpr int kDeviceReadOnlyPins = 113;
inline constexpr int kDeviceDmaBuf = 124;
inline constexpr int kDeviceFabric = 128;
// Handle types of cuMemCreate.
inline constexpr int kPosixHandle = 1;
inline constexpr int kFabricHandle = 8;
// Flags of cuMemHostRegister.
inline constexpr unsigned kPinDeviceMap = 2;
inline constexpr unsigned kPinReadOnly = 8;
// Flags of events and streams.
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventInterprocess = 4;
inline constexpr unsigned kStreamNonBlocking = 1;
// Source access orders of batches.
inline constexpr int kOrderStream = 1;
inline constexpr int kOrderDuringCall = 2;
inline constexpr int kOrderAny = 3;

inline constexpr std::uint64_t kGranularity = 2 << 20;

}  // namespace mc::fake

#pragma GCC visibility push(default)
extern "C" {

int cuInit(unsigned flags);
int cuDriverGetVersion(int* version);
int cuGetErrorName(int error, const char** name);
int cuDeviceGetCount(int* count);
int cuDeviceGet(int* device, int ordinal);
int cuDeviceGetUuid_v2(CUuuid* uuid, int device);
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuDevicePrimaryCtxRetain(CUcontext* context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(CUcontext context);
int cuCtxPopCurrent_v2(CUcontext* context);
int cuCtxGetCurrent(CUcontext* context);
int cuCtxSynchronize();

int cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemGetInfo_v2(std::size_t* free, std::size_t* total);
int cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer);
int cuPointerGetAttribute(void* data, int attribute, CUdeviceptr pointer);
int cuPointerSetAttribute(const void* value, int attribute, CUdeviceptr pointer);
int cuMemHostRegister_v2(void* host, std::size_t bytes, unsigned flags);
int cuMemHostUnregister(void* host);
int cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* host, unsigned flags);

int cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* prop, int option);
int cuMemCreate(CUphysical* handle, std::size_t bytes, const CUmemAllocationProp* prop,
                unsigned long long flags);
int cuMemRelease(CUphysical handle);
int cuMemRetainAllocationHandle(CUphysical* handle, void* address);
int cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment,
                        CUdeviceptr wanted, unsigned long long flags);
int cuMemAddressFree(CUdeviceptr address, std::size_t bytes);
int cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUphysical handle,
             unsigned long long flags);
int cuMemUnmap(CUdeviceptr address, std::size_t bytes);
int cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptions,
                   std::size_t count);
int cuMemExportToShareableHandle(void* shareable, CUphysical handle, int type,
                                 unsigned long long flags);
int cuMemImportFromShareableHandle(CUphysical* handle, void* shareable, int type);
int cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, std::size_t bytes, int type,
                                  unsigned long long flags);

int cuIpcGetMemHandle(CUipcHandle* handle, CUdeviceptr address);
int cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcHandle handle, unsigned flags);
int cuIpcCloseMemHandle(CUdeviceptr address);
int cuIpcGetEventHandle(CUipcHandle* handle, CUevent event);
int cuIpcOpenEventHandle(CUevent* event, CUipcHandle handle);

int cuMemcpyDtoH_v2(void* host, CUdeviceptr device, std::size_t bytes);
int cuMemcpyHtoD_v2(CUdeviceptr device, const void* host, std::size_t bytes);
int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
int cuMemcpyDtoHAsync_v2(void* host, CUdeviceptr device, std::size_t bytes, CUstream stream);
int cuMemcpyHtoDAsync_v2(CUdeviceptr device, const void* host, std::size_t bytes, CUstream stream);
int cuMemcpy2DAsync_v2(const CUmemcpy2d* copy, CUstream stream);
int cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                       CUmemcpyAttributes* attributes, std::size_t* firsts,
                       std::size_t attribute_count, std::size_t* failed, CUstream stream);
int cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                          CUmemcpyAttributes* attributes, std::size_t* firsts,
                          std::size_t attribute_count, CUstream stream);

int cuStreamCreate(CUstream* stream, unsigned flags);
int cuStreamDestroy_v2(CUstream stream);
int cuStreamQuery(CUstream stream);
int cuStreamSynchronize(CUstream stream);
int cuStreamIsCapturing(CUstream stream, int* status);
int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
int cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value,
                            unsigned flags);
int cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value,
                           unsigned flags);
int cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value,
                            unsigned flags);
int cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value,
                           unsigned flags);
int cuLaunchHostFunc(CUstream stream, void (*function)(void*), void* data);
int cuEventCreate(CUevent* event, unsigned flags);
int cuEventDestroy_v2(CUevent event);
int cuEventRecord(CUevent event, CUstream stream);
int cuEventQuery(CUevent event);
int cuEventSynchronize(CUevent event);

int cuModuleLoadData(CUmodule* module, const void* image);
int cuModuleUnload(CUmodule module);
int cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   CUstream stream, void** parameters, void** extra);

}  // extern "C"
#pragma GCC visibility pop
