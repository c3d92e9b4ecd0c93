// SPDX-License-Identifier: Apache-2.0
#include "ctl/topo/hwloc_reader.h"

#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "transport/topology/sysfs_reader.h"

namespace mc::ctl {

namespace {

using transport::LinkLayer;
using transport::Nic;
using transport::NumaNode;
using transport::PciDevice;
using transport::Topology;

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using PciAttributes = hwloc_obj_attr_u::hwloc_pcidev_attr_s;
using Tree = std::unique_ptr<hwloc_topology, Destroy>;

std::string address_of(const PciAttributes& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", static_cast<unsigned>(pci.domain),
                static_cast<unsigned>(pci.bus), static_cast<unsigned>(pci.dev),
                static_cast<unsigned>(pci.func));
  return text;
}

std::string part_of(hwloc_obj_t bridge) {
  const hwloc_obj_attr_u::hwloc_bridge_attr_s& attr = bridge->attr->bridge;
  if (attr.upstream_type == HWLOC_OBJ_BRIDGE_PCI) return address_of(attr.upstream.pci);
  char text[32];
  std::snprintf(text, sizeof text, "pci%04x:%02x",
                static_cast<unsigned>(attr.downstream.pci.domain),
                static_cast<unsigned>(attr.downstream.pci.secondary_bus));
  return text;
}

PciDevice device_of(hwloc_topology_t tree, hwloc_obj_t object) {
  PciDevice device;
  device.address = address_of(object->attr->pcidev);
  device.vendor = object->attr->pcidev.vendor_id;
  device.device = object->attr->pcidev.device_id;
  // In 10⁹ bytes a second, without the line code.
  const float gigabytes = object->attr->pcidev.linkspeed;
  if (gigabytes > 0 && gigabytes < 10'000) {
    device.bits_per_s = static_cast<std::uint64_t>(static_cast<double>(gigabytes) * 8e9);
  }
  device.path.push_back(device.address);
  for (hwloc_obj_t at = object->parent; at != nullptr; at = at->parent) {
    if (at->type == HWLOC_OBJ_BRIDGE && device.path.size() < 64) {
      device.path.push_back(part_of(at));
    }
  }
  std::ranges::reverse(device.path);
  const hwloc_obj_t outer = hwloc_get_non_io_ancestor_obj(tree, object);
  if (outer != nullptr && outer->nodeset != nullptr && hwloc_bitmap_weight(outer->nodeset) == 1) {
    device.node = hwloc_bitmap_first(outer->nodeset);
  }
  return device;
}

void read_nodes(hwloc_topology_t tree, Topology& topology) {
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(tree, HWLOC_OBJ_NUMANODE, object)) != nullptr &&
         topology.nodes.size() < transport::kMaxNumaNodes) {
    NumaNode node;
    node.id = object->os_index;
    node.memory_bytes = object->attr->numanode.local_memory;
    char* cpus = nullptr;
    if (object->cpuset != nullptr && hwloc_bitmap_list_asprintf(&cpus, object->cpuset) >= 0) {
      node.cpus = cpus;
    }
    std::free(cpus);
    topology.nodes.push_back(std::move(node));
  }
  std::ranges::sort(topology.nodes, {}, &NumaNode::id);
  hwloc_distances_s* distances = nullptr;
  unsigned count = 1;
  const bool found =
      hwloc_distances_get_by_type(tree, HWLOC_OBJ_NUMANODE, &count, &distances, 0, 0) == 0 &&
      count > 0;
  if (!found) return;
  for (unsigned i = 0; i < distances->nbobjs; ++i) {
    for (NumaNode& node : topology.nodes) {
      if (distances->objs[i] == nullptr || node.id != distances->objs[i]->os_index) continue;
      node.distances.resize(topology.nodes.size(), 0);
      for (unsigned k = 0; k < distances->nbobjs && k < node.distances.size(); ++k) {
        node.distances[k] =
            static_cast<std::uint32_t>(distances->values[i * distances->nbobjs + k]);
      }
    }
  }
  hwloc_distances_release(tree, distances);
}

// Adds the NICs of a PCI device, which are operating system devices of the PCI device.
void read_nic(hwloc_topology_t tree, hwloc_obj_t object, Topology& topology) {
  Nic nic;
  for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling) {
    if (child->type != HWLOC_OBJ_OS_DEVICE || child->name == nullptr) continue;
    if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) {
      nic.name = child->name;
      nic.rdma = true;
      for (std::uint32_t i = 1; i <= 8; ++i) {
        const std::string name = "Port" + std::to_string(i) + "State";
        const char* const state = hwloc_obj_get_info_by_name(child, name.c_str());
        if (state == nullptr) continue;
        nic.ports.push_back({i, std::string_view(state) == "4", LinkLayer::kUnknown, 0});
      }
    } else if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK) {
      nic.netdevs.push_back(child->name);
    }
  }
  if (nic.name.empty() && nic.netdevs.empty()) return;
  nic.pci = device_of(tree, object);
  if (!nic.rdma) nic.name = nic.netdevs.front();
  // A NIC without a reported port counts as active.
  if (nic.ports.empty()) nic.ports.push_back({1, true, LinkLayer::kUnknown, 0});
  topology.nics.push_back(std::move(nic));
}

}  // namespace

Result<transport::Topology> read_hwloc_xml(std::string_view xml) {
  const auto refused = [] {
    return fail(MC_INVALID_ARGUMENT,
                "hwloc cannot read this as a topology; write one with lstopo --of xml FILE");
  };
  if (xml.empty() || xml.size() > kMaxHwlocBytes) return refused();
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) {
    return fail(MC_NO_MEMORY, "hwloc cannot begin; free some memory");
  }
  const Tree tree(made);
  const std::string text(xml);  // with the zero that hwloc wants
  if (hwloc_topology_set_xmlbuffer(made, text.c_str(), static_cast<int>(text.size() + 1)) != 0 ||
      hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_ALL) != 0 ||
      hwloc_topology_load(made) != 0) {
    return refused();
  }
  Topology topology;
  read_nodes(made, topology);
  hwloc_obj_t object = nullptr;
  for (std::size_t seen = 0; (object = hwloc_get_next_pcidev(made, object)) != nullptr &&
                             seen < transport::kMaxPciDevices;
       ++seen) {
    read_nic(made, object, topology);
    const PciAttributes& pci = object->attr->pcidev;
    const std::string kind =
        transport::gpu_kind(static_cast<std::uint32_t>(pci.class_id) << 8, pci.vendor_id);
    if (!kind.empty()) topology.gpus.push_back({kind, device_of(made, object)});
  }
  transport::number_gpus(topology);
  transport::sort_nics(topology);
  return topology;
}

}  // namespace mc::ctl
