// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/drain.h"

#include <algorithm>

namespace mc::metadata {

bool stays(NodeId holder, std::span<const NodeView> nodes) {
  const auto at = std::find_if(nodes.begin(), nodes.end(),
                               [holder](const NodeView& node) { return node.node == holder; });
  return at != nodes.end() && !at->draining && !at->suspected;
}

void DrainPlanner::advance(const Directory& directory, std::span<const NodeView> nodes,
                           std::uint64_t buckets, std::uint64_t now_ns, CopyAndRelease& orders) {
  if (progress_.done || directory.recovering()) return;
  if (next_pass_ns_) {
    if (now_ns < *next_pass_ns_) return;
    next_pass_ns_.reset();
  }
  const std::size_t releases_before = orders.releases.size();
  for (; buckets > 0; --buckets) {
    if (ledger_.full() || orders.releases.size() - releases_before >= options_.max_releases) return;
    const std::optional<std::uint64_t> next =
        directory.walk(position_, 1, [&](const WalkedKey& key) { consider(key, nodes, orders); });
    if (next) {
      position_ = *next;
      continue;
    }
    progress_.done = progress_.seen == 0 && ledger_.count() == 0;
    progress_.unplaced = unplaced_;
    progress_.seen = 0;
    unplaced_ = 0;
    position_ = 0;
    next_pass_ns_ = now_ns + options_.retry_ns;
    return;
  }
}

void DrainPlanner::consider(const WalkedKey& key, std::span<const NodeView> nodes,
                            CopyAndRelease& orders) {
  const auto holders = key.all_holders();
  if (std::find(holders.begin(), holders.end(), node_) == holders.end()) return;
  ++progress_.seen;
  if (key.attributes.striped) {
    // Nobody moves a stripe: to be released, the object would have to go.
    ++unplaced_;
    return;
  }
  if (ledger_.contains(key.hash)) return;
  const auto staying = static_cast<unsigned>(std::count_if(
      holders.begin(), holders.end(), [&](NodeId node) { return stays(node, nodes); }));
  if (staying >= key.attributes.replicas) {
    orders.releases.push_back({key.hash, key.version, node_});
    return;
  }
  PlacementRequest request;
  request.key = key.hash;
  request.bytes = key.bytes;
  request.replicas = 2;
  request.holders = holders;
  const std::vector<NodeId> targets = place(request, nodes);
  if (targets.empty()) {
    // Fewer nodes than replicas wanted: the object lives on where it is.
    if (staying > 0) {
      orders.releases.push_back({key.hash, key.version, node_});
    } else {
      ++unplaced_;
    }
    return;
  }
  const auto target = std::find_if(targets.begin(), targets.end(),
                                   [this](NodeId node) { return ledger_.free(node); });
  // Otherwise it waits for the next pass.
  if (target == targets.end() || ledger_.full() || !ledger_.free(node_)) return;
  const CopyJob job{key.hash, key.version, key.bytes, node_, *target};
  ledger_.start(job);
  orders.copies.push_back(job);
}

void DrainPlanner::finished(KeyHash hash, bool ok) {
  if (!ledger_.finish(hash)) return;
  ++(ok ? progress_.copied : progress_.failed);
}

void DrainPlanner::node_gone(NodeId node) {
  for (const CopyJob& job : ledger_.with(node)) finished(job.hash, false);
}

}  // namespace mc::metadata
