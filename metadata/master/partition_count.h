// SPDX-License-Identifier: Apache-2.0
//
// What it is: into how many partitions a cluster's keys are cut. The first leader writes it into the
//   cluster store; a master that is configured for another number has no place in the cluster:
//   its keys would be looked for at the wrong masters.
// Threads: as the store's. Trusts: the store; its value is checked.
#pragma once

#include <cstdint>

#include "metadata/store/cluster_store.h"

namespace mc::metadata {

// Nothing is written. Errors: MC_INVALID_ARGUMENT with the remedy, or the store's.
Status check_partition_count(ClusterStore& store, std::uint32_t partitions,
                             std::uint64_t deadline_ns);
// Writes it where there is none, else as above.
Status fix_partition_count(ClusterStore& store, std::uint32_t partitions,
                           std::uint64_t deadline_ns);

}  // namespace mc::metadata
