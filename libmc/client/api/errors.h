// SPDX-License-Identifier: Apache-2.0
//
// What it is: the last error of each thread, as mc_last_error() tells it.
// Threads: each its own.
#pragma once

#include "mc/status.h"

namespace mc::client {

// Remembers the status and returns its code.
mc_status set_error(const Status& status);
// The same for codes whose sentence says it all; costs two stores.
mc_status set_error(mc_status code);

}  // namespace mc::client
