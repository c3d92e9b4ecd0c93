// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/placement.h"

#include <algorithm>
#include <tuple>

#include "metadata/placement/spread.h"

namespace mc::metadata {

namespace {

constexpr double kLeastWeight = 1e-6;

bool contains(std::span<const NodeId> nodes, NodeId node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// From 0.05 (fully busy) to 1. A busy node is avoided but not excluded, because the figure may be
// outdated.
double idleness(const NodeView& node) {
  return 0.05 + 0.95 * (1000 - std::min<std::uint32_t>(node.busy_permille, 1000)) / 1000.0;
}

double ramp(const NodeView& node) {
  if (node.age_ns >= kSlowStartNs) return 1;
  return 0.05 + 0.95 * static_cast<double>(node.age_ns) / static_cast<double>(kSlowStartNs);
}

struct Candidate {
  std::uint64_t tier = 0;
  double draw = 0;
  const NodeView* node = nullptr;
  // A heap's top is the greatest element, so the best candidate compares greatest.
  bool operator<(const Candidate& other) const {
    return std::tuple(tier, draw, node->node) >
           std::tuple(other.tier, other.draw, other.node->node);
  }
};

Candidate candidate(const PlacementRequest& request, const NodeView& node) {
  const std::uint64_t preferred_count = request.preferred.size();
  const auto preferred = static_cast<std::uint64_t>(
      std::find(request.preferred.begin(), request.preferred.end(), node.node) -
      request.preferred.begin());
  const bool has_room = node.free_bytes >= request.bytes;
  const double room = has_room ? static_cast<double>(node.free_bytes) : 1.0;
  Candidate made;
  made.node = &node;
  if (preferred < preferred_count) {
    made.tier = preferred;
  } else if (request.host != 0 && node.host == request.host) {
    made.tier = preferred_count;
  } else {
    made.tier = preferred_count + (has_room ? 1 : 2);
  }
  made.draw =
      draw(request.key.lo, node.node, std::max(kLeastWeight, room * idleness(node) * ramp(node)));
  return made;
}

}  // namespace

std::vector<NodeId> place(const PlacementRequest& request, std::span<const NodeView> nodes) {
  std::vector<Candidate> candidates;
  candidates.reserve(nodes.size());
  std::vector<std::uint64_t> hosts;
  for (const NodeView& node : nodes) {
    if (contains(request.holders, node.node)) {
      hosts.push_back(node.host);
    } else if (!node.draining && !node.suspected && node.capacity_bytes >= request.bytes &&
               !contains(request.exclude, node.node)) {
      candidates.push_back(candidate(request, node));
    }
  }
  // A heap, because few of many candidates are wanted.
  std::make_heap(candidates.begin(), candidates.end());
  std::vector<NodeId> chosen;
  std::vector<NodeId> on_used_hosts;
  while (chosen.size() < request.replicas && !candidates.empty()) {
    std::pop_heap(candidates.begin(), candidates.end());
    const NodeView& best = *candidates.back().node;
    candidates.pop_back();
    if (std::find(hosts.begin(), hosts.end(), best.host) != hosts.end()) {
      on_used_hosts.push_back(best.node);
      continue;
    }
    hosts.push_back(best.host);
    chosen.push_back(best.node);
  }
  for (const NodeId node : on_used_hosts) {
    if (chosen.size() == request.replicas) break;
    chosen.push_back(node);
  }
  return chosen;
}

std::vector<NodeId> order_for_read(const Reader& reader, KeyHash key,
                                   std::span<const NodeView> holders) {
  std::vector<std::tuple<bool, bool, int, double, NodeId>> order;
  order.reserve(holders.size());
  for (const NodeView& holder : holders) {
    int distance = 2;
    if (holder.zone == reader.zone) distance = 1;
    if (reader.host != 0 && holder.host == reader.host) distance = 0;
    order.emplace_back(holder.suspected, holder.on_disk, distance,
                       draw(key.lo ^ mix64(reader.host), holder.node, idleness(holder)),
                       holder.node);
  }
  std::sort(order.begin(), order.end());
  std::vector<NodeId> nodes;
  nodes.reserve(order.size());
  for (const auto& entry : order) nodes.push_back(std::get<NodeId>(entry));
  return nodes;
}

}  // namespace mc::metadata
