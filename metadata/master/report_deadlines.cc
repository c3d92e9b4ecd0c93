// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/report_deadlines.h"

namespace mc::metadata {

namespace {

// A message may come from later than now: the master reads the message after a pause, and then takes the
// pause off the time.
bool over(std::uint64_t from_ns, std::uint64_t most_ns, std::uint64_t now_ns) {
  return now_ns >= from_ns + most_ns;
}

}  // namespace

bool ReportDeadlines::joined(NodeId node, std::uint64_t now_ns) {
  if (late_.contains(node)) return false;
  reporting_[node] = {now_ns, now_ns};
  return true;
}

void ReportDeadlines::heard(NodeId node, std::uint64_t now_ns) {
  const auto at = reporting_.find(node);
  if (at != reporting_.end()) at->second.heard_ns = now_ns;
}

void ReportDeadlines::reported(NodeId node) {
  reporting_.erase(node);
  late_.erase(node);
}

std::vector<NodeId> ReportDeadlines::expire(std::uint64_t now_ns) {
  std::vector<NodeId> expired;
  for (const auto& [node, report] : reporting_) {
    if (over(report.heard_ns, kSilenceNs, now_ns) || over(report.since_ns, kLongestNs, now_ns)) {
      expired.push_back(node);
    }
  }
  for (const NodeId node : expired) {
    reporting_.erase(node);
    if (late_.size() >= max_late_) late_.clear();
    late_.insert(node);
  }
  return expired;
}

}  // namespace mc::metadata
