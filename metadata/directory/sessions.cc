// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/sessions.h"

namespace mc::metadata {

Sessions::Sessions() : node_of_{kTombstones}, counts_(1) {}

std::optional<SessionId> Sessions::open(NodeIndex node, bool of_disks) {
  if (of_disks) node |= kOfDisks;
  if (!free_.empty()) {
    const SessionId session = free_.back();
    free_.pop_back();
    node_of_[session] = node;
    return session;
  }
  if (node_of_.size() > UINT16_MAX) return std::nullopt;
  node_of_.push_back(node);
  counts_.emplace_back();
  return static_cast<SessionId>(node_of_.size() - 1);
}

void Sessions::close(SessionId session) {
  node_of_[session] = kNobody;
  dead_slots_ += counts_[session].entries;
  if (counts_[session].entries == 0) free_.push_back(session);
}

std::uint64_t Sessions::memory_bytes() const {
  return node_of_.capacity() * sizeof(NodeIndex) + counts_.capacity() * sizeof(Counts) +
         free_.capacity() * sizeof(SessionId);
}

}  // namespace mc::metadata
