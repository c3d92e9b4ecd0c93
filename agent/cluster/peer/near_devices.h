// SPDX-License-Identifier: Apache-2.0
//
// What it is: Tells which RDMA devices are near to an address of this process, by the host's
//   topology. Bytes that cross to another socket load the link between sockets twice.
// Threads: Any; constant once made.
// Owns: The matrix.
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

// The NUMA node of an address's page. -1: unknown, or the page has no memory yet.
int memory_node_of(const std::byte* data);
// Null if all memory of this host is equally near to all devices.
NearDevices near_devices_of_host();
NearDevices near_devices(transport::PriorityMatrix matrix,
                         std::function<int(const std::byte*)> node_of);

}  // namespace mc::agent
