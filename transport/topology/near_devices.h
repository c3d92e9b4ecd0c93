// SPDX-License-Identifier: Apache-2.0
//
// The devices that are near to memory, by the host's topology. Bytes that cross to another socket
//   load the link between sockets twice.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "transport/topology/priority_matrix.h"

namespace mc::transport {

// Bits of the devices, by place in the list, that are near to an address of this process.
using NearDevices =
    std::function<std::uint64_t(const std::byte* data, std::span<const std::string> devices)>;
// The place of memory: "cpu:0", "cuda:3" (priority_matrix.h).
using PlaceOf = std::function<std::string(const std::byte* data)>;

// "cpu:N" of the NUMA node of an address's page. "cpu:-1": unknown, or the page has no memory yet.
std::string place_of_page(const std::byte* data);
// Null if all memory of this host is equally near to all devices.
NearDevices near_devices_of_host(PlaceOf place_of);
NearDevices near_devices(PriorityMatrix matrix, PlaceOf place_of);

}  // namespace mc::transport
