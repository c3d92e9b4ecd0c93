// SPDX-License-Identifier: Apache-2.0
//
// What it is: empties a node without losing an object. For each object on it, in the directory's
//   order:
//
//      others hold it ──────────────────────────────► release: the node may drop it
//      nobody else ──► copy job ──► target published ──┘
//
//   "Others" are holders in the directory, of the same version, that are neither draining nor
//   suspected: two nodes drained at once do not count on each other, and a job's word alone
//   releases nothing. Nor does the directory's word of a job that has failed, until the next pass:
//   its target has told of a copy that it does not keep. Passes are repeated for as long as the
//   node is being drained. Of an object in stripes each part is copied by itself, to a node that
//   holds none of it if there is one, and all are released when others hold all of them.
// Threads: one; the directory's.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/placement/copy_job.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

struct DrainOptions {
  CopyLimits limits{.max_in_flight = 64, .max_per_node = 64};  // each job has the node as source
  std::uint32_t max_releases = 1024;                           // in one call of advance()
  std::uint64_t retry_ns = 500'000'000;  // between passes, so that releases can take effect
};

struct CopyAndRelease {
  std::vector<CopyJob> copies;
  std::vector<Holding> releases;  // to be dropped if still of this version
};

using DrainOrders = CopyAndRelease;

// Whether this holder is one to count on.
bool stays(NodeId holder, std::span<const NodeView> nodes);

struct DrainProgress {
  std::uint64_t copied = 0;    // objects, and parts of those in stripes
  std::uint64_t failed = 0;    // tried again with the next pass
  std::uint64_t unplaced = 0;  // of the latest pass: no node had a place
  std::uint64_t seen = 0;      // objects found on the node in the pass under way
  bool done = false;           // the latest pass found nothing
};

class DrainPlanner {
 public:
  DrainPlanner(NodeId node, const DrainOptions& options)
      : node_(node), options_(options), ledger_(options.limits) {}

  // Walks up to so many buckets on and appends what may start. REQUIRES: nodes has the drained
  // node with draining set.
  void advance(const Directory& directory, std::span<const NodeView> nodes, std::uint64_t buckets,
               std::uint64_t now_ns, CopyAndRelease& orders);
  // A job ended, with ok after its target's publish was applied.
  void finished(KeyHash hash, bool ok);
  // Jobs it was to take have failed. (When the drained node is gone there is nothing to drain.)
  void node_gone(NodeId node);

  [[nodiscard]] NodeId node() const { return node_; }
  [[nodiscard]] const DrainProgress& progress() const { return progress_; }

 private:
  void end_pass(std::uint64_t now_ns);
  void consider(const KeyView& key, std::span<const NodeView> nodes, CopyAndRelease& orders);
  void start(CopyJob job, std::span<const NodeId> targets, CopyAndRelease& orders);

  NodeId node_;
  DrainOptions options_;
  CopyLedger ledger_;
  std::set<KeyHash> failed_;  // in the pass under way
  DrainProgress progress_;
  std::uint64_t position_ = 0;
  std::uint64_t unplaced_ = 0;
  std::optional<std::uint64_t> next_pass_ns_;
};

}  // namespace mc::metadata
