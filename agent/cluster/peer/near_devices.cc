// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/near_devices.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transport/topology/device_tree.h"
#include "transport/topology/nic_choice.h"
#include "transport/topology/sysfs_reader.h"

namespace mc::agent {

int memory_node_of(const std::byte* data) {
  int node = -1;
  const long failed =
      ::syscall(SYS_get_mempolicy, &node, nullptr, 0, data, MPOL_F_NODE | MPOL_F_ADDR);
  return failed == 0 ? node : -1;
}

NearDevices near_devices(transport::PriorityMatrix matrix,
                         std::function<int(const std::byte*)> node_of) {
  return [matrix = std::move(matrix), node_of = std::move(node_of)](
             const std::byte* data, std::span<const std::string> devices) {
    return matrix.near_bits("cpu:" + std::to_string(node_of(data)), devices);
  };
}

NearDevices near_devices_of_host() {
  transport::Topology topology = transport::read_topology(transport::DirectoryTree());
  if (topology.nodes.size() < 2) return nullptr;
  transport::choose_nics(topology, {});
  return near_devices(transport::make_priority_matrix(topology), memory_node_of);
}

}  // namespace mc::agent
