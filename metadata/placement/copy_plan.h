// SPDX-License-Identifier: Apache-2.0
//
// Source and target of another replica of a key, or of one part of a striped object.
//   The target is the best node without a replica. The source is the best holder to read from. Both
//   must be below the limit of copy jobs. Pure: the same input gives the same answer.
// Threads: values.
#pragma once

#include <span>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/placement/copy_job.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

// The part with the fewest holders. An object that is not striped is one part.
struct WeakestPart {
  std::uint8_t part = 0;
  unsigned holder_count = 0;  // 0: the object is not readable
};
WeakestPart weakest_part(const KeyView& key);

// Nodes that may take the part, the best first, at most two. Nodes without any part of the object
// come first. If there are none, nodes with other parts. REQUIRES: the key has holders.
std::vector<NodeId> targets_of(const KeyView& key, unsigned part, std::span<const NodeView> nodes);

struct CopyPlan {
  enum class State : std::uint8_t {
    kReady,
    kNoPlace,  // no node without the part may take it
    kBusy,     // all possible sources or targets are at their limit of jobs
  };
  State state = State::kBusy;
  CopyJob job;  // if kReady
};

// REQUIRES: the part has holders, and the ledger has no job of the key.
CopyPlan plan_copy(const KeyView& key, std::uint8_t part, std::span<const NodeView> nodes,
                   const CopyLedger& ledger);

}  // namespace mc::metadata
