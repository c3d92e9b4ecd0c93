// SPDX-License-Identifier: Apache-2.0
//
// Where to put an object, and from which holder to read it. This is advice; the agent
//   may still refuse. The order is: the preferred nodes as given, then nodes of the asking host,
//   then the others. Among the others each node wins objects in proportion to free bytes,
//   idleness and age (slow start), by weighted rendezvous over the key. A strict "emptiest
//   first" would send all requests between two heartbeats to one node. This rule sends most objects
//   to the emptiest node, and equal numbers to equal nodes. Nodes that would have to evict come
//   last.
// Threads: any; pure functions.
// Trusts: nothing. Node states are the members' claims about themselves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "metadata/directory/key_hash.h"
#include "metadata/membership/node.h"

namespace mc::metadata {

// A member, as placement sees it.
struct NodeView {
  NodeId node = kNoNode;
  std::uint64_t host = 0;
  std::uint64_t zone = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint32_t busy_permille = 0;
  std::uint64_t age_ns = 0;  // since the join
  bool draining = false;
  bool suspected = false;
  bool on_disk = false;  // of a holder: the object is on a disk only
};

struct PlacementRequest {
  KeyHash key;
  std::uint64_t bytes = 0;
  unsigned replicas = 1;
  std::uint64_t host = 0;  // of the asking client; 0: unknown
  std::span<const NodeId> preferred;
  std::span<const NodeId> exclude;  // never these nodes: they have refused
  // these nodes have the object already: avoid them, and preferably the hosts
  std::span<const NodeId> holders;
};

// A new node's weight grows from a twentieth to the full weight in this time. Meanwhile the node
// registers the memory and opens the links, and must not be flooded.
inline constexpr std::uint64_t kSlowStartNs = 30'000'000'000;

// At most `replicas` nodes, the best first; fewer if there are no more. Two nodes share a host only
// if there is no other way.
std::vector<NodeId> place(const PlacementRequest& request, std::span<const NodeView> nodes);

struct Reader {
  std::uint64_t host = 0;
  std::uint64_t zone = 0;
};

// All holders in the order to try: same host, same zone, others. Holders with the object on a disk come behind
// the others, and suspected holders come last.
// Holders at equal distance are weighed by idleness, and different hosts start with different
// holders.
std::vector<NodeId> order_for_read(const Reader& reader, KeyHash key,
                                   std::span<const NodeView> holders);

}  // namespace mc::metadata
