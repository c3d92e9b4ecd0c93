// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/repair.h"

#include <algorithm>

#include "metadata/placement/copy_plan.h"

namespace mc::metadata {

namespace {

// An object of 1 MiB waits as long as if the object had come 8 ms later.
constexpr std::uint64_t kRankNsPerByte = 8;

}  // namespace

void RepairPlanner::retry(std::uint64_t at_ns) {
  retry_at_ns_ = std::min(at_ns, retry_at_ns_.value_or(at_ns));
}

void RepairPlanner::node_gone(NodeId node, std::uint64_t now_ns) {
  for (const CopyJob& job : ledger_.with(node)) fail(job.hash, now_ns);
  request_pass();
}

void RepairPlanner::scan(const Directory& directory, std::uint64_t buckets, std::uint64_t now_ns) {
  if (directory.recovering()) return;
  if (retry_at_ns_ && now_ns >= *retry_at_ns_) {
    retry_at_ns_.reset();
    wanted_ = true;
  }
  if (!position_ && overflowed_ && queue_.empty()) {
    overflowed_ = false;
    wanted_ = true;
  }
  if (!position_) {
    if (!wanted_) return;
    position_ = 0;
    wanted_ = false;
  }
  position_ =
      directory.walk(*position_, buckets, [&](const KeyView& key) { consider(key, now_ns); });
}

void RepairPlanner::consider(const KeyView& key, std::uint64_t now_ns) {
  const unsigned held = weakest_part(key).holder_count;
  // Without a holder of every part the object is not readable, and repair cannot help.
  if (held == 0 || held >= key.attributes.replicas) return;
  enqueue(key.hash, held, key.attributes.pin, now_ns + kRankNsPerByte * key.bytes);
}

void RepairPlanner::lacks(const PublishItem& item, std::uint64_t now_ns) {
  enqueue(item.hash, 1, item.attributes.pin, now_ns + kRankNsPerByte * item.bytes);
}

void RepairPlanner::enqueue(KeyHash hash, unsigned holder_count, Pin pin, std::uint64_t rank_ns) {
  if (ledger_.contains(hash)) return;
  const Urgency urgency{holder_count, 2u - static_cast<unsigned>(pin), rank_ns};
  const auto [known, is_new] = urgencies_.try_emplace(hash, urgency);
  if (!is_new) {
    if (known->second <= urgency) return;
    queue_.erase({known->second, hash});
    known->second = urgency;
  }
  queue_.emplace(urgency, hash);
  if (queue_.size() <= options_.max_queued) return;
  unqueue(std::prev(queue_.end()));
  overflowed_ = true;
}

RepairPlanner::Queue::iterator RepairPlanner::unqueue(Queue::iterator at) {
  urgencies_.erase(at->second);
  return queue_.erase(at);
}

void RepairPlanner::plan(const Directory& directory, std::span<const NodeView> nodes,
                         std::uint64_t now_ns, std::vector<CopyJob>& jobs, std::uint32_t looks) {
  if (directory.recovering()) return;
  for (auto at = queue_.begin(); at != queue_.end() && !ledger_.full() && looks > 0; --looks) {
    const KeyHash hash = at->second;
    const KeyView key = directory.about(hash);
    const auto [part, held] = weakest_part(key);
    if (held == 0 || held >= key.attributes.replicas || ledger_.contains(hash)) {
      at = unqueue(at);
      continue;
    }
    const CopyPlan plan = plan_copy(key, part, nodes, ledger_);
    if (plan.state == CopyPlan::State::kNoPlace) {
      retry(now_ns + options_.unplaced_retry_ns);
      at = unqueue(at);
      continue;
    }
    if (plan.state == CopyPlan::State::kBusy) {
      ++at;
      continue;
    }
    ledger_.start(plan.job);
    jobs.push_back(plan.job);
    at = unqueue(at);
  }
}

void RepairPlanner::fail(KeyHash hash, std::uint64_t now_ns) {
  if (ledger_.finish(hash)) retry(now_ns + options_.retry_ns);
}

void RepairPlanner::finished(const Directory& directory, KeyHash hash, bool ok,
                             std::uint64_t now_ns) {
  if (!ok) return fail(hash, now_ns);
  if (ledger_.finish(hash)) consider(directory.about(hash), now_ns);
}

}  // namespace mc::metadata
