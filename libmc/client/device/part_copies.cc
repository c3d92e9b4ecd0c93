// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/part_copies.h"

#include <algorithm>
#include <cstring>

#include "libmc/client/caller_memory.h"
#include "libmc/client/client.h"

namespace mc::client {

using device::DevicePiece;
using device::Direction;

bool PartCopies::is_of_host() const {
  return !may_be_devices() ||
         std::none_of(parts_.begin(), parts_.end(), [](const DevicePiece& part) {
           const mc_slice piece{reinterpret_cast<const void*>(part.device), part.bytes};
           return is_any_on_device(&piece, 1);
         });
}

void PartCopies::run_on_host() const {
  for (const DevicePiece& part : parts_) {
    auto* const callers = reinterpret_cast<std::byte*>(part.device);
    if (direction_ == Direction::kToDevice) {
      std::memcpy(callers, part.host, part.bytes);
    } else {
      std::memcpy(part.host, callers, part.bytes);
    }
  }
}

Status PartCopies::run(Channel& channel) const {
  CallerCopies copies(channel, direction_);
  for (const DevicePiece& part : parts_) {
    auto* const callers = reinterpret_cast<std::byte*>(part.device);
    if (Status status = copies.enter(callers, part.bytes); !status.ok()) return status;
    if (direction_ == Direction::kToDevice) {
      copies.give(callers, part.host, part.bytes);
    } else {
      copies.take(part.host, callers, part.bytes);
    }
  }
  return copies.run();
}

Result<int> PartCopies::device_of_all() const {
  int device = device::kHost;
  for (const DevicePiece& part : parts_) {
    if (!may_be_devices()) break;
    const auto* const at = reinterpret_cast<const void*>(part.device);
    const auto owner = device::device_of(*device::Driver::found(), at, part.bytes);
    if (!owner) return owner;
    if (*owner == device::kHost || (device != device::kHost && *owner != device)) {
      device = device::kHost;
      break;
    }
    device = *owner;
  }
  if (device != device::kHost) return device;
  return fail(MC_INVALID_ARGUMENT, "copies in the order of a stream are of memory of one device");
}

Status PartCopies::begin(Client& client, Channel& channel, mc_stream stream,
                         const StreamCopies::Ending& ending) const {
  const auto device = device_of_all();
  if (!device) return device.error();
  return client.stream_copies().begin(channel, *device, direction_, parts_, stream, ending);
}

}  // namespace mc::client
