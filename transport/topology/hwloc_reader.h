// SPDX-License-Identifier: Apache-2.0
//
// What it is: a Topology from a file that "lstopo --of xml" wrote on another host. hwloc tells
//   neither the rate of a port nor whether a NIC is a virtual function: a port's rate stays
//   unknown.
// Threads: any. Trusts: nothing; hwloc parses the text, what it makes of it is bounded here.
#pragma once

#include <string>
#include <string_view>

#include "mc/status.h"
#include "transport/topology/topology.h"

namespace mc::transport {

inline constexpr std::size_t kMaxHwlocBytes = 16u << 20;

// Errors: MC_INVALID_ARGUMENT when hwloc does not take it.
Result<Topology> read_hwloc_xml(std::string_view xml);

}  // namespace mc::transport
