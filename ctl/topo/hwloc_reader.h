// SPDX-License-Identifier: Apache-2.0
//
// A Topology from a file that "lstopo --of xml" wrote on another host. hwloc reports
//   neither the rate of a port nor whether a NIC is a virtual function. The rate of a port stays
//   unknown.
// Threads: any.
// Trusts: nothing. hwloc parses the text; this reader bounds the result.
#pragma once

#include <string>
#include <string_view>

#include "mc/status.h"
#include "transport/topology/topology.h"

namespace mc::ctl {

inline constexpr std::size_t kMaxHwlocBytes = 16u << 20;

// Errors: MC_INVALID_ARGUMENT if hwloc does not accept the text.
Result<transport::Topology> read_hwloc_xml(std::string_view xml);

}  // namespace mc::ctl
