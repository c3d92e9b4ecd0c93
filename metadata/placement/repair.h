// SPDX-License-Identifier: Apache-2.0
//
// What it is: keeps objects at the number of replicas their owners asked for. After a node is lost
//   the directory is walked in steps; what has too few holders is queued, the most endangered
//   first, and becomes copy jobs as far as the limits allow. Of an object in stripes each part is
//   to have that many; the one with fewest is copied first, and none while a part is missing.
//   The queue is bounded: when it is full the least endangered give way, and are found again by
//   another pass. Nothing is planned while the directory is recovering, for holders that have not
//   reported yet would be copied needlessly.
// Threads: one; the directory's.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/placement/copy_job.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

struct RepairOptions {
  CopyLimits limits;
  std::uint32_t max_queued = 65536;
  std::uint64_t retry_ns = 1'000'000'000;  // until a job that failed is tried again
  // Until it is tried again to place what no node had a place for: fewer nodes than replicas may be
  // how things are, and each attempt is a walk through everything.
  std::uint64_t unplaced_retry_ns = 30'000'000'000;
};

class RepairPlanner {
 public:
  explicit RepairPlanner(const RepairOptions& options)
      : options_(options), ledger_(options.limits) {}

  // A node is gone, or one has come that may take what had no place: look at everything.
  void request_pass() { wanted_ = true; }
  // One that was just published and wants more holders. Looked at again before it is acted upon.
  void lacks(const PublishItem& item);
  // Its jobs have failed.
  void node_gone(NodeId node, std::uint64_t now_ns);

  // Walks so many buckets of the directory on; cheap when there is nothing to look for.
  void scan(const Directory& directory, std::uint64_t buckets, std::uint64_t now_ns);
  // Appends the jobs that may start now.
  void plan(const Directory& directory, std::span<const NodeView> nodes, std::uint64_t now_ns,
            std::vector<CopyJob>& jobs);
  // A job ended, with ok after its target's publish was applied. What still lacks a replica is
  // queued again.
  void finished(const Directory& directory, KeyHash hash, bool ok, std::uint64_t now_ns);

  [[nodiscard]] std::size_t queued() const { return queue_.size(); }
  [[nodiscard]] std::size_t in_flight() const { return ledger_.count(); }
  // Nothing lacks a replica, as far as was looked.
  [[nodiscard]] bool idle() const {
    return !wanted_ && !position_ && !retry_at_ns_ && queue_.empty() && ledger_.count() == 0;
  }

 private:
  // Fewest holders first, then pinned ones, then small ones, of which more are saved in a while.
  using Urgency = std::tuple<unsigned, unsigned, std::uint64_t, KeyHash>;

  void consider(const KeyView& key);
  void enqueue(KeyHash hash, unsigned holder_count, Pin pin, std::uint64_t bytes);
  void fail(KeyHash hash, std::uint64_t now_ns);
  void retry(std::uint64_t at_ns);

  RepairOptions options_;
  CopyLedger ledger_;
  std::set<Urgency> queue_;
  bool wanted_ = false;
  bool overflowed_ = false;
  std::optional<std::uint64_t> position_;     // of the walk under way
  std::optional<std::uint64_t> retry_at_ns_;  // a pass is wanted then
};

}  // namespace mc::metadata
