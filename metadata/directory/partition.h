// SPDX-License-Identifier: Apache-2.0
//
// The partition that a key belongs to. Partitions are equal intervals of the upper half
//   of the hash, so a partition's keys are spread evenly over the table (key_hash.h). Masters and
//   agents must agree: the function never changes (tests/unit/partition_test.cc has golden values),
//   and a cluster's number of partitions is fixed (metadata/master/partition_count.h).
// Threads: any; a pure function.
#pragma once

#include <cstdint>

#include "metadata/directory/key_hash.h"

namespace mc::metadata {

// Each partition costs a thread and a connection to the cluster store, at every master and agent,
// and a link between each agent and the leader.
inline constexpr std::uint32_t kMaxPartitions = 64;

// REQUIRES: partitions > 0.
inline std::uint32_t partition_of(KeyHash hash, std::uint32_t partitions) {
  return static_cast<std::uint32_t>((static_cast<unsigned __int128>(hash.hi) * partitions) >> 64);
}

}  // namespace mc::metadata
