// SPDX-License-Identifier: Apache-2.0
#include "transport/topology/topology.h"

#include <algorithm>

namespace mc::transport {

const char* distance_name(Distance distance) {
  switch (distance) {
    case Distance::kSame:
      return "X";
    case Distance::kSwitch:
      return "PIX";
    case Distance::kBridges:
      return "PXB";
    case Distance::kHost:
      return "PHB";
    case Distance::kNode:
      return "NODE";
    case Distance::kSystem:
      return "SYS";
  }
  return "?";
}

std::uint64_t Nic::bits_per_s() const {
  std::uint64_t line = 0;
  for (const Port& port : ports) {
    if (port.active) line += port.bits_per_s;
  }
  if (line == 0) return 0;
  return pci.bits_per_s == 0 ? line : std::min(line, pci.bits_per_s);
}

const NumaNode* Topology::node(int id) const {
  const auto at = std::ranges::find_if(
      nodes, [&](const NumaNode& node) { return static_cast<int>(node.id) == id; });
  return at == nodes.end() ? nullptr : &*at;
}

const Nic* Topology::nic(const std::string& name) const {
  const auto at = std::ranges::find(nics, name, &Nic::name);
  return at == nics.end() ? nullptr : &*at;
}

Distance distance(const PciDevice& one, const PciDevice& other) {
  if (!one.address.empty() && one.address == other.address) return Distance::kSame;
  const auto [a, b] = std::ranges::mismatch(one.path, other.path);
  const auto common = a - one.path.begin();
  // The parts of both paths below the last common part: bridge ports and devices.
  const auto below = std::max(one.path.end() - a, other.path.end() - b);
  if (common > 1) return below <= 2 ? Distance::kSwitch : Distance::kBridges;
  if (common == 1) return Distance::kHost;
  const bool same_node = one.node >= 0 && one.node == other.node;
  return same_node ? Distance::kNode : Distance::kSystem;
}

Distance distance(const PciDevice& device, const NumaNode& node) {
  return device.node == static_cast<int>(node.id) ? Distance::kSame : Distance::kSystem;
}

}  // namespace mc::transport
