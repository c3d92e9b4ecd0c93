// SPDX-License-Identifier: Apache-2.0
//
// The parts of a host that move bytes, and the distances between them: NUMA nodes, NICs
//   and GPUs, as plain values. Readers of sysfs and of hwloc's files make the values.
//
//     node 0 ── root complex ─┬─ switch ─┬─ GPU         GPU and NIC below one switch: kSwitch
//                             │          └─ NIC         through the processor's bridge: kHost
//                             └─ NIC                    another root complex of the node: kNode
//     node 1 ── …                                       the other socket: kSystem
//
// Threads: any; values.
// Trusts: nothing. Names and numbers come from the readers, which bound them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mc::transport {

inline constexpr std::size_t kMaxNumaNodes = 1024;
inline constexpr std::size_t kMaxPciDevices = 4096;

// The distance between two devices, or between a device and a memory: nearest first. The short
// names are from nvidia-smi topo.
enum class Distance : std::uint8_t {
  kSame,     // X     parts of one device; memory of the same NUMA node
  kSwitch,   // PIX   at most one PCIe bridge between them
  kBridges,  // PXB   several bridges, not the processor's
  kHost,     // PHB   the processor's PCIe bridge
  kNode,     // NODE  two bridges of one NUMA node
  kSystem,   // SYS   between NUMA nodes
};
const char* distance_name(Distance distance);

struct NumaNode {
  std::uint32_t id = 0;
  std::string cpus;                      // "0-55,112-167"
  std::uint64_t memory_bytes = 0;        // 0: not known
  std::vector<std::uint32_t> distances;  // to the nodes, in order; 10 is local
};

struct PciDevice {
  std::string address;            // 0000:18:00.0; empty: not on a PCI bus
  std::vector<std::string> path;  // from the root complex down: pci0000:15, bridges, the address
  int node = -1;                  // NUMA node; -1: not known
  std::uint64_t bits_per_s = 0;   // the PCIe link as trained; 0: not known
  std::uint64_t max_bits_per_s = 0;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
};

enum class LinkLayer : std::uint8_t { kUnknown, kInfiniband, kEthernet };

struct Port {
  std::uint32_t number = 1;
  bool active = false;
  LinkLayer layer = LinkLayer::kUnknown;
  std::uint64_t bits_per_s = 0;  // 0: not known
};

struct Nic {
  std::string name;                  // mlx5_0; without RDMA, the network device
  std::vector<std::string> netdevs;  // ens1f0
  bool rdma = false;
  PciDevice pci;
  std::vector<Port> ports;
  std::string parent;    // the physical function's PCI address, of a virtual function
  std::string left_out;  // why the NIC is not used; empty: in use

  bool used() const { return left_out.empty(); }
  // The usable rate: of the active ports, or of the PCIe link if the link is narrower. 0: unknown.
  std::uint64_t bits_per_s() const;
};

struct Gpu {
  std::string name;  // as a place of memory: cuda:0, hip:1
  PciDevice pci;
};

struct Topology {
  std::vector<NumaNode> nodes;
  std::vector<Nic> nics;
  std::vector<Gpu> gpus;

  const NumaNode* node(int id) const;
  const Nic* nic(const std::string& name) const;
};

Distance distance(const PciDevice& one, const PciDevice& other);
// The distance between a device and the memory of a node.
Distance distance(const PciDevice& device, const NumaNode& node);

}  // namespace mc::transport
