// SPDX-License-Identifier: Apache-2.0
//
// Copies between the agent's shared memory and the caller's memory, which may be memory
//   of this process or of a device (libmc/device/memory.h). Without a driver, no piece is looked up.
// Threads: as the channel. REQUIRES: the ranges do not overlap.
#pragma once

#include <span>
#include <vector>

#include "libmc/client/session/channel.h"
#include "libmc/device/memory.h"
#include "mc/mc.h"

namespace mc::client {

// True if an address of the caller may be device memory.
inline bool may_be_devices() { return device::Driver::found() != nullptr; }
// True if a piece begins in device memory.
bool is_any_on_device(const mc_slice* pieces, std::size_t count);
bool is_any_on_device(const mc_span* pieces, std::size_t count);

// Copies of a call, all in the same direction. Host memory is copied at once, device memory by run().
class CallerCopies {
 public:
  // stream: of the copies of device memory; null: they begin after the work of the default stream.
  CallerCopies(Channel& channel, device::Direction direction, void* stream = nullptr)
      : channel_(channel), direction_(direction), stream_(stream) {}

  // The next copies are of this range of the caller. Errors: MC_INVALID_ARGUMENT (the range ends
  // beyond the device allocation), MC_DEVICE_FAILED.
  Status enter(const void* callers, std::uint64_t bytes);
  // From the caller, or to the caller.
  void take(std::byte* shared, const std::byte* callers, std::uint64_t bytes);
  void give(std::byte* callers, const std::byte* shared, std::uint64_t bytes);
  // Errors: MC_DEVICE_FAILED.
  Status run();

 private:
  void list(const std::byte* callers, const std::byte* shared, std::uint64_t bytes);

  Channel& channel_;
  const device::Direction direction_;
  void* const stream_;
  int device_ = device::kHost;         // of the range
  int listed_device_ = device::kHost;  // of the list
  std::vector<device::DevicePiece> listed_;
};

// Copies the pieces of a value, in order. Errors: MC_INVALID_ARGUMENT (a piece ends beyond the device
// allocation), MC_DEVICE_FAILED.
Status gather(Channel& channel, std::byte* to, const mc_slice* pieces, std::size_t count,
              void* stream = nullptr);

}  // namespace mc::client
