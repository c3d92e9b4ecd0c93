// SPDX-License-Identifier: Apache-2.0
//
// Empties a node without losing an object. For each object on the node, in the
//   directory's order:
//
//      another node holds it ───────────────────────────► release: the node may drop it
//      no other node ──► copy job ──► target published ──┘
//
// Another node counts only if the directory names it as a holder of the same version and it is
// neither draining nor suspected. So two nodes that drain at once do not rely on each other, and a
// job's success alone releases nothing. After a failed job the directory's entries of that key do
// not count until the next pass, because the target may have published a copy that it does not
// keep. Passes repeat while the node drains. Each part of a striped object is copied separately,
// preferably to a node without any part. The parts are released when other nodes hold all of them.
// Threads: one; the directory's.
#pragma once

#include <cstdint>
#include <deque>
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
  std::uint32_t max_releases = 1024;                           // in a call of advance()
  std::uint64_t retry_ns = 500'000'000;  // between passes, so that releases can take effect
  std::vector<NodeId> targets = {};      // the only nodes that take objects; empty: any
};

struct CopyAndRelease {
  std::vector<CopyJob> copies;
  std::vector<Holding> releases;  // to be dropped if the holder still has this version
};

using DrainOrders = CopyAndRelease;

// Whether this holder is a reliable one: neither draining nor suspected.
bool stays(NodeId holder, std::span<const NodeView> nodes);

struct DrainProgress {
  std::uint64_t copied = 0;  // objects, and parts of striped objects
  std::uint64_t copied_bytes = 0;
  std::uint64_t failed = 0;    // tried again with the next pass
  std::uint64_t unplaced = 0;  // of the latest pass: no node had room
  std::uint64_t seen = 0;      // objects found on the node in the running pass
  bool done = false;           // the latest pass found no object
};

class DrainPlanner {
 public:
  DrainPlanner(NodeId node, const DrainOptions& options)
      : node_(node), options_(options), ledger_(options.limits) {}

  // Walks up to `buckets` buckets while there is room for jobs, and appends the orders that may
  // start. REQUIRES: nodes has the drained node with draining set.
  void advance(const Directory& directory, std::span<const NodeView> nodes, std::uint64_t buckets,
               std::uint64_t now_ns, CopyAndRelease& orders);
  // A job ended. ok: the target's publish was applied.
  void finished(KeyHash hash, bool ok);
  // Jobs with this target have failed. (If the drained node is gone, there is nothing to drain.)
  void node_gone(NodeId node);

  [[nodiscard]] NodeId node() const { return node_; }
  [[nodiscard]] const DrainProgress& progress() const { return progress_; }

 private:
  void end_pass(std::uint64_t now_ns);
  // takers: the nodes that may take objects. False: the node does not hold the object.
  bool consider(const KeyView& key, std::span<const NodeView> nodes,
                std::span<const NodeView> takers, CopyAndRelease& orders);
  bool has_room() const;
  void start(CopyJob job, std::span<const NodeId> targets, CopyAndRelease& orders);

  NodeId node_;
  DrainOptions options_;
  CopyLedger ledger_;
  std::set<KeyHash> failed_;     // in the running pass
  std::deque<KeyHash> waiting_;  // for room
  DrainProgress progress_;
  std::uint64_t position_ = 0;
  bool walked_ = false;  // the whole directory, in the running pass
  std::uint64_t unplaced_ = 0;
  std::optional<std::uint64_t> next_pass_ns_;
};

}  // namespace mc::metadata
