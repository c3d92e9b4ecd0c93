// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/copy_plan.h"

#include <algorithm>

namespace mc::metadata {

CopyPlan plan_copy(KeyHash hash, const Located& key, std::span<const NodeId> holders,
                   std::span<const NodeView> nodes, const CopyLedger& ledger) {
  PlacementRequest request;
  request.key = hash;
  request.bytes = key.bytes;
  request.replicas = 2;  // a second choice, if the best has too much to do
  request.holders = holders;
  const std::vector<NodeId> targets = place(request, nodes);
  if (targets.empty()) return {CopyPlan::State::kNoPlace, {}};
  const auto target = std::ranges::find_if(targets, [&](NodeId node) { return ledger.free(node); });
  std::vector<NodeView> sources;
  for (const NodeView& node : nodes) {
    const bool holds = std::ranges::find(holders, node.node) != holders.end();
    if (holds && !node.suspected && ledger.free(node.node)) sources.push_back(node);
  }
  if (ledger.full() || target == targets.end() || sources.empty()) return {};
  const NodeId source = order_for_read({}, hash, sources).front();
  return {CopyPlan::State::kReady, {hash, key.version, key.bytes, source, *target}};
}

}  // namespace mc::metadata
