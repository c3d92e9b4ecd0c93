// SPDX-License-Identifier: Apache-2.0
//
// What it is: who is in the cluster, decided from heartbeats, from what peers say, and from the
//   time that passes as an argument. A pure state machine; its events are returned, not called.
//
//   join ──► kOk ──600 ms silent, or a peer's word──► kSuspected ──1 s silent──► gone (forgotten)
//             ▲───────────── heartbeat ──────────────────┘
//
//   Peers' words only hasten what silence says: a node that is heard here is never gone, however
//   many peers cannot reach it, for their network may be what is broken. Two peers' words make it
//   suspected at once; one or two shorten the silence that is waited for.
//
//   Time in which this master itself did not run does not count: while nobody called for more than
//   pause_gap_ns, no heartbeat could be heard, and they wait in the sockets. All silences are
//   measured on a clock from which such gaps are taken out, so that a paused master kills nobody.
// Threads: one. Owns: a record for each member, at most max_members, and as many of those gone.
// Trusts: nothing: reports count only from members in good standing, times may not run backwards.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "mc/status.h"
#include "metadata/membership/node.h"

namespace mc::metadata {

struct MembershipOptions {
  std::uint64_t suspect_after_ns = 600'000'000;
  std::uint64_t gone_after_ns = 1'000'000'000;
  // With one peer's word, and with two: three, and two, heartbeats of 200 ms missed.
  std::uint64_t gone_after_one_report_ns = 700'000'000;
  std::uint64_t gone_after_two_reports_ns = 500'000'000;
  std::uint64_t suspect_after_one_report_ns = 300'000'000;
  std::uint64_t report_valid_ns = 1'000'000'000;
  // A gap between two calls longer than this was a pause. tick() comes more often, every 100 ms.
  std::uint64_t pause_gap_ns = 300'000'000;
  std::uint32_t max_members = 4096;
};

// What a node says of itself.
struct Descriptor {
  NodeId node = kNoNode;
  Incarnation incarnation = 0;
  std::string address;     // host:port of its agent
  std::uint64_t host = 0;  // nodes of one host fail together
  std::uint64_t zone = 0;  // hosts of one zone are near each other
  std::uint64_t capacity_bytes = 0;
  bool operator==(const Descriptor&) const = default;
};

struct Load {
  std::uint64_t used_bytes = 0;
  std::uint32_t busy_permille = 0;  // of its network and copies
  bool draining = false;
};

enum class MemberState : std::uint8_t { kOk, kSuspected };

struct Member {
  Descriptor descriptor;
  Load load;
  MemberState state = MemberState::kOk;
  std::uint64_t joined_ns = 0;  // by now's clock
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
  kJoinFirst,  // unknown, or declared gone meanwhile: join, then report all you hold
  kStale,      // a newer incarnation of the node is here: stop
};

class Membership {
 public:
  using Events = std::vector<MembershipEvent>;

  explicit Membership(const MembershipOptions& options) : options_(options) {}

  // A newer incarnation replaces an older one, which is gone. The same one may join again, to
  // change what it says of itself. Errors: MC_INVALID_ARGUMENT for an incarnation older than one
  // seen before, an empty address or no capacity; MC_BUSY when max_members are there.
  Status join(const Descriptor& descriptor, std::uint64_t now_ns, Events& events);
  HeartbeatAnswer heartbeat(NodeId node, Incarnation incarnation, const Load& load,
                            std::uint64_t now_ns, Events& events);
  // A peer could not reach this incarnation of the suspect.
  void report_unreachable(NodeId reporter, NodeId suspect, Incarnation incarnation,
                          std::uint64_t now_ns, Events& events);
  // Leaves by its own will, after a drain or before a restart. False: not that incarnation.
  bool leave(NodeId node, Incarnation incarnation, std::uint64_t now_ns, Events& events);
  void tick(std::uint64_t now_ns, Events& events);

  [[nodiscard]] const Member* find(NodeId node) const;
  [[nodiscard]] std::vector<Member> members() const;  // by node id
  [[nodiscard]] std::size_t count() const { return records_.size(); }
  // Sum of the pauses that were taken out.
  [[nodiscard]] std::uint64_t paused_ns() const { return paused_ns_; }

 private:
  struct Report {
    NodeId reporter = kNoNode;
    std::uint64_t at_ns = 0;  // awake time
  };
  struct Record {
    Member member;
    std::uint64_t heard_ns = 0;  // awake time
    Report reports[2];
  };
  using Records = std::map<NodeId, Record>;

  // The time without pauses; each entry point calls it first.
  std::uint64_t awake(std::uint64_t now_ns);
  [[nodiscard]] unsigned valid_reports(const Record& record, std::uint64_t awake_ns) const;
  void heard(Record& record, std::uint64_t awake_ns, Events& events);
  // What silence and reports say now; returns the record after this one.
  Records::iterator judge(Records::iterator at, std::uint64_t awake_ns, Events& events);
  Records::iterator bury(Records::iterator at, Events& events);

  MembershipOptions options_;
  Records records_;
  // Latest incarnations of nodes that are gone; the oldest is forgotten beyond max_members.
  std::map<NodeId, Incarnation> buried_;
  std::deque<NodeId> burials_;
  std::uint64_t last_ns_ = 0;
  std::uint64_t paused_ns_ = 0;
  bool started_ = false;
};

}  // namespace mc::metadata
