// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/client/member_list.h"

#include <algorithm>

namespace mc::metadata {

void MemberList::take(const wire::HeartbeatReply& reply, std::uint64_t sent_ns) {
  // Heartbeats overlap, and an answer may tell changes that an earlier answer has told.
  if (!reply.whole && reply.list_version < version_) return;
  const bool changed = reply.whole || !reply.changed.members.empty() || !reply.gone.empty();
  if (reply.whole) members_.clear();
  for (const NodeId node : reply.gone) members_.erase(node);
  for (const wire::MemberInfo& member : reply.changed.members) {
    members_[member.descriptor.node] = member;
  }
  changes_ += changed ? 1 : 0;
  version_ = reply.list_version;
  lease_until_ns_ = std::max(lease_until_ns_, sent_ns + reply.lease_ms * kMs);
}

}  // namespace mc::metadata
