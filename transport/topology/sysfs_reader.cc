// SPDX-License-Identifier: Apache-2.0
#include "transport/topology/sysfs_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace mc::transport {

namespace {

const std::string kNodes = "/sys/devices/system/node";
const std::string kPci = "/sys/bus/pci/devices";
const std::string kRdma = "/sys/class/infiniband";
const std::string kNet = "/sys/class/net";

template <typename Number>
std::optional<Number> number(std::string_view text, int base = 10) {
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::string text_of(const DeviceTree& tree, const std::string& file) {
  return tree.read(file).value_or("");
}

std::uint32_t hex_of(const DeviceTree& tree, const std::string& file) {
  return number<std::uint32_t>(text_of(tree, file), 16).value_or(0);
}

// "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
std::uint64_t port_bits_per_s(const std::string& rate) {
  double gigabits = 0;
  const auto [end, error] =
      std::from_chars(rate.data(), rate.data() + rate.size(), gigabits, std::chars_format::fixed);
  const bool known = error == std::errc() && gigabits > 0 && gigabits < 1e5 &&
                     std::string_view(end, rate.data() + rate.size()).starts_with(" Gb/sec");
  return known ? static_cast<std::uint64_t>(gigabits * 1e9) : 0;
}

// "Node 0 MemTotal:       1056429136 kB"
std::uint64_t memory_bytes(const std::string& meminfo) {
  const std::size_t at = meminfo.find("MemTotal:");
  if (at == std::string::npos) return 0;
  const std::size_t digits = meminfo.find_first_of("0123456789", at);
  if (digits == std::string::npos) return 0;
  const auto kib = number<std::uint64_t>(std::string_view(meminfo).substr(digits));
  return kib && *kib < (1ull << 50) ? *kib * 1024 : 0;
}

std::vector<std::uint32_t> numbers_in(const std::string& text) {
  std::vector<std::uint32_t> out;
  for (std::size_t at = text.find_first_of("0123456789");
       at != std::string::npos && out.size() < kMaxNumaNodes;) {
    const auto value = number<std::uint32_t>(std::string_view(text).substr(at));
    if (!value) break;
    out.push_back(*value);
    at = text.find_first_not_of("0123456789", at);
    if (at != std::string::npos) at = text.find_first_of("0123456789", at);
  }
  return out;
}

void read_nodes(const DeviceTree& tree, Topology& topology) {
  for (const std::string& name : tree.list(kNodes)) {
    if (!name.starts_with("node") || topology.nodes.size() >= kMaxNumaNodes) continue;
    const auto id = number<std::uint32_t>(std::string_view(name).substr(4));
    if (!id || name != "node" + std::to_string(*id)) continue;
    NumaNode node;
    node.id = *id;
    const std::string at = kNodes + '/' + name;
    node.cpus = text_of(tree, at + "/cpulist");
    node.memory_bytes = memory_bytes(text_of(tree, at + "/meminfo"));
    node.distances = numbers_in(text_of(tree, at + "/distance"));
    topology.nodes.push_back(std::move(node));
  }
  std::ranges::sort(topology.nodes, {}, &NumaNode::id);
}

// The parts of a device's path, beginning with the root complex.
std::vector<std::string> bus_path(const std::string& place) {
  std::vector<std::string> path;
  for (std::size_t at = 0; at < place.size();) {
    const std::size_t end = std::min(place.find('/', at + 1), place.size());
    std::string part = place.substr(at + 1, end - at - 1);
    // "pci0000:15"; on machines with an I/O memory unit, other parts come before.
    const bool root = part.starts_with("pci") && part.size() > 5 && part.find(':') != part.npos;
    if (root || is_pci_address(part)) path.push_back(std::move(part));
    at = end;
  }
  return path;
}

int node_of(const DeviceTree& tree, const std::string& at, const Topology& topology) {
  const auto said = number<int>(text_of(tree, at + "/numa_node"));
  if (said && topology.node(*said) != nullptr) return *said;
  if (topology.nodes.size() == 1) return static_cast<int>(topology.nodes[0].id);
  // Firmware that does not report the node often reports the processors.
  const std::string cpus = text_of(tree, at + "/local_cpulist");
  for (const NumaNode& node : topology.nodes) {
    if (!cpus.empty() && node.cpus == cpus) return static_cast<int>(node.id);
  }
  return -1;
}

PciDevice read_pci(const DeviceTree& tree, const std::string& place, const Topology& topology) {
  PciDevice device;
  device.path = bus_path(place);
  // A network device may lie below the PCI function: …/0000:00:05.0/virtio2
  if (device.path.empty() || !is_pci_address(device.path.back())) return {};
  device.address = device.path.back();
  const std::string at = place.substr(0, place.find(device.address) + device.address.size());
  device.node = node_of(tree, at, topology);
  device.vendor = static_cast<std::uint16_t>(hex_of(tree, at + "/vendor"));
  device.device = static_cast<std::uint16_t>(hex_of(tree, at + "/device"));
  device.bits_per_s = pcie_bits_per_s(text_of(tree, at + "/current_link_speed"),
                                      text_of(tree, at + "/current_link_width"));
  device.max_bits_per_s =
      pcie_bits_per_s(text_of(tree, at + "/max_link_speed"), text_of(tree, at + "/max_link_width"));
  return device;
}

// Fills the fields that RDMA and network devices have in common.
Nic read_nic(const DeviceTree& tree, const std::string& name, const std::string& place,
             const Topology& topology) {
  Nic nic;
  nic.name = name;
  nic.pci = read_pci(tree, place, topology);
  if (nic.pci.address.empty()) return nic;
  const std::string at = place.substr(0, place.find(nic.pci.address) + nic.pci.address.size());
  if (const auto parent = tree.resolve(at + "/physfn")) {
    nic.parent = parent->substr(parent->rfind('/') + 1);
  }
  return nic;
}

std::vector<Port> read_rdma_ports(const DeviceTree& tree, const std::string& at) {
  std::vector<Port> ports;
  for (const std::string& name : tree.list(at + "/ports")) {
    const auto id = number<std::uint32_t>(name);
    if (!id) continue;
    const std::string port_at = at + "/ports/" + name;
    Port port;
    port.number = *id;
    // "4: ACTIVE"
    port.active = text_of(tree, port_at + "/state").starts_with("4");
    port.bits_per_s = port_bits_per_s(text_of(tree, port_at + "/rate"));
    const std::string layer = text_of(tree, port_at + "/link_layer");
    port.layer = layer == "InfiniBand" ? LinkLayer::kInfiniband
                 : layer == "Ethernet" ? LinkLayer::kEthernet
                                       : LinkLayer::kUnknown;
    ports.push_back(port);
  }
  std::ranges::sort(ports, {}, &Port::number);
  return ports;
}

void read_rdma(const DeviceTree& tree, Topology& topology) {
  for (const std::string& name : tree.list(kRdma)) {
    if (topology.nics.size() >= kMaxPciDevices) return;
    const std::string at = kRdma + '/' + name;
    const auto place = tree.resolve(at + "/device");
    // A device without a PCI function is emulated over a network device (rxe, siw).
    Nic nic = place ? read_nic(tree, name, *place, topology) : Nic{};
    nic.name = name;
    nic.rdma = true;
    nic.ports = read_rdma_ports(tree, at);
    topology.nics.push_back(std::move(nic));
  }
}

void read_netdevs(const DeviceTree& tree, Topology& topology) {
  for (const std::string& name : tree.list(kNet)) {
    if (topology.nics.size() >= kMaxPciDevices) return;
    const std::string at = kNet + '/' + name;
    // Bridges, tunnels, lo and the ends of virtual cables have no device.
    const auto place = tree.resolve(at + "/device");
    if (!place) continue;
    Nic nic = read_nic(tree, name, *place, topology);
    if (nic.pci.address.empty()) continue;
    const auto same = std::ranges::find_if(topology.nics, [&](const Nic& known) {
      return known.rdma && known.pci.address == nic.pci.address;
    });
    if (same != topology.nics.end()) {
      same->netdevs.push_back(name);
      continue;
    }
    Port port;
    port.layer = LinkLayer::kEthernet;
    const std::string state = text_of(tree, at + "/operstate");
    // Drivers that do not know the state report "unknown".
    port.active = state == "up" || state == "unknown";
    const auto megabits = number<std::int64_t>(text_of(tree, at + "/speed"));
    if (megabits && *megabits > 0 && *megabits < 100'000'000) {
      port.bits_per_s = static_cast<std::uint64_t>(*megabits) * 1'000'000;
    }
    nic.netdevs.push_back(name);
    nic.ports.push_back(port);
    topology.nics.push_back(std::move(nic));
  }
}

void read_gpus(const DeviceTree& tree, Topology& topology) {
  std::size_t seen = 0;
  for (const std::string& name : tree.list(kPci)) {
    if (++seen > kMaxPciDevices) break;
    const auto place = tree.resolve(kPci + '/' + name);
    if (!place) continue;
    const auto vendor = static_cast<std::uint16_t>(hex_of(tree, *place + "/vendor"));
    const std::string kind = gpu_kind(hex_of(tree, *place + "/class"), vendor);
    if (kind.empty()) continue;
    Gpu gpu;
    gpu.name = kind;
    gpu.pci = read_pci(tree, *place, topology);
    topology.gpus.push_back(std::move(gpu));
  }
}

}  // namespace

bool is_pci_address(const std::string& name) {
  const auto hex = [&](std::size_t at) {
    return at < name.size() &&
           std::string_view("0123456789abcdef").find(name[at]) != std::string_view::npos;
  };
  const std::size_t colon = name.find(':');
  if (colon < 4 || colon > 8 || name.size() != colon + 8) return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool mark = i == colon || i == colon + 3 || i == colon + 6;
    if (!mark && !hex(i)) return false;
  }
  return name[colon + 3] == ':' && name[colon + 6] == '.';
}

std::uint64_t pcie_bits_per_s(const std::string& speed, const std::string& width) {
  double transfers = 0;  // 10⁹ a second and lane
  const auto [end, error] = std::from_chars(speed.data(), speed.data() + speed.size(), transfers,
                                            std::chars_format::fixed);
  const auto lanes = number<std::uint32_t>(width);
  const bool known = error == std::errc() && lanes && *lanes > 0 && *lanes <= 32 && transfers > 0 &&
                     transfers < 1000 &&
                     std::string_view(end, speed.data() + speed.size()).starts_with(" GT/s");
  if (!known) return 0;
  // Line codes: 8b/10b up to 5 GT/s, 128b/130b up to 32, then 242 bytes of 256 (flits).
  const double code = transfers <= 5 ? 0.8 : transfers <= 32 ? 128.0 / 130 : 242.0 / 256;
  return static_cast<std::uint64_t>(transfers * 1e9 * *lanes * code);
}

std::string gpu_kind(std::uint32_t pci_class, std::uint16_t vendor) {
  const std::uint32_t kind = pci_class >> 8;
  const bool display = kind == 0x0300 || kind == 0x0302 || kind == 0x0380;
  const bool accelerator = kind == 0x1200;
  if (!display && !accelerator) return "";
  switch (vendor) {
    case 0x10de:
      return "cuda";
    case 0x1002:
      return "hip";
    case 0x1ed5:
      return "musa";
    case 0x19e5:
      return accelerator ? "npu" : "";
    default:
      // The graphics chip of a server's console is no place for objects.
      return accelerator ? "gpu" : "";
  }
}

void number_gpus(Topology& topology) {
  std::ranges::stable_sort(topology.gpus, {}, [](const Gpu& gpu) { return gpu.pci.address; });
  std::map<std::string, std::uint32_t> next;
  for (Gpu& gpu : topology.gpus) {
    const std::uint32_t index = next[gpu.name]++;
    gpu.name += ':' + std::to_string(index);
  }
}

void sort_nics(Topology& topology) {
  // By place on the bus, which is also the order of the slots: mlx5_10 comes after mlx5_9.
  std::ranges::stable_sort(topology.nics, [](const Nic& a, const Nic& b) {
    if (a.rdma != b.rdma) return a.rdma;
    return a.pci.address < b.pci.address;
  });
}

Topology read_topology(const DeviceTree& tree) {
  Topology topology;
  read_nodes(tree, topology);
  read_rdma(tree, topology);
  read_netdevs(tree, topology);
  read_gpus(tree, topology);
  number_gpus(topology);
  sort_nics(topology);
  return topology;
}

}  // namespace mc::transport
