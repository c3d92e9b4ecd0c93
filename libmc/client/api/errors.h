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
mc_status set_error(mc_status code);

}  // namespace mc::client
