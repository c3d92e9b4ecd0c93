// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/partitions.h"

#include <algorithm>
#include <utility>

#include "metadata/placement/spread.h"

namespace mc::metadata {

std::vector<NodeId> assign_partitions(std::span<const NodeId> masters,
                                      std::uint32_t partition_count) {
  std::vector<NodeId> master_of(partition_count, kNoNode);
  for (std::uint32_t partition = 0; partition < partition_count; ++partition) {
    std::pair<std::uint64_t, NodeId> best{0, kNoNode};
    for (const NodeId master : masters) {
      best = std::max(best, std::pair(pair_hash(partition, master), master));
    }
    master_of[partition] = best.second;
  }
  return master_of;
}

}  // namespace mc::metadata
