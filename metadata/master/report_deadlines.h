// SPDX-License-Identifier: Apache-2.0
//
// How long a leader waits for the members' reports. A report that makes no progress for 2 s, or takes more
//   than 10 s, is waited for no longer, because misses and removals of all other members wait with the
//   leader. Nobody waits for the next report of such a member either, until one report is complete.
// Threads: the master's loop. Times are arguments and leave out this master's pauses.
// Owns: a record for each member that reports, and the ids of at most max_nodes late members.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "metadata/membership/node.h"

namespace mc::metadata {

class ReportDeadlines {
 public:
  static constexpr std::uint64_t kSilenceNs = 2'000'000'000;
  static constexpr std::uint64_t kLongestNs = 10'000'000'000;

  explicit ReportDeadlines(std::size_t max_nodes) : max_late_(max_nodes) {}

  // False: nobody waits for this member's report.
  bool joined(NodeId node, std::uint64_t now_ns);
  // A message of the report.
  void heard(NodeId node, std::uint64_t now_ns);
  void reported(NodeId node);
  void gone(NodeId node) { reporting_.erase(node); }
  // The members that are waited for no longer.
  std::vector<NodeId> expire(std::uint64_t now_ns);

 private:
  struct Report {
    std::uint64_t since_ns = 0;
    std::uint64_t heard_ns = 0;
  };

  const std::size_t max_late_;
  std::map<NodeId, Report> reporting_;
  std::set<NodeId> late_;
};

}  // namespace mc::metadata
