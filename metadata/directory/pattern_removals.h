// SPDX-License-Identifier: Apache-2.0
//
// What it is: removals by pattern that not every node has carried out, so that a node that was away
//   is told them before what it holds counts. Which nodes have is remembered for each; a node that
//   is not known has none of them.
//   Bounded, and nothing is forgotten: when there are too many, the two oldest of one namespace
//   become one removal that covers both (a shorter prefix; the empty one where a regular
//   expression was). It takes more than was asked for from nodes that were away, which costs
//   misses; what others put since is not theirs to lose.
// Threads: the directory's. Owns: text of patterns, and 8 bytes a node and removal.
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
    std::uint64_t id = 0;  // the latest of what it covers
    Pattern pattern;
    std::vector<NodeId> heard;  // sorted
  };

  // False: it is full of removals in other namespaces.
  [[nodiscard]] bool takes(const Pattern& pattern) const;
  // Its id, higher than any before. REQUIRES: takes(pattern).
  std::uint64_t add(Pattern pattern);
  // This node has none of what it names any more. An id that has become part of another removal
  // says nothing about that.
  void confirm(std::uint64_t id, NodeId node);
  // From the oldest on, those that this node has not carried out.
  [[nodiscard]] std::vector<const Removal*> unheard(NodeId node) const;
  [[nodiscard]] std::size_t count() const { return removals_.size(); }

 private:
  void merge_oldest();

  const std::size_t max_count_;
  std::uint64_t next_id_ = 1;
  std::deque<Removal> removals_;
};

}  // namespace mc::metadata
