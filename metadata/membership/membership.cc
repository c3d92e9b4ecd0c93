// SPDX-License-Identifier: Apache-2.0
#include "metadata/membership/membership.h"

#include <algorithm>
#include <utility>

namespace mc::metadata {

std::uint64_t Membership::awake(std::uint64_t now_ns) {
  if (!started_) {
    started_ = true;
    last_ns_ = now_ns;
  }
  now_ns = std::max(now_ns, last_ns_);
  const std::uint64_t gap_ns = now_ns - last_ns_;
  // This master did not run in the gap, so the gap counts as no node's silence.
  if (gap_ns > options_.pause_gap_ns) paused_ns_ += gap_ns;
  last_ns_ = now_ns;
  return now_ns - paused_ns_;
}

Status Membership::join(const Descriptor& descriptor, std::uint64_t now_ns, Events& events) {
  const std::uint64_t awake_ns = awake(now_ns);
  if (descriptor.node == kNoNode || descriptor.incarnation == 0 || descriptor.address.empty()) {
    return {MC_INVALID_ARGUMENT, "a node joins with an id, an incarnation and an address"};
  }
  const auto refuse = [&](Incarnation seen) {
    return Status(MC_INVALID_ARGUMENT, "incarnation " + std::to_string(descriptor.incarnation) +
                                           " of node " + std::to_string(descriptor.node) +
                                           " is older than " + std::to_string(seen) +
                                           ", which was here before; is the node's id used twice?");
  };
  const auto grave = buried_.find(descriptor.node);
  if (grave != buried_.end() && descriptor.incarnation < grave->second.descriptor.incarnation) {
    return refuse(grave->second.descriptor.incarnation);
  }
  auto at = records_.find(descriptor.node);
  if (at != records_.end()) {
    Record& record = at->second;
    const Incarnation present = record.member.descriptor.incarnation;
    if (descriptor.incarnation < present) return refuse(present);
    if (descriptor.incarnation == present) {
      if (!(record.member.descriptor == descriptor)) changed(descriptor.node);
      record.member.descriptor = descriptor;
      heard(record, awake_ns, events);
      return {};
    }
    bury(at, events);
  } else if (records_.size() >= options_.max_members) {
    return {MC_BUSY, "the cluster has " + std::to_string(records_.size()) +
                         " members; raise max_members or let one leave"};
  }
  Record& record = records_[descriptor.node];
  record.member = {.descriptor = descriptor, .load = {}, .joined_ns = now_ns};
  record.heard_ns = awake_ns;
  changed(descriptor.node);
  events.push_back({MemberEvent::kJoined, descriptor.node, descriptor.incarnation});
  return {};
}

void Membership::heard(Record& record, std::uint64_t awake_ns, Events& events) {
  record.heard_ns = awake_ns;
  if (std::exchange(record.member.silent, false)) changed(record.member.descriptor.node);
  if (record.member.state == MemberState::kOk) return;
  // With reports of two peers the node stays suspected until the reports expire. The node lives,
  // but some peers cannot reach the node.
  if (valid_reports(record, awake_ns) >= 2) return;
  record.member.state = MemberState::kOk;
  changed(record.member.descriptor.node);
  events.push_back(
      {MemberEvent::kBack, record.member.descriptor.node, record.member.descriptor.incarnation});
}

HeartbeatAnswer Membership::heartbeat(NodeId node, Incarnation incarnation, const Load& load,
                                      std::uint64_t now_ns, Events& events) {
  const std::uint64_t awake_ns = awake(now_ns);
  const auto at = records_.find(node);
  if (at == records_.end()) {
    const auto grave = buried_.find(node);
    const bool stale = grave != buried_.end() && incarnation < grave->second.descriptor.incarnation;
    return stale ? HeartbeatAnswer::kStale : HeartbeatAnswer::kJoinFirst;
  }
  Record& record = at->second;
  if (incarnation < record.member.descriptor.incarnation) return HeartbeatAnswer::kStale;
  if (incarnation > record.member.descriptor.incarnation) return HeartbeatAnswer::kJoinFirst;
  record.member.load = load;
  record.member.wall_at_zero_ns = load.wall_ns == 0 ? 0 : load.wall_ns - now_ns;
  if (load.capacity_bytes) record.member.descriptor.capacity_bytes = *load.capacity_bytes;
  heard(record, awake_ns, events);
  return HeartbeatAnswer::kOk;
}

unsigned Membership::valid_reports(const Record& record, std::uint64_t awake_ns) const {
  unsigned count = 0;
  for (const Report& report : record.reports) {
    if (report.reporter == kNoNode || awake_ns - report.at_ns > options_.report_valid_ns) continue;
    // A suspected or gone reporter may itself be cut off.
    const auto reporter = records_.find(report.reporter);
    if (reporter != records_.end() && reporter->second.member.state == MemberState::kOk) ++count;
  }
  return count;
}

void Membership::report_unreachable(NodeId reporter, NodeId suspect, Incarnation incarnation,
                                    std::uint64_t now_ns, Events& events) {
  const std::uint64_t awake_ns = awake(now_ns);
  const auto at = records_.find(suspect);
  const auto by = records_.find(reporter);
  if (at == records_.end() || by == records_.end() || reporter == suspect) return;
  if (at->second.member.descriptor.incarnation != incarnation) return;
  if (by->second.member.state != MemberState::kOk) return;
  Report* place = nullptr;
  for (Report& report : at->second.reports) {
    if (report.reporter == reporter) place = &report;
  }
  if (place == nullptr) {
    place = &*std::min_element(std::begin(at->second.reports), std::end(at->second.reports),
                               [](auto& a, auto& b) { return a.at_ns < b.at_ns; });
  }
  *place = {reporter, awake_ns};
  judge(at, awake_ns, events);
}

Membership::Records::iterator Membership::judge(Records::iterator at, std::uint64_t awake_ns,
                                                Events& events) {
  Record& record = at->second;
  const std::uint64_t silent_ns = awake_ns - record.heard_ns;
  const unsigned reports = valid_reports(record, awake_ns);
  std::uint64_t silence_ns = options_.suspect_after_ns;
  std::uint64_t gone_ns = options_.gone_after_ns;
  if (reports != 0) {
    silence_ns = std::min(silence_ns, options_.suspect_after_report_ns);
    gone_ns = std::min(gone_ns, options_.gone_after_report_ns);
  }
  if (silent_ns >= silence_ns && !std::exchange(record.member.silent, true)) {
    record.silent_since_ns = awake_ns;
    changed(at->first);
  }
  const bool leases_over =
      record.member.silent && awake_ns - record.silent_since_ns >= options_.lease_ns;
  if (silent_ns >= gone_ns && leases_over) return bury(at, events);
  const bool suspected = silent_ns >= silence_ns || reports >= 2;
  if (suspected && record.member.state == MemberState::kOk) {
    record.member.state = MemberState::kSuspected;
    changed(at->first);
    events.push_back({MemberEvent::kSuspected, at->first, record.member.descriptor.incarnation});
  }
  return std::next(at);
}

Membership::Records::iterator Membership::bury(Records::iterator at, Events& events, bool left) {
  const Descriptor& descriptor = at->second.member.descriptor;
  events.push_back({MemberEvent::kGone, descriptor.node, descriptor.incarnation});
  remember({descriptor, last_ns_, left});
  changed(descriptor.node);
  return records_.erase(at);
}

void Membership::remember(const Grave& grave) {
  const NodeId node = grave.descriptor.node;
  if (!buried_.contains(node)) {
    if (burials_.size() >= options_.max_members) {
      buried_.erase(burials_.front());
      burials_.pop_front();
    }
    burials_.push_back(node);
  }
  buried_[node] = grave;
}

void Membership::missing(const Descriptor& descriptor, std::uint64_t now_ns) {
  if (!records_.contains(descriptor.node)) remember({descriptor, now_ns, false});
}

void Membership::forget_down(NodeId node) {
  const auto grave = buried_.find(node);
  if (grave != buried_.end()) grave->second.left = true;
}

std::vector<DownMember> Membership::down(std::uint64_t now_ns) const {
  std::vector<DownMember> found;
  for (const auto& [node, grave] : buried_) {
    if (grave.left || records_.contains(node)) continue;
    found.push_back(
        {grave.descriptor, (std::max(now_ns, grave.since_ns) - grave.since_ns) / 1'000'000});
  }
  return found;
}

void Membership::changed(NodeId node) {
  ++version_;
  changed_.push_back(node);
  if (changed_.size() > options_.max_members) changed_.pop_front();
}

std::optional<std::set<NodeId>> Membership::changed_since(std::uint64_t version) const {
  if (version > version_ || version_ - version > changed_.size()) return std::nullopt;
  return std::set<NodeId>(changed_.end() - static_cast<std::ptrdiff_t>(version_ - version),
                          changed_.end());
}

void Membership::reported(NodeId node, Incarnation incarnation) {
  const auto at = records_.find(node);
  if (at == records_.end() || at->second.member.descriptor.incarnation != incarnation) return;
  if (!std::exchange(at->second.member.reported, true)) changed(node);
}

bool Membership::leave(NodeId node, Incarnation incarnation, std::uint64_t now_ns, Events& events) {
  awake(now_ns);
  const auto at = records_.find(node);
  if (at == records_.end() || at->second.member.descriptor.incarnation != incarnation) return false;
  bury(at, events, true);
  return true;
}

void Membership::tick(std::uint64_t now_ns, Events& events) {
  const std::uint64_t awake_ns = awake(now_ns);
  for (auto at = records_.begin(); at != records_.end();) at = judge(at, awake_ns, events);
}

const Member* Membership::find(NodeId node) const {
  const auto at = records_.find(node);
  return at == records_.end() ? nullptr : &at->second.member;
}

std::vector<Member> Membership::members() const {
  std::vector<Member> all;
  all.reserve(records_.size());
  for (const auto& [node, record] : records_) all.push_back(record.member);
  return all;
}

}  // namespace mc::metadata
