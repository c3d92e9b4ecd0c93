// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/copy_plan.h"

#include <algorithm>
#include <climits>

namespace mc::metadata {

WeakestPart weakest_part(const KeyView& key) {
  WeakestPart weakest{0, UINT_MAX};
  for (unsigned part = 0; part < key.part_count(); ++part) {
    unsigned count = 0;
    for (unsigned i = 0; i < key.holder_count; ++i) count += key.parts[i] >> part & 1u;
    if (count < weakest.holder_count) weakest = {static_cast<std::uint8_t>(part), count};
  }
  return weakest;
}

std::vector<NodeId> targets_of(const KeyView& key, unsigned part, std::span<const NodeView> nodes) {
  PlacementRequest request;
  request.key = key.hash;
  request.bytes = key.part_bytes();
  request.replicas = 2;  // the second is an alternative if the best node is busy
  request.holders = key.all_holders();
  std::vector<NodeId> targets = place(request, nodes);
  if (!targets.empty() || !key.attributes.striped) return targets;
  const std::vector<NodeId> holders = key.holders_of(part);
  request.holders = holders;
  return place(request, nodes);
}

CopyPlan plan_copy(const KeyView& key, std::uint8_t part, std::span<const NodeView> nodes,
                   const CopyLedger& ledger) {
  const std::vector<NodeId> targets = targets_of(key, part, nodes);
  if (targets.empty()) return {CopyPlan::State::kNoPlace, {}};
  const auto target = std::ranges::find_if(targets, [&](NodeId node) { return ledger.free(node); });
  const std::vector<NodeId> holders = key.holders_of(part);
  std::vector<NodeView> sources;
  for (const NodeView& node : nodes) {
    const bool holds = std::ranges::find(holders, node.node) != holders.end();
    if (holds && !node.suspected && ledger.free(node.node)) sources.push_back(node);
  }
  if (ledger.full() || target == targets.end() || sources.empty()) return {};
  const NodeId source = order_for_read({}, key.hash, sources).front();
  return {CopyPlan::State::kReady,
          {key.hash, key.version, key.bytes, source, *target, key.attributes.parts, part}};
}

}  // namespace mc::metadata
