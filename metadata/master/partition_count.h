// SPDX-License-Identifier: Apache-2.0
//
// The number of partitions of a cluster. The first leader writes the number into the
//   cluster store. A master with another number cannot take part, because its keys would be looked
//   up at the wrong masters.
// Threads: as the store's.
// Trusts: the store; the value is checked.
#pragma once

#include <cstdint>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

// Compares without writing. Errors: MC_INVALID_ARGUMENT with the remedy, or the store's error.
Status check_partition_count(ClusterStore& store, std::uint32_t partitions,
                             std::uint64_t deadline_ns);
// Writes the number if the store has none, else compares as above.
Status fix_partition_count(ClusterStore& store, std::uint32_t partitions,
                           std::uint64_t deadline_ns);

}  // namespace mc::metadata
