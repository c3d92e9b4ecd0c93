// SPDX-License-Identifier: Apache-2.0
//
// Gets into memory of devices. The objects of a batch are pinned, copied together, and released.
// Threads: as the channel.
// Trusts: the caller's pointers.
#pragma once

#include <span>

#include "libmc/client/session/channel.h"
#include "mc/mc.h"

namespace mc::client {

// Whether the first destination is memory of a device.
bool begins_on_device(std::span<const mc_get_item> items);

// Reads the objects that this host has; the other items get MC_NOT_FOUND. REQUIRES: valid items.
void get_to_devices(mc_client* client, Channel& channel, std::span<mc_get_item> items);

// In the order of a stream. An item's status tells whether the object was found. Errors: those of the
// copies, also of earlier ones.
Status get_in_order(mc_client* client, std::span<mc_get_item> items, mc_stream stream);

}  // namespace mc::client
