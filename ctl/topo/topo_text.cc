// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "ctl/text/size.h"
#include "ctl/text/table.h"
#include "ctl/topo/topo_view.h"

namespace mc::ctl {

using transport::Gpu;
using transport::Nic;
using transport::NumaNode;
using transport::Topology;

namespace {

std::string counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out.empty() ? "-" : out;
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t have = display_width(text);
  return have < width ? text + std::string(width - have, ' ') : text;
}

struct Line {
  std::string name;
  std::string address;
  std::string model;
  std::string rest;
};

Line line_of(const Gpu& gpu) {
  return {gpu.name, gpu.pci.address, device_name(gpu.pci),
          gpu.pci.bits_per_s == 0 ? "" : "PCIe " + format_rate(gpu.pci.bits_per_s)};
}

Line line_of(const Nic& nic) {
  std::string rest = nic_link(nic);
  if (!nic.netdevs.empty() && nic.netdevs.front() != nic.name) rest += "  " + nic.netdevs.front();
  if (!nic.used()) rest += "  not used: " + nic.left_out;
  return {nic.name, nic.pci.address, device_name(nic.pci), rest};
}

// Devices by root complex, in the order of their addresses.
struct Group {
  std::string root;
  std::vector<std::pair<std::string, Line>> lines;  // by address
};

std::vector<Group> groups_of(const Topology& topology, int node) {
  std::vector<Group> groups;
  const auto add = [&](const transport::PciDevice& pci, Line line) {
    if (pci.node != node) return;
    const std::string root = pci.path.empty() ? "" : pci.path.front();
    auto at = std::ranges::find(groups, root, &Group::root);
    if (at == groups.end()) at = groups.insert(groups.end(), Group{root, {}});
    at->lines.emplace_back(pci.address, std::move(line));
  };
  for (const Gpu& gpu : topology.gpus) add(gpu.pci, line_of(gpu));
  for (const Nic& nic : topology.nics) add(nic.pci, line_of(nic));
  std::ranges::sort(groups, {}, &Group::root);
  for (Group& group : groups) {
    std::ranges::stable_sort(group.lines, {}, [](const auto& line) { return line.first; });
  }
  return groups;
}

std::string tree_text(const std::vector<Group>& groups) {
  std::size_t name = 0, address = 0, model = 0;
  for (const Group& group : groups) {
    for (const auto& [at, line] : group.lines) {
      name = std::max(name, display_width(line.name));
      address = std::max(address, display_width(line.address));
      model = std::max(model, display_width(line.model));
    }
  }
  std::string out;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const bool last = i + 1 == groups.size();
    const std::string& root = groups[i].root;
    out += fmt::format("{} {}\n", last ? "└─" : "├─", root.empty() ? "not on PCI" : root);
    for (std::size_t k = 0; k < groups[i].lines.size(); ++k) {
      const Line& line = groups[i].lines[k].second;
      std::string text =
          fmt::format("{}  {} {}  {}  {}  {}", last ? " " : "│",
                      k + 1 == groups[i].lines.size() ? "└─" : "├─", padded(line.name, name),
                      padded(line.address, address), padded(line.model, model), line.rest);
      text.erase(text.find_last_not_of(' ') + 1);
      out += printable(text) + '\n';
    }
  }
  return out;
}

std::string distance_text(const Topology& topology) {
  std::vector<std::string> header = {""};
  std::vector<const Nic*> nics;
  for (const Nic& nic : topology.nics) {
    if (!nic.used()) continue;
    nics.push_back(&nic);
    header.push_back(nic.name);
  }
  if (nics.empty() || topology.gpus.empty()) return "";
  Table table(header);
  for (const Gpu& gpu : topology.gpus) {
    std::vector<std::string> row = {gpu.name};
    for (const Nic* nic : nics) row.emplace_back(distance_name(distance(gpu.pci, nic->pci)));
    table.add_row(std::move(row));
  }
  return "\n" + table.to_string() +
         "PIX one switch, PXB several bridges, PHB the processor's bridge, NODE two bridges of one "
         "node,\nSYS between nodes\n";
}

}  // namespace

std::string format_rate(std::uint64_t bits_per_s) {
  if (bits_per_s == 0) return "speed not known";
  if (bits_per_s < 1'000'000'000) return fmt::format("{} Mb/s", bits_per_s / 1'000'000);
  const double gigabits = static_cast<double>(bits_per_s) / 1e9;
  return gigabits < 10 ? fmt::format("{:.3g} Gb/s", gigabits)
                       : fmt::format("{:.0f} Gb/s", gigabits);
}

std::string nic_link(const Nic& nic) {
  std::uint64_t line = 0;
  std::size_t active = 0;
  auto layer = transport::LinkLayer::kUnknown;
  for (const transport::Port& port : nic.ports) {
    if (layer == transport::LinkLayer::kUnknown) layer = port.layer;
    if (!port.active) continue;
    line += port.bits_per_s;
    ++active;
  }
  std::string out = active == 0 && !nic.ports.empty() ? "no link" : format_rate(nic.bits_per_s());
  if (active == 0 && !nic.ports.empty()) return out;
  if (layer == transport::LinkLayer::kInfiniband) out += " InfiniBand";
  if (layer == transport::LinkLayer::kEthernet) out += nic.rdma ? " RoCE" : " Ethernet";
  if (active > 1) out += fmt::format(", {} ports", active);
  if (line > nic.bits_per_s()) {
    out += fmt::format(", limited by PCIe (its port: {}{})", format_rate(line),
                       nic.pci.max_bits_per_s > nic.pci.bits_per_s
                           ? ", a wider slot: " + format_rate(nic.pci.max_bits_per_s)
                           : "");
  }
  return out;
}

std::string topo_summary(const Topology& topology) {
  const auto used = static_cast<std::size_t>(std::ranges::count_if(topology.nics, &Nic::used));
  std::string out =
      fmt::format("{}, {}, {}", counted(topology.nodes.size(), "NUMA node"),
                  counted(topology.gpus.size(), "GPU"), counted(topology.nics.size(), "NIC"));
  if (used < topology.nics.size()) out += fmt::format(" ({} used)", used);
  return out;
}

std::string topo_text(const TopoView& view) {
  const Topology& topology = view.topology;
  std::string out = fmt::format("{}: {}\n", printable(view.source), topo_summary(topology));
  for (const NumaNode& node : topology.nodes) {
    out += fmt::format("\nnode {}", node.id);
    if (!node.cpus.empty()) out += "  CPUs " + printable(node.cpus);
    if (node.memory_bytes > 0) out += "  " + format_bytes(node.memory_bytes);
    out += '\n' + tree_text(groups_of(topology, static_cast<int>(node.id)));
  }
  if (const auto rest = groups_of(topology, -1); !rest.empty()) {
    out += "\nof no known node\n" + tree_text(rest);
  }
  out += distance_text(topology);
  const bool any = std::ranges::any_of(topology.nics, &Nic::used);
  if (!any) {
    return out +
           "\nNo NIC that bytes could go over: other hosts are reached by TCP over whatever\n"
           "the system routes by. In a container that is usual; on a host, see\n"
           "/sys/class/infiniband and mcctl doctor.\n";
  }
  Table table({"MEMORY", "NEAR", "FAR"});
  for (const auto& [place, ranking] : view.matrix.places) {
    table.add_row({place, joined(ranking.near), joined(ranking.far)});
  }
  return out + "\n" + table.to_string();
}

}  // namespace mc::ctl
