// SPDX-License-Identifier: Apache-2.0
#include "libmc/device/memory.h"

#include <string>

namespace mc::device {

namespace {

// Values of the enums CUpointer_attribute and CUmemorytype in cuda.h.
constexpr int kMemoryType = 2;
constexpr int kIsManaged = 8;
constexpr int kDeviceOrdinal = 9;
constexpr int kRangeStart = 11;  // of the reservation
constexpr unsigned kDeviceMemory = 2;

int owner_of(const Driver& driver, std::uint64_t at) {
  unsigned type = 0;
  unsigned managed = 0;
  int device = kHost;
  const Calls& calls = driver.calls();
  // The driver says "invalid value" for an address that it does not know.
  const bool is_device =
      calls.pointer_get_attribute(&type, kMemoryType, at) == 0 && type == kDeviceMemory &&
      (calls.pointer_get_attribute(&managed, kIsManaged, at) != 0 || managed == 0) &&
      calls.pointer_get_attribute(&device, kDeviceOrdinal, at) == 0;
  return is_device ? device : kHost;
}

// 0: unknown.
std::uint64_t reservation_of(const Driver& driver, std::uint64_t at) {
  std::uint64_t start = 0;
  return driver.calls().pointer_get_attribute(&start, kRangeStart, at) == 0 ? start : 0;
}

// The bytes from the address to the end of its mapped chunk; 0: no memory is mapped there.
std::uint64_t mapped_at(const Driver& driver, std::uint64_t at) {
  std::uint64_t base = 0;
  std::size_t bytes = 0;
  const bool found = driver.calls().get_address_range(&base, &bytes, at) == 0 && at >= base;
  return found && at - base < bytes ? bytes - (at - base) : 0;
}

}  // namespace

Result<int> device_of(const Driver& driver, const void* address, std::uint64_t size_bytes) {
  const auto first = reinterpret_cast<std::uint64_t>(address);
  const int device = owner_of(driver, first);
  if (device == kHost) return kHost;
  // An expandable segment of torch is a chain of mapped chunks in one reservation, and a chunk may
  // be missing.
  std::uint64_t at = first;
  std::uint64_t left = size_bytes;
  for (;;) {
    const std::uint64_t here = mapped_at(driver, at);
    if (left <= here) return device;
    left -= here;
    at += here;
    if (here == 0 || owner_of(driver, at) != device ||
        reservation_of(driver, at) != reservation_of(driver, first)) {
      return fail(MC_INVALID_ARGUMENT, "the range ends beyond its allocation on device " +
                                           std::to_string(device) + ": its last " +
                                           std::to_string(left) + " bytes have no memory there");
    }
  }
}

Status copy_to_host(const Driver& driver, int device, std::byte* host, const std::byte* from,
                    std::uint64_t bytes) {
  const Current current(driver, device);
  if (!current.status().ok()) return current.status();
  return driver.call<&Calls::copy_to_host>(host, reinterpret_cast<std::uint64_t>(from), bytes);
}

Status copy_to_device(const Driver& driver, int device, std::byte* to, const std::byte* host,
                      std::uint64_t bytes) {
  const Current current(driver, device);
  if (!current.status().ok()) return current.status();
  const Status copied =
      driver.call<&Calls::copy_to_device>(reinterpret_cast<std::uint64_t>(to), host, bytes);
  if (!copied.ok()) return copied;
  // The copy from pageable memory returns when the bytes have left the source, before they arrive.
  return driver.call<&Calls::stream_synchronize>(nullptr);
}

}  // namespace mc::device
