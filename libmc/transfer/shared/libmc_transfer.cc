// SPDX-License-Identifier: Apache-2.0
//
// Adds the status names of mc.h to the exports of libmc-transfer.so.
#include "mc/transfer.h"

// The references make the linker include these functions from mc_base.
extern "C" const void* const mc_transfer_status_names[] = {
    reinterpret_cast<const void*>(&mc_status_name), reinterpret_cast<const void*>(&mc_status_text),
    reinterpret_cast<const void*>(&mc_status_retry), reinterpret_cast<const void*>(&mc_version)};
