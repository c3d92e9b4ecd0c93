// SPDX-License-Identifier: Apache-2.0
//
// What it is: copies between the agent's shared memory and what the caller names, which is memory
//   of this process or of a CUDA device (libmc/base/device_memory.h). Where no driver was found
//   they cost what a copy costs; else each piece is asked about.
// Threads: any. REQUIRES: the ranges do not overlap.
#pragma once

#include "libmc/base/device_memory.h"
#include "mc/mc.h"

namespace mc::client {

// True if an address of the caller's may be a device's.
inline bool may_be_devices() { return DeviceDriver::found() != nullptr; }

// Copies a piece of a value into the pool and continues its checksum. Errors, here and below:
// MC_INVALID_ARGUMENT (the piece ends beyond its allocation on a device), MC_DEVICE_FAILED.
Status copy_and_sum(std::byte* to, const std::byte* from, std::uint64_t bytes, std::uint64_t* sum);
// Copies a value's pieces, one after the other.
Status gather(std::byte* to, const mc_slice* pieces, std::size_t count);
Status copy_to_caller(std::byte* to, const std::byte* from, std::uint64_t bytes);

}  // namespace mc::client
