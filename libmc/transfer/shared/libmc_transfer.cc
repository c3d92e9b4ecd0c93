// SPDX-License-Identifier: Apache-2.0
//
// What makes libmc-transfer.so whole: the status names of mc.h beside the calls of transfer.h.
#include "mc/transfer.h"

// Referred to here, so that the linker takes them from the floor below.
extern "C" const void* const mc_transfer_status_names[] = {
    reinterpret_cast<const void*>(&mc_status_name), reinterpret_cast<const void*>(&mc_status_text),
    reinterpret_cast<const void*>(&mc_status_retry), reinterpret_cast<const void*>(&mc_version)};
