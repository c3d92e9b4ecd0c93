// SPDX-License-Identifier: Apache-2.0
//
// Copies between the agent's shared memory and the caller's memory, which may be memory
//   of this process or of a device (libmc/device/memory.h). Without a driver the copies
//   cost what a plain copy costs. With a driver, each piece is looked up.
// Threads: any thread. REQUIRES: the ranges do not overlap.
#pragma once

#include "libmc/device/memory.h"
#include "mc/mc.h"

namespace mc::client {

// True if an address of the caller may be device memory.
inline bool may_be_devices() { return device::Driver::found() != nullptr; }

// Copies a piece of a value into the pool and continues the checksum. Errors, here and below:
// MC_INVALID_ARGUMENT (the piece ends beyond the device allocation), MC_DEVICE_FAILED.
Status copy_and_sum(std::byte* to, const std::byte* from, std::uint64_t bytes, std::uint64_t* sum);
// Copies out of the pool and continues the checksum.
Status copy_to_caller_and_sum(std::byte* to, const std::byte* from, std::uint64_t bytes,
                              std::uint64_t* sum);
// Copies the pieces of a value, in order.
Status gather(std::byte* to, const mc_slice* pieces, std::size_t count);
Status copy_to_caller(std::byte* to, const std::byte* from, std::uint64_t bytes);

}  // namespace mc::client
