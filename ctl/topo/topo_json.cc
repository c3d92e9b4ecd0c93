// SPDX-License-Identifier: Apache-2.0
#include "ctl/topo/topo_view.h"

#include "ctl/text/json.h"

namespace mc::ctl {

namespace {

Json::Value texts(const std::vector<std::string>& values) {
  Json::Value list(Json::arrayValue);
  for (const std::string& value : values) list.append(value);
  return list;
}

void add_pci(Json::Value& value, const transport::PciDevice& pci) {
  value["pci_address"] = pci.address;
  value["pci_path"] = texts(pci.path);
  value["node"] = pci.node;
  value["model"] = device_name(pci);
  value["pcie_bits_per_s"] = u64(pci.bits_per_s);
  value["pcie_max_bits_per_s"] = u64(pci.max_bits_per_s);
}

const char* layer_name(transport::LinkLayer layer) {
  return layer == transport::LinkLayer::kInfiniband ? "infiniband"
         : layer == transport::LinkLayer::kEthernet ? "ethernet"
                                                    : "unknown";
}

Json::Value nic_json(const transport::Nic& nic) {
  Json::Value value;
  value["name"] = nic.name;
  value["netdevs"] = texts(nic.netdevs);
  value["rdma"] = nic.rdma;
  add_pci(value, nic.pci);
  value["bits_per_s"] = u64(nic.bits_per_s());
  value["used"] = nic.used();
  if (!nic.used()) value["left_out"] = nic.left_out;
  if (!nic.parent.empty()) value["physical_function"] = nic.parent;
  value["ports"] = Json::Value(Json::arrayValue);
  for (const transport::Port& port : nic.ports) {
    Json::Value item;
    item["number"] = port.number;
    item["active"] = port.active;
    item["layer"] = layer_name(port.layer);
    item["bits_per_s"] = u64(port.bits_per_s);
    value["ports"].append(item);
  }
  return value;
}

}  // namespace

Json::Value topo_json(const TopoView& view) {
  Json::Value value;
  value["source"] = view.source;
  value["nodes"] = Json::Value(Json::arrayValue);
  for (const transport::NumaNode& node : view.topology.nodes) {
    Json::Value item;
    item["id"] = node.id;
    item["cpus"] = node.cpus;
    item["memory_bytes"] = u64(node.memory_bytes);
    item["distances"] = Json::Value(Json::arrayValue);
    for (const std::uint32_t distance : node.distances) item["distances"].append(distance);
    value["nodes"].append(item);
  }
  value["nics"] = Json::Value(Json::arrayValue);
  for (const transport::Nic& nic : view.topology.nics) value["nics"].append(nic_json(nic));
  value["gpus"] = Json::Value(Json::arrayValue);
  for (const transport::Gpu& gpu : view.topology.gpus) {
    Json::Value item;
    item["name"] = gpu.name;
    add_pci(item, gpu.pci);
    for (const transport::Nic& nic : view.topology.nics) {
      item["distances"][nic.name] = distance_name(distance(gpu.pci, nic.pci));
    }
    value["gpus"].append(item);
  }
  Json::Value& matrix = value["nic_priority_matrix"];
  matrix = Json::Value(Json::objectValue);
  for (const auto& [place, ranking] : view.matrix.places) {
    matrix[place].append(texts(ranking.near));
    matrix[place].append(texts(ranking.far));
  }
  return value;
}

}  // namespace mc::ctl
