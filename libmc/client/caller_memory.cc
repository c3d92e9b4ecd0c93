// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/caller_memory.h"

#include <algorithm>
#include <cstring>

#include "libmc/client/device/device_copies.h"

namespace mc::client {

namespace {

bool is_on_device(const void* address) {
  const auto device = device::device_of(*device::Driver::found(), address, 0);
  return device && *device != device::kHost;
}

}  // namespace

bool is_any_on_device(const mc_slice* pieces, std::size_t count) {
  return may_be_devices() && std::any_of(pieces, pieces + count, [](const mc_slice& piece) {
           return is_on_device(piece.data);
         });
}

bool is_any_on_device(const mc_span* pieces, std::size_t count) {
  return may_be_devices() && std::any_of(pieces, pieces + count, [](const mc_span& piece) {
           return is_on_device(piece.data);
         });
}

Status CallerCopies::enter(const void* callers, std::uint64_t bytes) {
  device_ = device::kHost;
  if (!may_be_devices()) return {};
  const auto device = device::device_of(*device::Driver::found(), callers, bytes);
  if (!device) return device.error();
  device_ = *device;
  if (device_ == device::kHost) return {};
  // A list is of one device.
  if (!listed_.empty() && listed_device_ != device_) {
    if (Status status = run(); !status.ok()) return status;
  }
  listed_device_ = device_;
  return {};
}

void CallerCopies::take(std::byte* shared, const std::byte* callers, std::uint64_t bytes) {
  if (device_ != device::kHost) return list(callers, shared, bytes);
  std::memcpy(shared, callers, bytes);
}

void CallerCopies::give(std::byte* callers, const std::byte* shared, std::uint64_t bytes) {
  if (device_ != device::kHost) return list(callers, shared, bytes);
  std::memcpy(callers, shared, bytes);
}

void CallerCopies::list(const std::byte* callers, const std::byte* shared, std::uint64_t bytes) {
  // Only copies from a device write to the shared memory, which take() got for writing.
  listed_.push_back(
      {reinterpret_cast<std::uint64_t>(callers), const_cast<std::byte*>(shared), bytes});
}

Status CallerCopies::run() {
  if (listed_.empty()) return {};
  DeviceCopies& devices = channel_.devices();
  const Status status = stream_ == nullptr
                            ? devices.copy(listed_device_, direction_, listed_)
                            : devices.copy_here(listed_device_, direction_, listed_, stream_);
  listed_.clear();
  return status;
}

Status gather(Channel& channel, std::byte* to, const mc_slice* pieces, std::size_t count,
              void* stream) {
  CallerCopies copies(channel, device::Direction::kFromDevice, stream);
  for (std::size_t i = 0; i < count; ++i) {
    if (Status status = copies.enter(pieces[i].data, pieces[i].size); !status.ok()) return status;
    copies.take(to, static_cast<const std::byte*>(pieces[i].data), pieces[i].size);
    to += pieces[i].size;
  }
  return copies.run();
}

}  // namespace mc::client
