// SPDX-License-Identifier: Apache-2.0
//
// What it is: from whom and to whom one more replica of a key, or of a part of one in stripes, is
//   copied: the best node without it, and the holder that is best to read from, of those whose
//   share of copies is not used up.
//   Pure: the same input gives the same answer.
// Threads: values.
#pragma once

#include <span>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/placement/copy_job.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

// The part of which fewest nodes are holders; of what is not striped, all of it.
struct WeakestPart {
  std::uint8_t part = 0;
  unsigned holder_count = 0;  // 0: nobody can read the object
};
WeakestPart weakest_part(const KeyView& key);

// Nodes that may take the part, the best first, at most two: those that hold nothing of the object,
// or, if there are none, those that hold other parts of it. REQUIRES: the key has holders.
std::vector<NodeId> targets_of(const KeyView& key, unsigned part, std::span<const NodeView> nodes);

struct CopyPlan {
  enum class State : std::uint8_t {
    kReady,
    kNoPlace,  // no node without it may take it
    kBusy,     // all that could give or take it have as much to do as they may
  };
  State state = State::kBusy;
  CopyJob job;  // if kReady
};

// REQUIRES: the part has holders, and the ledger has no job of the key.
CopyPlan plan_copy(const KeyView& key, std::uint8_t part, std::span<const NodeView> nodes,
                   const CopyLedger& ledger);

}  // namespace mc::metadata
