// SPDX-License-Identifier: Apache-2.0
//
// What it is: from whom and to whom one more replica of a key is copied: the best node without it,
//   and the holder that is best to read from, of those whose share of copies is not used up.
//   Pure: the same input gives the same answer.
// Threads: values.
#pragma once

#include <span>

#include "metadata/directory/directory.h"
#include "metadata/placement/copy_job.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

struct CopyPlan {
  enum class State : std::uint8_t {
    kReady,
    kNoPlace,  // no node without it may take it
    kBusy,     // all that could give or take it have as much to do as they may
  };
  State state = State::kBusy;
  CopyJob job;  // if kReady
};

// REQUIRES: key was found, these are its holders, and the ledger has no job of it.
CopyPlan plan_copy(KeyHash hash, const Located& key, std::span<const NodeId> holders,
                   std::span<const NodeView> nodes, const CopyLedger& ledger);

}  // namespace mc::metadata
