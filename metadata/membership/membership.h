// SPDX-License-Identifier: Apache-2.0
//
// The members of the cluster, decided from heartbeats, from reports of peers, and from
//   the time, which is an argument. A pure state machine; events are returned.
//
//   join ──► kOk ──600 ms silent, or a peer's report──► kSuspected ──1 s silent──► gone (forgotten)
//             ▲───────────── heartbeat ────────────────────┘
//
// Reports of peers only shorten the silence. A node with heartbeats is never gone, however many
// peers cannot reach it, because the peers' network may be the broken part. With reports of two
// peers the node is suspected at once. A report shortens the silence before the node is gone.
//
// Time in which this master did not run does not count. During a gap of more than pause_gap_ns
// between two calls no heartbeat could be read; heartbeats wait in the sockets. Silence is measured
// on a clock without such gaps, so a paused master declares no node gone.
//
// Leases: a member may use the list of members for lease_ns after the question whose answer brought the
// list. A member that is silent is not readable in later lists, and is gone lease_ns after that at the
// earliest. So no member that the list allows to read from is gone before the lease ends.
// Threads: a single thread.
// Owns: a record for each member (at most max_members), as many records of gone members, and the nodes of
//   the last max_members changes of the list.
// Trusts: nothing. Reports count only from members that are kOk. Times may not run backwards.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mc/status.h"
#include "metadata/membership/node.h"

namespace mc::metadata {

struct MembershipOptions {
  std::uint64_t suspect_after_ns = 600'000'000;
  std::uint64_t gone_after_ns = 1'000'000'000;
  // With a report of a peer: one, and three, heartbeats of 200 ms missed.
  std::uint64_t suspect_after_report_ns = 300'000'000;
  std::uint64_t gone_after_report_ns = 700'000'000;
  std::uint64_t report_valid_ns = 1'000'000'000;
  // Between the silence of a member and the end of the member, at least.
  std::uint64_t lease_ns = 400'000'000;
  // A longer gap between two calls was a pause of this master. tick() comes every 100 ms.
  std::uint64_t pause_gap_ns = 300'000'000;
  std::uint32_t max_members = 4096;
};

// A node's description of itself.
struct Descriptor {
  NodeId node = kNoNode;
  Incarnation incarnation = 0;
  std::string address;               // host:port of the agent
  std::uint64_t host = 0;            // nodes of one host fail together
  std::uint64_t zone = 0;            // hosts of one zone are near each other
  std::uint64_t capacity_bytes = 0;  // 0: the node holds no objects
  bool operator==(const Descriptor&) const = default;
};

struct Load {
  std::uint64_t used_bytes = 0;
  std::uint32_t busy_permille = 0;  // of its network and copies
  bool draining = false;
  std::optional<std::uint64_t> capacity_bytes = {};  // at this time; without: as at the join
  std::uint64_t wall_ns = 0;  // the member's wall clock at the heartbeat; 0: unknown
};

enum class MemberState : std::uint8_t { kOk, kSuspected };

struct Member {
  Descriptor descriptor;
  Load load;
  MemberState state = MemberState::kOk;
  std::uint64_t joined_ns = 0;  // by the clock of the now_ns arguments
  // The member's wall clock when the clock of the now_ns arguments was 0, by the latest heartbeat; 0: unknown.
  std::uint64_t wall_at_zero_ns = 0;
  bool reported = false;  // all objects, since the member joined
  // The time until a member is suspected has passed without a heartbeat. A member that only peers'
  // reports made suspected is not silent.
  bool silent = false;
  // Other members may read objects from this member without a question to the master.
  [[nodiscard]] bool readable() const { return reported && !silent; }
};

// A member that is gone, and did not leave by choice.
struct DownMember {
  Descriptor descriptor;
  std::uint64_t down_ms = 0;  // since the member was gone
  bool operator==(const DownMember&) const = default;
};

enum class MemberEvent : std::uint8_t { kJoined, kSuspected, kBack, kGone };

struct MembershipEvent {
  MemberEvent what = MemberEvent::kJoined;
  NodeId node = kNoNode;
  Incarnation incarnation = 0;
  bool operator==(const MembershipEvent&) const = default;
};

enum class HeartbeatAnswer : std::uint8_t {
  kOk,
  kJoinFirst,  // unknown, or declared gone meanwhile: join, then report all objects
  kStale,      // a newer incarnation of the node has joined: stop
};

class Membership {
 public:
  using Events = std::vector<MembershipEvent>;

  explicit Membership(const MembershipOptions& options) : options_(options) {}

  // A newer incarnation replaces an older incarnation, which is then gone. The same incarnation may
  // join again to change the descriptor. Errors: MC_INVALID_ARGUMENT for an incarnation older than
  // one seen before, or an empty address; MC_BUSY if there are max_members members.
  Status join(const Descriptor& descriptor, std::uint64_t now_ns, Events& events);
  HeartbeatAnswer heartbeat(NodeId node, Incarnation incarnation, const Load& load,
                            std::uint64_t now_ns, Events& events);
  // A peer could not reach this incarnation of the suspect.
  void report_unreachable(NodeId reporter, NodeId suspect, Incarnation incarnation,
                          std::uint64_t now_ns, Events& events);
  // Leaves by choice, after a drain or before a restart. False: not that incarnation.
  bool leave(NodeId node, Incarnation incarnation, std::uint64_t now_ns, Events& events);
  void tick(std::uint64_t now_ns, Events& events);
  // A member of the last leader that has not come to this one.
  void missing(const Descriptor& descriptor, std::uint64_t now_ns);
  // The member has reported all its objects.
  void reported(NodeId node, Incarnation incarnation);

  // Counts the changes of the list: members that join or end, states, and readability.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  // The nodes that have changed after this version, gone ones too. nullopt: too many changes ago.
  [[nodiscard]] std::optional<std::set<NodeId>> changed_since(std::uint64_t version) const;
  [[nodiscard]] const Member* find(NodeId node) const;
  [[nodiscard]] std::vector<Member> members() const;  // by node id
  [[nodiscard]] std::size_t count() const { return records_.size(); }
  // From now on down() leaves the node out.
  void forget_down(NodeId node);
  // By node id; of the last max_members members that are gone.
  [[nodiscard]] std::vector<DownMember> down(std::uint64_t now_ns) const;
  // Sum of the excluded pauses.
  [[nodiscard]] std::uint64_t paused_ns() const { return paused_ns_; }

 private:
  struct Report {
    NodeId reporter = kNoNode;
    std::uint64_t at_ns = 0;  // awake time
  };
  struct Record {
    Member member;
    std::uint64_t heard_ns = 0;         // awake time
    std::uint64_t silent_since_ns = 0;  // awake time
    Report reports[2];
  };
  using Records = std::map<NodeId, Record>;
  struct Grave {
    Descriptor descriptor;  // of the latest incarnation
    std::uint64_t since_ns = 0;
    bool left = false;  // by choice
  };

  // The time without pauses. Each public function calls this first.
  std::uint64_t awake(std::uint64_t now_ns);
  [[nodiscard]] unsigned valid_reports(const Record& record, std::uint64_t awake_ns) const;
  void heard(Record& record, std::uint64_t awake_ns, Events& events);
  // Applies silence and reports at this time. Returns the record after this one.
  Records::iterator judge(Records::iterator at, std::uint64_t awake_ns, Events& events);
  Records::iterator bury(Records::iterator at, Events& events, bool left = false);
  void remember(const Grave& grave);
  void changed(NodeId node);

  MembershipOptions options_;
  Records records_;
  // Gone nodes. Beyond max_members the oldest is forgotten.
  std::map<NodeId, Grave> buried_;
  std::deque<NodeId> burials_;
  std::uint64_t version_ = 1;
  std::deque<NodeId> changed_;  // by the last changes of the version
  std::uint64_t last_ns_ = 0;
  std::uint64_t paused_ns_ = 0;
  bool started_ = false;
};

}  // namespace mc::metadata
