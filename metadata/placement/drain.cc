// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/drain.h"

#include <algorithm>
#include <iterator>

#include "metadata/placement/copy_plan.h"

namespace mc::metadata {

bool stays(NodeId holder, std::span<const NodeView> nodes) {
  const auto at = std::find_if(nodes.begin(), nodes.end(),
                               [holder](const NodeView& node) { return node.node == holder; });
  return at != nodes.end() && !at->draining && !at->suspected;
}

void DrainPlanner::advance(const Directory& directory, std::span<const NodeView> nodes,
                           std::uint64_t buckets, std::uint64_t now_ns, CopyAndRelease& orders) {
  // The node may hold objects that the directory does not know yet.
  if (directory.recovering() || !directory.reported(node_)) return;
  if (next_pass_ns_) {
    if (now_ns < *next_pass_ns_) return;
    next_pass_ns_.reset();
  }
  // An empty node needs no walk.
  if (position_ == 0 && !walked_ && directory.entry_count(node_) == 0) return end_pass(now_ns);
  std::span<const NodeView> takers = nodes;
  std::vector<NodeView> chosen;
  if (!options_.targets.empty()) {
    std::ranges::copy_if(nodes, std::back_inserter(chosen), [this](const NodeView& view) {
      return std::ranges::find(options_.targets, view.node) != options_.targets.end();
    });
    takers = chosen;
  }
  const std::size_t releases_before = orders.releases.size();
  for (; has_room() && !waiting_.empty(); waiting_.pop_front()) {
    consider(directory.about(waiting_.front()), nodes, takers, orders);
  }
  for (; buckets > 0 && !walked_; --buckets) {
    if (!has_room() || orders.releases.size() - releases_before >= options_.max_releases) return;
    const std::optional<std::uint64_t> next = directory.walk(position_, 1, [&](const KeyView& key) {
      if (consider(key, nodes, takers, orders)) ++progress_.seen;
    });
    position_ = next.value_or(0);
    walked_ = !next;
  }
  if (walked_ && waiting_.empty()) end_pass(now_ns);
}

void DrainPlanner::end_pass(std::uint64_t now_ns) {
  progress_.done = progress_.seen == 0 && ledger_.count() == 0;
  progress_.unplaced = unplaced_;
  failed_.clear();
  progress_.seen = 0;
  unplaced_ = 0;
  walked_ = false;
  next_pass_ns_ = now_ns + options_.retry_ns;
}

bool DrainPlanner::consider(const KeyView& key, std::span<const NodeView> nodes,
                            std::span<const NodeView> takers, CopyAndRelease& orders) {
  const auto holders = key.all_holders();
  const auto own = std::find(holders.begin(), holders.end(), node_);
  if (own == holders.end()) return false;
  if (ledger_.contains(key.hash) || failed_.contains(key.hash)) return true;
  const unsigned here = key.parts[static_cast<std::size_t>(own - holders.begin())];
  bool last = false;
  for (unsigned part = 0; part < key.part_count(); ++part) {
    if ((here >> part & 1u) == 0) continue;
    const std::vector<NodeId> having = key.holders_of(part);
    const auto staying = std::count_if(having.begin(), having.end(),
                                       [&](NodeId node) { return stays(node, nodes); });
    if (staying >= key.attributes.replicas) continue;
    const std::vector<NodeId> targets = targets_of(key, part, takers);
    if (!targets.empty()) {
      start({key.hash, key.version, key.bytes, node_, kNoNode, key.attributes.parts,
             static_cast<std::uint8_t>(part)},
            targets, orders);
      return true;
    }
    // There are fewer nodes than wanted replicas, so the object stays on the holders that it has.
    if (staying == 0) last = true;
  }
  if (last) {
    ++unplaced_;
  } else {
    orders.releases.push_back({key.hash, key.version, node_});
  }
  return true;
}

// A target has no more jobs of this planner than the drained node has.
bool DrainPlanner::has_room() const { return !ledger_.full() && ledger_.free(node_); }

// The last bucket may have more keys than there is room for.
void DrainPlanner::start(CopyJob job, std::span<const NodeId> targets, CopyAndRelease& orders) {
  if (!has_room()) return waiting_.push_back(job.hash);
  job.target = targets.front();
  ledger_.start(job);
  orders.copies.push_back(job);
}

void DrainPlanner::finished(KeyHash hash, bool ok) {
  const std::optional<CopyJob> job = ledger_.finish(hash);
  if (!job) return;
  ++(ok ? progress_.copied : progress_.failed);
  if (ok) progress_.copied_bytes += job->bytes / std::max<std::uint64_t>(job->parts, 1);
  if (!ok) failed_.insert(hash);
}

void DrainPlanner::node_gone(NodeId node) {
  for (const CopyJob& job : ledger_.with(node)) finished(job.hash, false);
}

}  // namespace mc::metadata
