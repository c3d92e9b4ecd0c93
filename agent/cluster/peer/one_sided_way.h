// SPDX-License-Identifier: Apache-2.0
//
// Opens the one-sided transport that carries large reads beside TCP, if host and
//   options permit. RDMA comes before libfabric.
// Threads: Any, before the agent's loop runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "agent/options/options.h"
#include "transport/one_sided/one_sided.h"
#include "transport/topology/priority_matrix.h"

namespace mc::agent {

// Bit mask of the devices that are near to an address of this process, by the host's topology.
// Bytes that cross to another socket load the link between sockets twice.
using NearDevices =
    std::function<std::uint64_t(const std::byte* data, std::span<const std::string> devices)>;

// The NUMA node of an address's page. -1: unknown, or the page has no memory yet.
int memory_node_of(const std::byte* data);
// Null if all memory of this host is equally near to all devices.
NearDevices near_devices_of_host();
NearDevices near_devices(transport::PriorityMatrix matrix,
                         std::function<int(const std::byte*)> node_of);

struct OneSidedWay {
  std::unique_ptr<transport::OneSidedTransport> transport;  // null: TCP alone
  std::string why_not;                                      // empty: the options want none
};

// address: the address that this host's peers dial. Errors: the named transport cannot be opened;
// the text says why, with the remedy.
Result<OneSidedWay> open_one_sided_way(const Options& options, transport::NodeId node,
                                       std::uint64_t incarnation, const std::string& address,
                                       transport::Dialer& dialer);

}  // namespace mc::agent
