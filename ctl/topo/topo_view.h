// SPDX-License-Identifier: Apache-2.0
//
// The topology of a host as text, JSON and SVG.
// Threads: any; pure functions.
// Owns: nothing.
// Trusts: nothing; names from a recorded tree are escaped.
#pragma once

#include <string>

#include <json/forwards.h>

#include "transport/topology/priority_matrix.h"
#include "transport/topology/topology.h"

namespace mc::ctl {

struct TopoView {
  std::string source;  // "this host", or the file
  transport::Topology topology;
  transport::PriorityMatrix matrix;
};

std::string topo_text(const TopoView& view);
Json::Value topo_json(const TopoView& view);
std::string topo_svg(const TopoView& view);

// "2 NUMA nodes, 8 GPUs, 13 NICs (10 used)"
std::string topo_summary(const transport::Topology& topology);
// "ConnectX-7", "H100 SXM"; for an unknown device, vendor and device in hexadecimal.
std::string device_name(const transport::PciDevice& device);
// "400 Gb/s", "63 Gb/s"; "speed not known".
std::string format_rate(std::uint64_t bits_per_s);
// The link of a NIC and its limit: "400 Gb/s InfiniBand".
std::string nic_link(const transport::Nic& nic);

}  // namespace mc::ctl
