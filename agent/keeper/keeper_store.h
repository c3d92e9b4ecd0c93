// SPDX-License-Identifier: Apache-2.0
//
// The store that talks to a keeper. The caller chooses how a keeper is started.
// Threads: the agent's loop only; starting a keeper forks.
// Owns: the connection and a pidfd of the keeper.
// Trusts: an answer only after decode_keeper_message().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/keeper/descriptor_store.h"

namespace mc::agent {

// Returns when the keeper has been started; the keeper need not listen yet. Returns an error if the
// start failed.
using KeeperSpawner = std::function<Status()>;

Result<std::unique_ptr<DescriptorStore>> make_keeper_store(const std::string& runtime_dir,
                                                           std::uint32_t keep_seconds,
                                                           KeeperSpawner spawn);
// Runs this program as "--keeper --runtime-dir DIR --keep-seconds N", in its own session and as a
// child of init. The keeper therefore outlives any end of the agent. Errors: MC_NO_MEMORY,
// MC_INTERNAL.
Status spawn_keeper(const std::string& runtime_dir, std::uint32_t keep_seconds);

}  // namespace mc::agent
