// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/caller_memory.h"

#include <cstring>

#include "libmc/base/checksum.h"

namespace mc::client {

namespace {

// The device that owns the range; kHost without a driver.
Result<int> device_of(const std::byte* address, std::uint64_t bytes) {
  const device::Driver* const driver = device::Driver::found();
  return driver == nullptr ? device::kHost : device::device_of(*driver, address, bytes);
}
Status copy_to_host(int device, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  return device::copy_to_host(*device::Driver::found(), device, to, from, bytes);
}
Status copy_to_device(int device, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  return device::copy_to_device(*device::Driver::found(), device, to, from, bytes);
}

Status copy_from_caller(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const auto device = device_of(from, bytes);
  if (!device) return device.error();
  if (*device != device::kHost) {
    return copy_to_host(*device, to, from, bytes);
  }
  std::memcpy(to, from, bytes);
  return {};
}

}  // namespace

Status copy_and_sum(std::byte* to, const std::byte* from, std::uint64_t bytes, std::uint64_t* sum) {
  const auto device = device_of(from, bytes);
  if (!device) return device.error();
  if (*device == device::kHost) {
    *sum = copy_and_checksum(*sum, to, from, bytes);
    return {};
  }
  const Status copied = copy_to_host(*device, to, from, bytes);
  if (copied.ok()) *sum = checksum(*sum, to, bytes);
  return copied;
}

Status copy_to_caller_and_sum(std::byte* to, const std::byte* from, std::uint64_t bytes,
                              std::uint64_t* sum) {
  const auto device = device_of(to, bytes);
  if (!device) return device.error();
  if (*device == device::kHost) {
    *sum = copy_out_and_checksum(*sum, to, from, bytes);
    return {};
  }
  *sum = checksum(*sum, from, bytes);
  return copy_to_device(*device, to, from, bytes);
}

Status gather(std::byte* to, const mc_slice* pieces, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const std::byte*>(pieces[i].data);
    if (Status copied = copy_from_caller(to, from, pieces[i].size); !copied.ok()) return copied;
    to += pieces[i].size;
  }
  return {};
}

Status copy_to_caller(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const auto device = device_of(to, bytes);
  if (!device) return device.error();
  if (*device != device::kHost) {
    return copy_to_device(*device, to, from, bytes);
  }
  std::memcpy(to, from, bytes);
  return {};
}

}  // namespace mc::client
