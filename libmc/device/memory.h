// SPDX-License-Identifier: Apache-2.0
//
// Device memory as this process sees it: which addresses are device memory, and copies
//   between device and host memory. An address is enough, because unified addressing gives each
//   memory of a process its own range.
// Threads: any. Copies are synchronous and use the device's primary context and default stream. The
//   caller must wait for writes of other streams first.
// Trusts: the driver.
#pragma once

#include <span>

#include "libmc/device/driver.h"

namespace mc::device {

inline constexpr int kHost = -1;

// The device that owns the whole range. kHost: host memory, managed memory (which the host can
// access), or no memory at all. Errors: MC_INVALID_ARGUMENT (a part of the range has no memory, or
// lies on another device).
Result<int> device_of(const Driver& driver, const void* address, std::uint64_t size_bytes);

// A piece of a copy between the memory of a device and host memory.
struct DevicePiece {
  std::uint64_t device = 0;
  std::byte* host = nullptr;
  std::uint64_t bytes = 0;
};
inline std::uint64_t bytes_of(std::span<const DevicePiece> pieces) {
  std::uint64_t bytes = 0;
  for (const DevicePiece& piece : pieces) bytes += piece.bytes;
  return bytes;
}
enum class Direction : std::uint8_t { kFromDevice, kToDevice };

// Both return after the bytes have arrived. Errors: MC_DEVICE_FAILED with the driver's error.
Status copy_to_host(const Driver& driver, int device, std::byte* host, const std::byte* from,
                    std::uint64_t bytes);
Status copy_to_device(const Driver& driver, int device, std::byte* to, const std::byte* host,
                      std::uint64_t bytes);

}  // namespace mc::device
