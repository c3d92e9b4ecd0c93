// SPDX-License-Identifier: Apache-2.0
//
// Removals by pattern that some nodes have not carried out. The master sends a missed
//   removal to a node before the node's objects count. Each removal remembers the nodes that have
//   carried it out; an unknown node has carried out none.
//
// The list is bounded, and no removal is forgotten. When the list is full, the two oldest removals
// of a namespace become one removal that covers both (a shorter prefix; the empty prefix if
// one is a regular expression). A node that was away then loses more objects than necessary, which
// costs cache misses. Objects that other nodes put since then stay.
// Threads: the directory's.
// Owns: text of patterns, and 8 bytes for each node and removal.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "metadata/membership/node.h"

namespace mc::metadata {

struct Pattern {
  std::string name_space;
  std::string text;
  bool regex = false;  // else a prefix
  bool operator==(const Pattern&) const = default;
};

class PatternRemovals {
 public:
  explicit PatternRemovals(std::size_t max_count) : max_count_(max_count) {}

  struct Removal {
    std::uint64_t id = 0;  // the latest id of the merged removals
    Pattern pattern;
    std::vector<NodeId> heard;  // sorted
  };

  // False: the list is full of removals in other namespaces.
  [[nodiscard]] bool takes(const Pattern& pattern) const;
  // Returns an id above all earlier ids. REQUIRES: takes(pattern).
  std::uint64_t add(Pattern pattern);
  // The removals that the next leader takes over.
  struct Past {
    std::vector<Removal> removals;  // the oldest first
    std::uint64_t next_id = 1;      // above all ids that a member owes
  };
  // REQUIRES: before the first add().
  void restore(Past past);
  // The node holds no object that this removal names. The id of a removal that was merged has no
  // effect.
  void confirm(std::uint64_t id, NodeId node);
  // Removals that this node has not carried out, the oldest first.
  [[nodiscard]] std::vector<const Removal*> unheard(NodeId node) const;
  // The lowest id that this node has not carried out; for a node that has carried out all, the next
  // id.
  [[nodiscard]] std::uint64_t owed_from(NodeId node) const;
  [[nodiscard]] const std::deque<Removal>& all() const { return removals_; }
  [[nodiscard]] std::size_t count() const { return removals_.size(); }

 private:
  void merge_oldest();

  const std::size_t max_count_;
  std::uint64_t next_id_ = 1;
  std::deque<Removal> removals_;
};

}  // namespace mc::metadata
