// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/hot_replicas.h"

#include <algorithm>

#include "metadata/placement/copy_plan.h"

namespace mc::metadata {

void HotReplicas::look_at_extras(const Directory& directory, std::span<const NodeView> nodes,
                                 std::uint64_t now_ns, CopyAndRelease& orders) {
  LocateAnswer found;
  for (auto at = extras_.begin(); at != extras_.end();) {
    const KeyHash hash = at->first.first;
    const NodeId node = at->first.second;
    Extra& extra = at->second;
    directory.locate({&hash, 1}, found);
    const Located& key = found.keys[0];
    const auto holders = found.holders_of(key);
    if (key.version != extra.version || std::ranges::find(holders, node) == holders.end()) {
      at = extras_.erase(at);  // evicted, removed or replaced
      continue;
    }
    const std::uint64_t others = holders.size() - 1;
    if (2ull * keys_.estimate(hash) >= others * options_.keys.locates_per_holder) {
      extra.warm_ns = now_ns;
    }
    const auto staying = static_cast<unsigned>(std::ranges::count_if(
        holders, [&](NodeId each) { return each != node && stays(each, nodes); }));
    if (now_ns - extra.warm_ns < options_.cool_ns || staying < key.attributes.replicas ||
        staying == 0) {
      ++at;
      continue;
    }
    orders.releases.push_back({hash, key.version, node});
    at = extras_.erase(at);
  }
}

void HotReplicas::advance(const Directory& directory, std::span<const NodeView> nodes,
                          std::uint64_t now_ns, CopyAndRelease& orders) {
  if (!keys_.window_over(now_ns)) return;
  look_at_extras(directory, nodes, now_ns, orders);
  for (const HotKey& hot : keys_.advise(directory, now_ns)) {
    if (ledger_.full() || extras_.size() + ledger_.count() >= options_.max_extras) return;
    if (ledger_.contains(hot.hash)) continue;
    const CopyPlan plan = plan_copy(directory.about(hot.hash), 0, nodes, ledger_);
    // A key that stays hot is advised again.
    if (plan.state != CopyPlan::State::kReady) continue;
    ledger_.start(plan.job);
    orders.copies.push_back(plan.job);
  }
}

void HotReplicas::finished(KeyHash hash, bool ok, std::uint64_t now_ns) {
  const auto job = ledger_.finish(hash);
  if (job && ok) extras_[{hash, job->target}] = {job->version, now_ns};
}

void HotReplicas::node_gone(NodeId node) {
  for (const CopyJob& job : ledger_.with(node)) ledger_.finish(job.hash);
  std::erase_if(extras_, [node](const auto& extra) { return extra.first.second == node; });
}

}  // namespace mc::metadata
