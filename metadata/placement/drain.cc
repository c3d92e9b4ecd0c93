// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/drain.h"

#include <algorithm>
#include <bit>

namespace mc::metadata {

bool stays(NodeId holder, std::span<const NodeView> nodes) {
  const auto at = std::find_if(nodes.begin(), nodes.end(),
                               [holder](const NodeView& node) { return node.node == holder; });
  return at != nodes.end() && !at->draining && !at->suspected;
}

void DrainPlanner::advance(const Directory& directory, std::span<const NodeView> nodes,
                           std::uint64_t buckets, std::uint64_t now_ns, CopyAndRelease& orders) {
  if (directory.recovering()) return;
  if (next_pass_ns_) {
    if (now_ns < *next_pass_ns_) return;
    next_pass_ns_.reset();
  }
  // What is empty is not walked for.
  if (position_ == 0 && directory.entry_count(node_) == 0) return end_pass(now_ns);
  const std::size_t releases_before = orders.releases.size();
  for (; buckets > 0; --buckets) {
    if (ledger_.full() || orders.releases.size() - releases_before >= options_.max_releases) return;
    const std::optional<std::uint64_t> next =
        directory.walk(position_, 1, [&](const WalkedKey& key) { consider(key, nodes, orders); });
    if (next) {
      position_ = *next;
      continue;
    }
    return end_pass(now_ns);
  }
}

void DrainPlanner::end_pass(std::uint64_t now_ns) {
  progress_.done = progress_.seen == 0 && ledger_.count() == 0;
  progress_.unplaced = unplaced_;
  failed_.clear();
  progress_.seen = 0;
  unplaced_ = 0;
  position_ = 0;
  next_pass_ns_ = now_ns + options_.retry_ns;
}

void DrainPlanner::consider(const WalkedKey& key, std::span<const NodeView> nodes,
                            CopyAndRelease& orders) {
  const auto holders = key.all_holders();
  if (std::find(holders.begin(), holders.end(), node_) == holders.end()) return;
  ++progress_.seen;
  if (ledger_.contains(key.hash) || failed_.contains(key.hash)) return;
  if (key.attributes.striped) return consider_parts(key, nodes, orders);
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
  start({key.hash, key.version, key.bytes, node_}, targets, orders);
}

void DrainPlanner::consider_parts(const WalkedKey& key, std::span<const NodeView> nodes,
                                  CopyAndRelease& orders) {
  const auto holders = key.all_holders();
  unsigned here = 0, elsewhere = 0;
  for (unsigned i = 0; i < key.holder_count; ++i) {
    if (holders[i] == node_) here |= key.parts[i];
    if (stays(holders[i], nodes)) elsewhere |= key.parts[i];
  }
  const unsigned left = here & ~elsewhere;
  if (left == 0) {
    orders.releases.push_back({key.hash, key.version, node_});
    return;
  }
  CopyJob job{key.hash, key.version, key.bytes, node_};
  job.parts = key.attributes.parts;
  job.part = static_cast<std::uint8_t>(std::countr_zero(left));
  PlacementRequest request;
  request.key = key.hash;
  request.bytes = (key.bytes - 1) / job.parts + 1;  // about as much
  request.replicas = 2;
  request.holders = holders;
  std::vector<NodeId> targets = place(request, nodes);
  if (targets.empty()) {
    request.holders = {&node_, 1};
    targets = place(request, nodes);
  }
  if (targets.empty()) {
    ++unplaced_;
    return;
  }
  start(job, targets, orders);
}

// To the first of them that has not too much to do; else it waits for the next pass.
void DrainPlanner::start(CopyJob job, std::span<const NodeId> targets, CopyAndRelease& orders) {
  const auto target = std::find_if(targets.begin(), targets.end(),
                                   [this](NodeId node) { return ledger_.free(node); });
  if (target == targets.end() || ledger_.full() || !ledger_.free(node_)) return;
  job.target = *target;
  ledger_.start(job);
  orders.copies.push_back(job);
}

void DrainPlanner::finished(KeyHash hash, bool ok) {
  if (!ledger_.finish(hash)) return;
  ++(ok ? progress_.copied : progress_.failed);
  if (!ok) failed_.insert(hash);
}

void DrainPlanner::node_gone(NodeId node) {
  for (const CopyJob& job : ledger_.with(node)) finished(job.hash, false);
}

}  // namespace mc::metadata
