// SPDX-License-Identifier: Apache-2.0
//
// What it is: the store that speaks with a keeper, with the way a keeper is started left open.
// Threads: the agent's loop only; starting one forks.
// Owns: the connection and a pidfd of the keeper. Trusts: answers only after
// decode_keeper_message().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/keeper/descriptor_store.h"

namespace mc::agent {

// Returns once the keeper was started; it need not listen yet. Errors: it could not be started.
using KeeperSpawner = std::function<Status()>;

Result<std::unique_ptr<DescriptorStore>> make_keeper_store(const std::string& runtime_dir,
                                                           std::uint32_t keep_seconds,
                                                           KeeperSpawner spawn);
// This program again, as "--keeper --runtime-dir DIR --keep-seconds N", in a session of its own and
// a child of init: it outlives the agent however that ends. Errors: MC_NO_MEMORY, MC_INTERNAL.
Status spawn_keeper(const std::string& runtime_dir, std::uint32_t keep_seconds);

}  // namespace mc::agent
