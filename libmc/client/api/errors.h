// SPDX-License-Identifier: Apache-2.0
//
// The last error of each thread, for mc_last_error().
// Threads: each thread has a separate error.
#pragma once

#include "mc/status.h"

namespace mc::client {

// Stores the status and returns its code.
mc_status set_error(const Status& status);
// Stores a code without an additional text; costs two stores.
mc_status set_error(mc_status code) noexcept;
// Stores the error of the current exception. Every function of the C ABI ends in this call instead of
// passing an exception on. REQUIRES: the caller is in a catch block.
mc_status caught() noexcept;

}  // namespace mc::client
