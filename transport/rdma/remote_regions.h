// SPDX-License-Identifier: Apache-2.0
//
// What it is: regions of RDMA peers (transport/remote_regions.h).
// Threads: the transport's.
#pragma once

#include "transport/rdma/descriptor.h"
#include "transport/remote_regions.h"

namespace mc::transport::rdma {

using RemoteRegions = transport::RemoteRegions<RegionDescriptor, kMaxDevices>;
using RemoteRegion = RemoteRegions::Region;
using DeviceEpochs = RemoteRegions::Epochs;

}  // namespace mc::transport::rdma
