// SPDX-License-Identifier: Apache-2.0
//
// Opens the cluster over the network, from the agent's options.
// Threads: Any, before the agent's loop runs.
#pragma once

#include <memory>

#include "agent/options/options.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

// Listens on the port and joins the cluster. Null: the options name no cluster.
// Errors: MC_INVALID_ARGUMENT, MC_PERMISSION_DENIED (the key's file), MC_BUSY (the port),
//   MC_NO_MEMORY.
Result<std::unique_ptr<Cluster>> open_cluster(const Options& options, std::uint64_t node_id,
                                              std::uint64_t incarnation,
                                              std::uint64_t capacity_bytes);

}  // namespace mc::agent
