// SPDX-License-Identifier: Apache-2.0
#include "transport/topology/near_devices.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "transport/topology/device_tree.h"
#include "transport/topology/nic_choice.h"
#include "transport/topology/sysfs_reader.h"

namespace mc::transport {

std::string place_of_page(const std::byte* data) {
  int node = -1;
  const long failed =
      ::syscall(SYS_get_mempolicy, &node, nullptr, 0, data, MPOL_F_NODE | MPOL_F_ADDR);
  return "cpu:" + std::to_string(failed == 0 ? node : -1);
}

NearDevices near_devices(PriorityMatrix matrix, PlaceOf place_of) {
  return [matrix = std::move(matrix), place_of = std::move(place_of)](
             const std::byte* data, std::span<const std::string> devices) {
    return matrix.near_bits(place_of(data), devices);
  };
}

NearDevices near_devices_of_host(PlaceOf place_of) {
  Topology topology = read_topology(DirectoryTree());
  if (topology.nodes.size() < 2 && topology.gpus.empty()) return nullptr;
  choose_nics(topology, {});
  return near_devices(make_priority_matrix(topology), std::move(place_of));
}

}  // namespace mc::transport
