// SPDX-License-Identifier: Apache-2.0
//
// A Topology from the files of /sys, of this host or of a record. A file that is
//   missing, as in containers, is missing in the result. That is no error.
// Threads: any; pure but for the reads of the tree.
// Trusts: nothing in the tree. A value that does not parse counts as unknown.
#pragma once

#include "transport/topology/device_tree.h"
#include "transport/topology/topology.h"

namespace mc::transport {

Topology read_topology(const DeviceTree& tree);

// The bits per second for packets, from "32.0 GT/s PCIe" and "16"; 0: the text does not parse.
std::uint64_t pcie_bits_per_s(const std::string& speed, const std::string& width);
// "0000:18:00.0"
bool is_pci_address(const std::string& name);
// The name of a GPU's memory by the vendor: cuda, hip, …; empty: not a GPU that serves models.
std::string gpu_kind(std::uint32_t pci_class, std::uint16_t vendor);
// Orders the GPUs by PCI address, and numbers the GPUs of each kind.
void number_gpus(Topology& topology);
// Orders the NICs: NICs with RDMA first, then by PCI address.
void sort_nics(Topology& topology);

}  // namespace mc::transport
