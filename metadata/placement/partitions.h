// SPDX-License-Identifier: Apache-2.0
//
// What it is: which master is in charge of which keys. The key space is cut into equal partitions
//   by the hash's top bits, and each goes to the master with the highest draw for it (rendezvous):
//   a master that comes takes partitions from the others and moves none between them; one that
//   goes leaves only its own behind.
// Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "metadata/directory/key_hash.h"
#include "metadata/membership/node.h"

namespace mc::metadata {

// Enough that 16 masters' shares differ by some 12 %, and few enough for one value in the store.
inline constexpr std::uint32_t kPartitions = 1024;

inline std::uint32_t partition_of(KeyHash hash, std::uint32_t partition_count = kPartitions) {
  return static_cast<std::uint32_t>((static_cast<unsigned __int128>(hash.hi) * partition_count) >>
                                    64);
}

// The master of each partition; kNoNode when there are none. The order of masters does not matter.
std::vector<NodeId> assign_partitions(std::span<const NodeId> masters,
                                      std::uint32_t partition_count = kPartitions);

}  // namespace mc::metadata
