// SPDX-License-Identifier: Apache-2.0
//
// What it is: which NICs of a host bytes may go over. What is not used says why, in words.
// Threads: any; pure. Trusts: nothing; patterns are the user's.
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

// Sets Nic::left_out: of what the filter refuses, of NICs without an active port, of virtual
// functions beside their physical one, and of those that only TCP can use, beside RDMA ones.
void choose_nics(Topology& topology, const NicFilter& filter);

// Whether there is an Elastic Fabric Adapter, which libfabric's provider "efa" drives.
bool has_efa(const Topology& topology);

// Patterns of the filter that name no NIC: typing errors, mostly.
std::vector<std::string> unmatched(const Topology& topology, const NicFilter& filter);

bool matches(std::string_view pattern, std::string_view name);

}  // namespace mc::transport
