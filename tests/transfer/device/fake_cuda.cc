// SPDX-License-Identifier: Apache-2.0
//
// Names and numbers of the CUDA driver API, as in cuda.h.
#include "transfer/device/fake_cuda.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>

namespace {

constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;
constexpr int kIllegalAddress = 700;
constexpr int kDevices = 2;

struct Allocation {
  std::size_t bytes;
  std::uint64_t reserved_at;
  std::size_t reserved_bytes;
  int device;
  bool managed;
  std::byte* behind;
};

std::mutex mutex;
std::map<std::uint64_t, Allocation> allocations;
int failures_after = -1;
int copies_done = 0;
int contexts[kDevices];  // the addresses serve as context handles
// Static storage: LeakSanitizer of LLVM 14 misreads the address of a loaded library's dynamic storage.
__attribute__((tls_model("initial-exec"))) thread_local void* current = nullptr;

void* allocate(std::size_t bytes, int device, bool managed) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const behind = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  void* const shown = managed ? behind : ::mmap(nullptr, bytes, PROT_NONE, flags, -1, 0);
  if (behind == MAP_FAILED || shown == MAP_FAILED) return nullptr;
  const auto at = reinterpret_cast<std::uint64_t>(shown);
  const std::lock_guard lock(mutex);
  allocations[at] = {bytes, at, bytes, device, managed, static_cast<std::byte*>(behind)};
  return shown;
}

void* allocate_chunks(std::size_t chunk_bytes, std::size_t count, std::size_t hole, int device) {
  void* const shown = allocate(chunk_bytes * count, device, false);
  const auto start = reinterpret_cast<std::uint64_t>(shown);
  const std::lock_guard lock(mutex);
  const Allocation whole = allocations.extract(start).mapped();
  for (std::size_t i = 0; i < count; ++i) {
    if (i == hole) continue;
    Allocation& chunk = allocations[start + i * chunk_bytes] = whole;
    chunk.bytes = chunk_bytes;
    chunk.behind += i * chunk_bytes;
  }
  return shown;
}

// The allocation that contains the address. REQUIRES: the lock.
std::map<std::uint64_t, Allocation>::iterator find(std::uint64_t address) {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return allocations.end();
  const auto at = std::prev(after);
  return address - at->first < at->second.bytes ? at : allocations.end();
}

std::byte* behind(const void* address) {
  const std::lock_guard lock(mutex);
  const auto at = find(reinterpret_cast<std::uint64_t>(address));
  return at == allocations.end()
             ? nullptr
             : at->second.behind + (reinterpret_cast<std::uint64_t>(address) - at->first);
}

void fail_after(int good) {
  const std::lock_guard lock(mutex);
  failures_after = good;
}

int copies() {
  const std::lock_guard lock(mutex);
  return copies_done;
}

int copy(std::uint64_t device_address, std::size_t bytes, std::byte** place) {
  const std::lock_guard lock(mutex);
  const auto at = find(device_address);
  if (at == allocations.end()) return kInvalidValue;
  // A copy may cross mapped chunks of a reservation.
  std::uint64_t end = at->first + at->second.bytes;
  for (auto next = std::next(at); next != allocations.end() && next->first == end &&
                                  next->second.reserved_at == at->second.reserved_at;
       ++next) {
    end += next->second.bytes;
  }
  if (bytes > end - device_address) return kInvalidValue;
  if (current != &contexts[at->second.device]) return kInvalidContext;
  if (failures_after == 0) return kIllegalAddress;
  if (failures_after > 0) --failures_after;
  ++copies_done;
  *place = at->second.behind + (device_address - at->first);
  return 0;
}

constexpr FakeCuda kFake{allocate, allocate_chunks, behind, fail_after, copies};

}  // namespace

extern "C" {

const FakeCuda* fake_cuda() { return &kFake; }

int cuPointerGetAttribute(void* data, int attribute, std::uint64_t pointer) {
  const std::lock_guard lock(mutex);
  const auto at = find(pointer);
  if (at == allocations.end()) return kInvalidValue;
  const Allocation& memory = at->second;
  switch (attribute) {
    case 2:
      *static_cast<unsigned*>(data) = 2;
      return 0;
    case 8:
      *static_cast<unsigned*>(data) = memory.managed ? 1 : 0;
      return 0;
    case 9:
      *static_cast<int*>(data) = memory.device;
      return 0;
    case 11:
      *static_cast<std::uint64_t*>(data) = memory.reserved_at;
      return 0;
    case 12:
      *static_cast<std::size_t*>(data) = memory.reserved_bytes;
      return 0;
    default:
      return kInvalidValue;
  }
}

int cuMemGetAddressRange_v2(std::uint64_t* base, std::size_t* bytes, std::uint64_t pointer) {
  const std::lock_guard lock(mutex);
  const auto at = find(pointer);
  if (at == allocations.end()) return kInvalidValue;
  *base = at->first;
  *bytes = at->second.bytes;
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (device < 0 || device >= kDevices) return kInvalidValue;
  *context = &contexts[device];
  return 0;
}

int cuCtxPushCurrent_v2(void* context) {
  if (current != nullptr) return kInvalidContext;  // a stack of one level: each push needs a pop
  current = context;
  return 0;
}

int cuCtxPopCurrent_v2(void** context) {
  *context = current;
  current = nullptr;
  return 0;
}

int cuMemcpyDtoH_v2(void* host, std::uint64_t device, std::size_t bytes) {
  std::byte* place = nullptr;
  if (const int error = copy(device, bytes, &place); error != 0) return error;
  std::memcpy(host, place, bytes);
  return 0;
}

int cuMemcpyHtoD_v2(std::uint64_t device, const void* host, std::size_t bytes) {
  std::byte* place = nullptr;
  if (const int error = copy(device, bytes, &place); error != 0) return error;
  std::memcpy(place, host, bytes);
  return 0;
}

int cuStreamSynchronize(void*) { return current == nullptr ? kInvalidContext : 0; }

int cuGetErrorName(int error, const char** name) {
  *name = error == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}

}  // extern "C"
