// SPDX-License-Identifier: Apache-2.0
//
// An order to copy one object, or one part of a striped object, to a node without it;
//   and the ledger of running jobs, which bounds the jobs in total and at each node.
// Threads: a single thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "metadata/directory/key_hash.h"
#include "metadata/membership/node.h"

namespace mc::metadata {

// The target pulls the bytes and then publishes. Only then the target counts as a holder.
struct CopyJob {
  KeyHash hash;
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
  NodeId source = kNoNode;
  NodeId target = kNoNode;
  std::uint8_t parts = 0;  // of a striped object: its number of parts
  std::uint8_t part = 0;
  bool operator==(const CopyJob&) const = default;
  [[nodiscard]] std::uint64_t bytes_to_copy() const { return parts == 0 ? bytes : bytes / parts; }
};

// Under way. A node's jobs and bytes count as source and as target together. A job for a small object takes
// some milliseconds at a busy node, so 256 jobs are more than 25,000 objects a second. 64 MiB keep 100 Gb/s
// busy for 5 ms. The jobs are fewer than the orders that an agent's link may have open (rpc::DialOptions).
struct CopyLimits {
  std::uint32_t max_in_flight = 16'384;
  std::uint32_t max_per_node = 256;
  std::uint64_t max_bytes_per_node = 64u << 20;  // a node with fewer bytes takes a job of any size
};

class CopyLedger {
 public:
  explicit CopyLedger(CopyLimits limits) : limits_(limits) {}

  [[nodiscard]] bool full() const { return jobs_.size() >= limits_.max_in_flight; }
  [[nodiscard]] bool free(NodeId node) const {
    const auto at = per_node_.find(node);
    return at == per_node_.end() || (at->second.jobs < limits_.max_per_node &&
                                     at->second.bytes < limits_.max_bytes_per_node);
  }
  [[nodiscard]] bool contains(KeyHash hash) const { return jobs_.contains(hash); }
  [[nodiscard]] std::size_t count() const { return jobs_.size(); }

  // REQUIRES: !full(), and source and target are free().
  void start(const CopyJob& job) {
    jobs_.emplace(job.hash, job);
    add(job.source, job);
    add(job.target, job);
  }
  std::optional<CopyJob> finish(KeyHash hash) {
    const auto at = jobs_.find(hash);
    if (at == jobs_.end()) return std::nullopt;
    const CopyJob job = at->second;
    jobs_.erase(at);
    release(job.source, job);
    release(job.target, job);
    return job;
  }
  // Jobs with this node as source or target.
  [[nodiscard]] std::vector<CopyJob> with(NodeId node) const {
    std::vector<CopyJob> found;
    for (const auto& [hash, job] : jobs_) {
      if (job.source == node || job.target == node) found.push_back(job);
    }
    return found;
  }

 private:
  struct UnderWay {
    std::uint32_t jobs = 0;
    std::uint64_t bytes = 0;
  };

  void add(NodeId node, const CopyJob& job) {
    UnderWay& all = per_node_[node];
    ++all.jobs;
    all.bytes += job.bytes_to_copy();
  }
  void release(NodeId node, const CopyJob& job) {
    const auto at = per_node_.find(node);
    at->second.bytes -= job.bytes_to_copy();
    if (--at->second.jobs == 0) per_node_.erase(at);
  }

  CopyLimits limits_;
  std::map<KeyHash, CopyJob> jobs_;
  std::map<NodeId, UnderWay> per_node_;
};

}  // namespace mc::metadata
