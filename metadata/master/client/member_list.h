// SPDX-License-Identifier: Apache-2.0
//
// The members of the cluster, as the leader of a partition has told them with the answers to heartbeats,
//   and the lease of the list. While the lease holds, no member that is readable in the list is gone for
//   the leader. So no upsert and no removal is complete that this member has not carried out.
// Threads: a value; its owner's.
// Owns: the list, at most wire::kMaxMembers members.
#pragma once

#include <cstdint>
#include <map>

#include "libmc/base/clock.h"
#include "metadata/wire/messages.h"

namespace mc::metadata {

class MemberList {
 public:
  // sent_ns: the time of the heartbeat.
  void take(const wire::HeartbeatReply& reply, std::uint64_t sent_ns);
  // The next answer shall bring the whole list: the link is new.
  void begin_anew() { version_ = 0; }

  [[nodiscard]] std::uint64_t version() const { return version_; }
  // Counts the changes of the list here.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] const std::map<NodeId, wire::MemberInfo>& members() const { return members_; }
  // Whether objects of this partition may be read from the member now, without a question to the leader.
  [[nodiscard]] bool readable(NodeId node) const { return now_ns() < readable_until_ns(node); }
  // 0: the member is not readable.
  [[nodiscard]] std::uint64_t readable_until_ns(NodeId node) const {
    const auto at = members_.find(node);
    return at != members_.end() && at->second.readable ? lease_until_ns_ : 0;
  }

 private:
  std::uint64_t version_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t lease_until_ns_ = 0;
  std::map<NodeId, wire::MemberInfo> members_;
};

}  // namespace mc::metadata
