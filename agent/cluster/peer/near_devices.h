// SPDX-License-Identifier: Apache-2.0
//
// What it is: which RDMA devices are near to a place in this process' memory, by this host's
//   topology: bytes that cross to another socket cost its link twice.
// Threads: any; constant once made. Owns: the matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "transport/topology/priority_matrix.h"

namespace mc::agent {

using NearDevices =
    std::function<std::uint64_t(const std::byte* data, std::span<const std::string> devices)>;

// The NUMA node that the page of an address is on; -1: not known, or it has none yet.
int memory_node_of(const std::byte* data);
// None where all memory of this host is equally near to all devices.
NearDevices near_devices_of_host();
NearDevices near_devices(transport::PriorityMatrix matrix,
                         std::function<int(const std::byte*)> node_of);

}  // namespace mc::agent
