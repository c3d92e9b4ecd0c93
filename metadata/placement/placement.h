// SPDX-License-Identifier: Apache-2.0
//
// What it is: where an object should go, and from where it is best read. Advice only: the agent
//   asked may still refuse.
//   Order: the preferred nodes as given, then nodes of the asking host, then the rest. Among the
//   rest a node wins a share of the objects in proportion to its free bytes, its idleness and its
//   age (slow start), by weighted rendezvous over the key. "The emptiest first" to the letter would
//   send all requests between two heartbeats to one node; this sends most to the emptiest, and
//   equal ones equally many. Nodes that would have to evict come last.
// Threads: any; pure functions. Trusts: nothing; node states are what members say of themselves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "metadata/directory/key_hash.h"
#include "metadata/membership/node.h"

namespace mc::metadata {

// A member as placement sees it.
struct NodeView {
  NodeId node = kNoNode;
  std::uint64_t host = 0;
  std::uint64_t zone = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint32_t busy_permille = 0;
  std::uint64_t age_ns = 0;  // since it joined
  bool draining = false;
  bool suspected = false;
};

struct PlacementRequest {
  KeyHash key;
  std::uint64_t bytes = 0;
  unsigned replicas = 1;
  std::uint64_t host = 0;  // of who asks; 0: nobody's
  std::span<const NodeId> preferred;
  std::span<const NodeId> exclude;  // never these: they have refused
  std::span<const NodeId> holders;  // have it already: not these, and rather not their hosts
};

// A newcomer's share grows from a twentieth to the whole in this time, so that it is not flooded
// while its memory is being registered and its links are opened.
inline constexpr std::uint64_t kSlowStartNs = 30'000'000'000;

// At most `replicas` nodes, the best first; fewer when there are no more. Two on one host only if
// there is no other way.
std::vector<NodeId> place(const PlacementRequest& request, std::span<const NodeView> nodes);

struct Reader {
  std::uint64_t host = 0;
  std::uint64_t zone = 0;
};

// All holders in the order to try them: same host, same zone, others; suspected ones after all
// that are not. Holders equally far are weighed by idleness, and different hosts start with
// different ones.
std::vector<NodeId> order_for_read(const Reader& reader, KeyHash key,
                                   std::span<const NodeView> holders);

}  // namespace mc::metadata
