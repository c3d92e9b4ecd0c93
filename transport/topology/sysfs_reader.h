// SPDX-License-Identifier: Apache-2.0
//
// What it is: a Topology from the files of /sys, of this host or of a recorded one. Whatever is
//   missing there, as in containers, is missing in the result; that is no error.
// Threads: any; pure but for what the tree reads.
// Trusts: nothing in the tree; what does not parse counts as not known.
#pragma once

#include "transport/topology/device_tree.h"
#include "transport/topology/topology.h"

namespace mc::transport {

Topology read_topology(const DeviceTree& tree);

// "32.0 GT/s PCIe" and "16", to the bits per second that packets get; 0: not that.
std::uint64_t pcie_bits_per_s(const std::string& speed, const std::string& width);
// "0000:18:00.0"
bool is_pci_address(const std::string& name);
// The name of a GPU's memory by its vendor: cuda, hip, …; empty: this is no GPU that serves models.
std::string gpu_kind(std::uint32_t pci_class, std::uint16_t vendor);
// Orders by PCI address and numbers the GPUs of each kind; drops nothing.
void number_gpus(Topology& topology);
// Those with RDMA first, then by PCI address.
void sort_nics(Topology& topology);

}  // namespace mc::transport
