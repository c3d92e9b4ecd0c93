// SPDX-License-Identifier: Apache-2.0
//
// The messages as plain values, with the directory's and membership's own types where
//   possible. encode() and decode() (codec.h) convert them.
// Threads: values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "metadata/directory/directory_types.h"
#include "metadata/membership/membership.h"

namespace mc::metadata::wire {

struct Attend {
  std::uint32_t partition = 0;
  std::uint32_t partitions = 0;  // 0: the caller does not know the number and asks
  bool operator==(const Attend&) const = default;
};
struct AttendAnswer {
  std::uint32_t partitions = 1;
  std::string cluster;  // id; empty: from a master that does not tell
  std::string address;  // of the master, for other processes
};

struct JoinAnswer {
  std::uint64_t removal = 0;
  std::uint32_t heartbeat_ms = 200;
  std::uint32_t promise_ms = 0;  // as in HeartbeatReply
};

struct Unreachable {
  NodeId node = kNoNode;
  Incarnation incarnation = 0;
  bool operator==(const Unreachable&) const = default;
};
struct MemberInfo {
  Descriptor descriptor;
  MemberState state = MemberState::kOk;
  bool draining = false;
  bool readable = false;  // Member::readable()
  std::uint64_t used_bytes = 0;
  std::uint64_t entries = 0;
  std::uint64_t disk_entries = 0;  // of these, on a disk only
  std::uint64_t wall_ns = 0;       // the member's wall clock at the time of the answer; 0: unknown
  bool operator==(const MemberInfo&) const = default;
};
struct MembersAnswer {
  std::vector<MemberInfo> members;
  std::vector<DownMember> down = {};
};

struct Heartbeat {
  Load load;
  std::vector<Unreachable> unreachable;
  std::uint64_t list_version = 0;    // of the list of members that the caller has; 0: none
  std::uint64_t latest_version = 0;  // of an object; the latest that the caller has given or heard
  std::uint64_t promised_ns = 0;     // asked_ns of the latest promise that the caller made; 0: none
};
struct HeartbeatReply {
  HeartbeatAnswer answer = HeartbeatAnswer::kOk;
  std::uint64_t removal = 0;
  // How long the caller may use the list of members, from the time of the heartbeat.
  std::uint32_t lease_ms = 0;
  std::uint64_t list_version = 0;
  // The changes of the list since the caller's version.
  MembersAnswer changed;
  std::vector<NodeId> gone;
  bool whole = false;                // `changed` is the whole list
  std::uint64_t latest_version = 0;  // of an object; the latest that the leader has heard
  // The caller attends no other leader for this time after this answer. 0: the caller may.
  std::uint32_t promise_ms = 0;
  std::uint64_t asked_ns = 0;  // by the leader's clock; the caller's next heartbeat repeats this
};

struct Publish {
  std::uint64_t sequence = 0;
  std::uint64_t removals_seen = 0;
  std::vector<PublishItem> items;
};
struct PublishAnswer {
  StreamAnswer stream = StreamAnswer::kUnknownNode;
  std::vector<Verdict> verdicts;  // if kApplied: one an item, or none if all are kAccepted
  // The latest version that refused an older item. A version above it would have been accepted.
  std::uint64_t refused_up_to = 0;
};

struct Report {
  std::uint64_t sequence = 0;
  bool end = false;
};
struct ReportAnswer {
  StreamAnswer stream = StreamAnswer::kUnknownNode;
};

struct Locate {
  std::vector<KeyHash> keys;
  std::uint32_t wait_ms = 0;
  std::uint64_t host = 0;
  std::uint64_t zone = 0;
};

struct ChooseItem {
  KeyHash key;
  std::uint64_t bytes = 1;
  std::uint8_t replicas = 1;
  bool operator==(const ChooseItem&) const = default;
};
struct ChooseHolders {
  std::vector<ChooseItem> items;
  std::uint64_t host = 0;
  std::vector<NodeId> preferred;
  std::vector<NodeId> exclude;
};
struct ChooseHoldersAnswer {
  std::vector<std::vector<NodeId>> nodes;  // for each key, the best first
};

struct Remove {
  std::vector<RemoveItem> items;
};
struct RemovalNotes {
  std::vector<RemovalNote> items;
};
struct RemoveReply {
  std::vector<Lookup> keys;
  std::uint32_t unconfirmed = 0;  // holders that had not answered by the deadline
  std::uint32_t away =
      0;  // hosts that may hold a missing key, and drop the object when they return
};

struct AwaitReplicas {
  std::vector<AwaitedKey> keys;
};
struct AwaitReplicasAnswer {
  std::vector<AwaitedState> keys;
};

struct Match {
  enum class Kind : std::uint8_t { kPrefix, kRegex };
  std::string name_space;  // empty, of removals: all namespaces
  std::string pattern;
  Kind kind = Kind::kPrefix;
  std::string after;
  std::uint32_t limit = 0;  // 1 to kMaxListed, for listings; 0 else
};
struct RemoveMatchingAnswer {
  std::uint64_t removed = 0;  // copies, at all holders
  std::uint32_t unconfirmed = 0;
  std::uint32_t away = 0;  // hosts that remove their objects when they return

  // Adds the answer of another partition. A silent host is silent in each partition.
  void add(const RemoveMatchingAnswer& other) {
    removed += other.removed;
    unconfirmed = std::max(unconfirmed, other.unconfirmed);
    away = std::max(away, other.away);
  }
};
struct ListedKey {
  std::string key;
  std::uint64_t bytes = 1;
  bool operator==(const ListedKey&) const = default;
};
struct ListAnswer {
  std::vector<ListedKey> keys;  // sorted, each once
  bool more = false;            // ask again with after = the last key
  std::uint32_t unconfirmed = 0;
};

struct StatsAnswer {
  std::uint64_t entries = 0;
  std::uint64_t tombstones = 0;
  std::uint64_t members = 0;
  std::uint64_t reports_missing = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t published = 0;  // changes, since this master started to lead
  std::uint64_t located = 0;    // keys
  std::uint64_t repairs_queued = 0;
  std::uint64_t repairs_running = 0;
  std::uint64_t links = 0;
  std::uint64_t refused_links = 0;
  bool recovering = false;
  bool operator==(const StatsAnswer&) const = default;
};

struct Drain {
  NodeId node = kNoNode;
  bool stop = false;
  // A running drain keeps the targets and the limit of its first request.
  std::vector<NodeId> targets = {};  // the only hosts that take objects; empty: any
  std::uint32_t max_jobs = 0;        // copies under way at once; 0: the master's choice
  bool dead = false;                 // the node is down, and will not come back
};
struct DrainAnswer {
  std::uint64_t copied = 0;
  std::uint64_t failed = 0;
  std::uint64_t unplaced = 0;
  std::uint64_t seen = 0;
  bool done = false;
  std::uint64_t copied_bytes = 0;
  bool operator==(const DrainAnswer&) const = default;

  // Adds the answer of another partition, or about another host.
  void add(const DrainAnswer& other) {
    copied += other.copied;
    failed += other.failed;
    unplaced += other.unplaced;
    seen += other.seen;
    done &= other.done;
    copied_bytes += other.copied_bytes;
  }
};

struct Relocate {
  KeyHash key;
  NodeId source = kNoNode;  // a move: the holder to release; kNoNode: a copy
  std::vector<NodeId> targets;
};
struct RelocationId {
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  bool operator==(const RelocationId&) const = default;
};
struct RelocationAnswer {
  enum class State : std::uint8_t { kPending, kRunning, kFailed, kDone };
  bool moves = false;
  State state = State::kPending;
  std::uint64_t age_ms = 0;      // since the task began
  std::uint64_t changed_ms = 0;  // since the state changed
  NodeId node = kNoNode;         // the latest that was ordered to copy
  std::string message;           // why the task failed
  bool operator==(const RelocationAnswer&) const = default;
};

struct Drop {
  std::vector<RemoveItem> items;
  std::uint64_t removal = 0;  // 0: replaced or released, not removed
};
struct Copy {
  KeyHash key;
  std::uint64_t version = 0;
  std::uint64_t bytes = 1;
  NodeId source = kNoNode;
  std::string source_address;
  std::uint8_t parts = 0;  // of a striped object: its number of parts; 0: not striped
  std::uint8_t part = 0;
};

struct Refusal {
  std::string text;
  std::string leader;
};

}  // namespace mc::metadata::wire
