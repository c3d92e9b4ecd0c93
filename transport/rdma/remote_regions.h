// SPDX-License-Identifier: Apache-2.0
//
// What it is: regions of RDMA peers (transport/remote_regions.h), of which a part may not be
//   registered now.
// Threads: the transport's.
#pragma once

#include "transport/rdma/descriptor.h"
#include "transport/remote_regions.h"

namespace mc::transport::rdma {

using RemoteRegions = transport::RemoteRegions<RegionDescriptor, kMaxDevices>;
using RemoteRegion = RemoteRegions::Region;
using DeviceEpochs = RemoteRegions::Epochs;

// Whether the peer said that this is registered, and with a key for its device.
bool covers(const RemoteRegion& region, std::uint64_t offset_bytes, std::uint64_t size_bytes);
bool has_keys(const RemoteRegion& region, std::size_t slot, std::uint64_t offset_bytes,
              std::uint64_t size_bytes);

}  // namespace mc::transport::rdma
