// SPDX-License-Identifier: Apache-2.0
//
// Keeps objects at the wanted number of replicas. After the loss of a node, repair
//   walks the directory in steps and queues keys with too few holders, the most endangered first.
//   The queue becomes copy jobs within the limits. Each part of a striped object shall have that
//   many replicas. The part with the fewest holders is copied first, and no part is copied while
//   any part is missing.
//
// The queue is bounded. A full queue drops the least endangered keys, and another pass finds them
// again. While the directory is recovering, repair plans nothing: holders that have not reported
// yet would be copied needlessly.
// Threads: one; the directory's.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/placement/copy_job.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

struct RepairOptions {
  CopyLimits limits;
  std::uint32_t max_queued = 65536;
  std::uint64_t retry_ns = 1'000'000'000;  // time until a failed job is tried again
  // Time until placement is tried again for objects that no node had room for. A cluster may
  // permanently have fewer nodes than replicas, and each attempt walks the whole directory.
  std::uint64_t unplaced_retry_ns = 30'000'000'000;
};

class RepairPlanner {
 public:
  explicit RepairPlanner(const RepairOptions& options)
      : options_(options), ledger_(options.limits) {}

  // A node is gone, or a node may take objects that had no place. Walks the whole directory. A walk under
  // way ends first, so that frequent requests do not keep the walk from the last keys.
  void request_pass() { wanted_ = true; }
  // An object that was just published and wants more holders. Repair checks the key again before a
  // copy.
  void lacks(const PublishItem& item, std::uint64_t now_ns);
  // The node's jobs have failed.
  void node_gone(NodeId node, std::uint64_t now_ns);

  // Walks the next `buckets` buckets of the directory. Cheap if there is no work.
  void scan(const Directory& directory, std::uint64_t buckets, std::uint64_t now_ns);
  // The number of keys that a call examines at most. Jobs with busy nodes stay in the queue.
  static constexpr std::uint32_t kLooks = 1024;
  // Appends the jobs that may start now.
  void plan(const Directory& directory, std::span<const NodeView> nodes, std::uint64_t now_ns,
            std::vector<CopyJob>& jobs, std::uint32_t looks = kLooks);
  // A job ended. ok: the target's publish was applied. A key that still lacks a replica is queued
  // again.
  void finished(const Directory& directory, KeyHash hash, bool ok, std::uint64_t now_ns);

  [[nodiscard]] std::size_t queued() const { return queue_.size(); }
  [[nodiscard]] std::size_t in_flight() const { return ledger_.count(); }
  // No key is known to lack a replica.
  [[nodiscard]] bool idle() const {
    return !wanted_ && !overflowed_ && !position_ && !retry_at_ns_ && queue_.empty() &&
           ledger_.count() == 0;
  }

 private:
  // Fewest holders first, then pinned keys, then the keys that have waited longest. Small objects go
  // first if they came together, because more of them can be saved in the same time.
  struct Urgency {
    unsigned holder_count = 0;
    unsigned pin_rank = 0;
    std::uint64_t rank_ns = 0;
    auto operator<=>(const Urgency&) const = default;
  };
  using Queue = std::set<std::pair<Urgency, KeyHash>>;

  void consider(const KeyView& key, std::uint64_t now_ns);
  void enqueue(KeyHash hash, unsigned holder_count, Pin pin, std::uint64_t rank_ns);
  Queue::iterator unqueue(Queue::iterator at);
  void fail(KeyHash hash, std::uint64_t now_ns);
  void retry(std::uint64_t at_ns);

  RepairOptions options_;
  CopyLedger ledger_;
  Queue queue_;
  std::map<KeyHash, Urgency> urgencies_;  // of the keys in the queue
  bool wanted_ = false;
  bool overflowed_ = false;
  std::optional<std::uint64_t> position_;     // of the running walk
  std::optional<std::uint64_t> retry_at_ns_;  // when a pass is wanted
};

}  // namespace mc::metadata
