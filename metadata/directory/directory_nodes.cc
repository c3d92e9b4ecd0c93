// SPDX-License-Identifier: Apache-2.0
//
// Directory: nodes, their sessions and their reports.
#include <algorithm>

#include "metadata/directory/directory.h"

namespace mc::metadata {

Directory::Directory(const DirectoryOptions& options)
    : options_(options),
      table_(options.max_entries + options.max_tombstones, &sessions_),
      tombstones_(options.max_tombstones),
      removal_(options.first_removal) {
  options_.max_nodes = std::min<std::uint32_t>(options_.max_nodes, Sessions::kMaxNodes);
}

Directory::Node* Directory::find(NodeId node) {
  const auto found = index_.find(node);
  return found == index_.end() ? nullptr : &nodes_[found->second];
}

Result<Directory::Node*> Directory::make_node(NodeId id) {
  if (index_.size() >= options_.max_nodes) {
    return fail(MC_BUSY, "the directory knows " + std::to_string(index_.size()) +
                             " nodes already; raise max_nodes or remove members that are gone");
  }
  if (free_nodes_.empty()) {
    free_nodes_.push_back(static_cast<NodeIndex>(nodes_.size()));
    nodes_.emplace_back();
  }
  const NodeIndex index = free_nodes_.back();
  free_nodes_.pop_back();
  nodes_[index] = Node();
  nodes_[index].id = id;
  index_.emplace(id, index);
  ++reports_missing_;
  return &nodes_[index];
}

void Directory::close_sessions(Node& node) {
  if (!node.joined) return;
  sessions_.close(node.session);
  if (node.before.has_value()) sessions_.close(*node.before);
  node.before.reset();
}

void Directory::set_report(Node& node, ReportState state) {
  const bool was_complete = node.report == ReportState::kComplete;
  const bool is_complete = state == ReportState::kComplete;
  if (was_complete && !is_complete) ++reports_missing_;
  if (!was_complete && is_complete) --reports_missing_;
  node.report = state;
}

Status Directory::expect(NodeId node) {
  if (node == kNoNode) return {MC_INVALID_ARGUMENT, "0 is no node id"};
  if (find(node) != nullptr) return {};
  const Result<Node*> made = make_node(node);
  return made ? Status() : made.error();
}

Status Directory::join(NodeId id, Incarnation incarnation) {
  if (id == kNoNode || incarnation == 0) {
    return {MC_INVALID_ARGUMENT, "a node needs an id and an incarnation other than 0"};
  }
  Node* node = find(id);
  if (node != nullptr && node->joined && incarnation < node->incarnation) {
    return {MC_INVALID_ARGUMENT, "incarnation " + std::to_string(incarnation) + " of node " +
                                     std::to_string(id) + " is older than " +
                                     std::to_string(node->incarnation) +
                                     ", which has joined; is the node's id used twice?"};
  }
  if (node != nullptr && node->joined && incarnation == node->incarnation) {
    set_report(*node, ReportState::kAwaited);
    return {};
  }
  if (node == nullptr) {
    const Result<Node*> made = make_node(id);
    if (!made) return made.error();
    node = *made;
  }
  const std::optional<SessionId> session = sessions_.open(index_of(*node));
  if (!session.has_value()) {
    return {MC_BUSY, "65,535 sessions of nodes that are gone are not swept yet; try again"};
  }
  close_sessions(*node);
  node->joined = true;
  node->incarnation = incarnation;
  node->session = *session;
  node->sequence = 0;
  set_report(*node, ReportState::kAwaited);
  return {};
}

bool Directory::leave(NodeId id, Incarnation incarnation) {
  Node* node = find(id);
  if (node == nullptr || (node->joined && node->incarnation > incarnation)) return false;
  close_sessions(*node);
  if (node->report != ReportState::kComplete) --reports_missing_;
  free_nodes_.push_back(index_of(*node));
  index_.erase(id);
  *node = Node();
  return true;
}

StreamAnswer Directory::check(StreamPosition position, Node*& node) {
  node = find(position.node);
  if (node == nullptr || !node->joined || position.incarnation > node->incarnation) {
    return StreamAnswer::kUnknownNode;
  }
  if (position.incarnation < node->incarnation) return StreamAnswer::kStaleIncarnation;
  if (position.sequence <= node->sequence) return StreamAnswer::kDuplicate;
  return StreamAnswer::kApplied;
}

StreamAnswer Directory::begin_report(StreamPosition position) {
  Node* node = nullptr;
  const StreamAnswer answer = check(position, node);
  if (answer != StreamAnswer::kApplied) return answer;
  const std::optional<SessionId> session = sessions_.open(index_of(*node));
  if (!session.has_value()) return StreamAnswer::kBusy;
  if (node->before.has_value()) {
    // The earlier report was cut off. The new report names its objects again.
    sessions_.close(node->session);
  } else {
    node->before = node->session;
  }
  node->session = *session;
  node->sequence = position.sequence;
  set_report(*node, ReportState::kStreaming);
  return StreamAnswer::kApplied;
}

StreamAnswer Directory::end_report(StreamPosition position) {
  Node* node = nullptr;
  const StreamAnswer answer = check(position, node);
  if (answer != StreamAnswer::kApplied) return answer;
  if (node->report != ReportState::kStreaming || position.sequence != node->sequence + 1) {
    set_report(*node, ReportState::kAwaited);
    return StreamAnswer::kReportNeeded;
  }
  sessions_.close(*node->before);
  node->before.reset();
  node->sequence = position.sequence;
  set_report(*node, ReportState::kComplete);
  return StreamAnswer::kApplied;
}

Sessions::Counts Directory::counts_of(const Node& node) const {
  if (!node.joined) return {};
  Sessions::Counts counts = sessions_.counts(node.session);
  if (node.before) {
    const Sessions::Counts before = sessions_.counts(*node.before);
    counts.entries += before.entries;
    counts.bytes += before.bytes;
  }
  return counts;
}

std::uint64_t Directory::entry_count(NodeId node) const {
  const auto at = index_.find(node);
  return at == index_.end() ? 0 : counts_of(nodes_[at->second]).entries;
}

std::vector<NodeCounts> Directory::nodes() const {
  std::vector<NodeCounts> all;
  for (const Node& node : nodes_) {
    if (node.id == kNoNode) continue;
    const Sessions::Counts held = counts_of(node);
    all.push_back({node.id, node.incarnation, node.report, held.entries, held.bytes});
  }
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.node < b.node; });
  return all;
}

std::uint64_t Directory::memory_bytes() const {
  return table_.memory_bytes() + sessions_.memory_bytes() + tombstones_.memory_bytes() +
         nodes_.capacity() * sizeof(Node) +
         index_.size() * 2 * sizeof(std::pair<NodeId, NodeIndex>);
}

}  // namespace mc::metadata
