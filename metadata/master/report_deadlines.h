// SPDX-License-Identifier: Apache-2.0
//
// The time for which a leader waits for the members' reports. The leader gives up a report that makes no
//   progress for 2 s or takes more than 10 s, because misses and removals of all other members wait, too. The
//   leader does not wait for the next report of such a member either, until one report is complete.
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

  // False: the leader does not wait for this member's report.
  bool joined(NodeId node, std::uint64_t now_ns);
  // A message of the report.
  void heard(NodeId node, std::uint64_t now_ns);
  void reported(NodeId node);
  void gone(NodeId node) { reporting_.erase(node); }
  // The members whose reports the leader gives up now.
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
