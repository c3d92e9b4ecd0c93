// SPDX-License-Identifier: Apache-2.0
//
// The choice of the NICs that carry bytes. Each NIC that is left out has the reason in
//   words.
// Threads: any; pure.
// Trusts: nothing. Patterns are the user's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/topology/topology.h"

namespace mc::transport {

// Patterns with * and ?, for the names of a NIC: mlx5_*, ens1f0, 0000:18:00.0.
struct NicFilter {
  std::vector<std::string> allow;  // empty: all
  std::vector<std::string> deny;   // wins
};

// Sets Nic::left_out of NICs that the filter refuses, of NICs without an active port, of virtual
// functions beside the physical function, and of NICs without RDMA beside NICs with RDMA.
void choose_nics(Topology& topology, const NicFilter& filter);

// Whether the host has an Elastic Fabric Adapter, which libfabric's provider "efa" drives.
bool has_efa(const Topology& topology);

// The patterns of the filter that match no NIC: mostly typing errors.
std::vector<std::string> unmatched(const Topology& topology, const NicFilter& filter);

bool matches(std::string_view pattern, std::string_view name);

}  // namespace mc::transport
