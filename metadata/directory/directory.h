// SPDX-License-Identifier: Apache-2.0
//
// The map from key hash to holders, in a master's memory. The state is soft: agents
//   know and report the held objects, so reports fill an empty directory. The directory
//   is a pure state machine: no clock, no I/O, no threads; the same calls give the same answers.
// Threads: a single thread.
// Owns: all memory. No call moves more of a resizing table than its batch pays for.
// Trusts: nothing in a batch. Sizes, versions, attributes and the position in the stream are
//   checked. The directory trusts members to tell the truth about the held objects.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mc/limits.h"
#include "mc/status.h"
#include "metadata/directory/directory_types.h"
#include "metadata/directory/replica_table.h"
#include "metadata/directory/sessions.h"
#include "metadata/directory/tombstones.h"

namespace mc::metadata {

class Directory {
 public:
  explicit Directory(const DirectoryOptions& options);
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  // Nodes. A node is a member from expect() or join() on. Until the report is complete, misses are
  // kRecovering. Each call is O(1), however many objects the node held.

  // A member that the cluster store names and that has not joined yet. Errors: MC_BUSY.
  Status expect(NodeId node);
  // A newer incarnation ends all entries of an older incarnation. If the same incarnation
  // reconnects, its entries stay until the report says otherwise. Errors: MC_INVALID_ARGUMENT for
  // an older incarnation, MC_BUSY if there are too many nodes.
  Status join(NodeId node, Incarnation incarnation);
  // Removes the node and its entries. False: the node is unknown, or a newer incarnation has
  // joined.
  bool leave(NodeId node, Incarnation incarnation);

  // Streams. Each message of a node has the next sequence number, from 1. A repeated message is
  // acknowledged and ignored. A gap is answered with kReportNeeded.

  // A report names every object of the node, by apply(). A report may begin at any higher sequence
  // number.
  StreamAnswer begin_report(StreamPosition position);
  // Forgets all entries that the report did not name, in O(1).
  StreamAnswer end_report(StreamPosition position);
  // Applies up to MC_MAX_BATCH_ITEMS changes. Reuses the memory of `answer`.
  void apply(const Batch& batch, BatchAnswer& answer);

  // Finds the holders of up to MC_MAX_BATCH_ITEMS keys. Reuses the memory of `answer`.
  void locate(std::span<const KeyHash> keys, LocateAnswer& answer) const;
  // All that is known of a key. A key without holders has none in the result.
  [[nodiscard]] KeyView about(KeyHash hash) const;
  // Forgets keys, names the holders to notify, and refuses the removed versions: PROTOCOL.md,
  // "Removal".
  void remove(std::span<const RemoveItem> items, RemoveAnswer& answer,
              const RemovalContext& context = {});

  // Refuses the removed versions of another directory here as well.
  void bury(std::span<const RemovalNote> removed);
  // Raises the number of wanted replicas of the key, until a holder publishes another number. False: nothing changed,
  // because the key wants as many replicas already, has no holder, or is striped.
  bool want_replicas(KeyHash hash, std::uint8_t replicas);
  // The node is ordered to drop the object and no longer counts as a holder. The version stays
  // welcome: if the order is lost with the link, the next report names the object again.
  void release(const Holding& holding);

  // A number for a removal that agents carry out by matching the keys' text against a pattern.
  std::uint64_t number_removal() { return ++removal_; }

  // Erases entries of closed sessions in the next `buckets` buckets (15 slots each). Call this from
  // time to time while unswept() is not 0, and while resizing().
  void sweep(std::uint64_t buckets) { table_.sweep(buckets); }
  [[nodiscard]] std::uint64_t unswept() const { return sessions_.dead_slots(); }
  [[nodiscard]] bool resizing() const { return table_.resizing(); }

  // Visits the keys of the next buckets: use(const KeyView&). Start at 0 and continue with the
  // returned position. A key that stays in the table is visited once. nullopt: the walk is
  // complete.
  template <typename Use>
  std::optional<std::uint64_t> walk(std::uint64_t position, std::uint64_t buckets, Use use) const;

  // A report is missing, and stop_waiting() has not given up the report.
  [[nodiscard]] bool recovering() const { return reports_missing_ != 0; }
  // Gives up the node's report. The node may still hold objects that the directory does not know.
  void stop_waiting(NodeId node);
  [[nodiscard]] bool reported(NodeId node) const;
  [[nodiscard]] std::vector<NodeCounts> nodes() const;
  // Live entries.
  [[nodiscard]] std::uint64_t entry_count() const {
    return table_.count() - tombstone_count() - unswept();
  }
  // Entries of a node, including entries that a running report has not confirmed yet.
  [[nodiscard]] std::uint64_t entry_count(NodeId node) const;
  [[nodiscard]] std::uint64_t tombstone_count() const {
    return sessions_.counts(Sessions::kTombstoneSession).entries;
  }
  // Entries that a resize had to drop. The count is 0 unless hashes are forged.
  [[nodiscard]] std::uint64_t lost() const { return table_.lost(); }
  // The number of the latest removal. Agents return this number in Batch::removals_seen.
  [[nodiscard]] std::uint64_t removal() const { return removal_; }
  [[nodiscard]] std::uint64_t memory_bytes() const;

 private:
  // A node that has published no object on a disk has no session for these.
  struct NodeSessions {
    SessionId pool = 0;
    std::optional<SessionId> disk = {};
  };
  struct Node {
    NodeId id = kNoNode;
    Incarnation incarnation = 0;
    std::uint64_t sequence = 0;  // the last applied number
    ReportState report = ReportState::kAwaited;
    bool late = false;  // until the next complete report
    bool joined = false;
    NodeSessions sessions;               // the sessions of new publishes
    std::optional<NodeSessions> before;  // while a report runs: the sessions of the earlier entries
    bool is_waited_for() const { return report != ReportState::kComplete && !late; }
  };
  // Why a version is refused. Stored as a tombstone's attributes.
  // kUnheard: a removal while a node was away that may hold the version.
  enum class Burial : std::uint8_t { kRemoved, kReplaced, kUnheard };
  // The table's content about one key, as publish() needs it.
  struct Known {
    Slot* own = nullptr;
    Slot* tombstone = nullptr;  // of the latest version that was removed or replaced
    Slot* unheard = nullptr;    // the tombstone with Burial::kUnheard
    unsigned holder_count = 0;  // a holder of several parts counts with each part
    std::uint64_t version = 0;  // the one version of all holders
    std::uint64_t bytes = 0;
    std::uint8_t parts = 0;        // 0: the object is not striped
    std::uint32_t parts_held = 0;  // a bit for each part; the object is readable only with all bits
    bool whole() const {
      return holder_count != 0 && (parts == 0 || parts_held == (1u << parts) - 1);
    }
  };

  Node* find(NodeId node);
  NodeCounts counts_of(const Node& node) const;
  NodeIndex index_of(const Node& node) const {
    return static_cast<NodeIndex>(&node - nodes_.data());
  }
  Result<Node*> make_node(NodeId id);
  void close_sessions(Node& node);
  void close(const NodeSessions& sessions);
  std::optional<SessionId> session_of(Node& node, const PublishItem& item);
  void set_report(Node& node, ReportState state);
  // kApplied: the caller may continue.
  StreamAnswer check(StreamPosition position, Node*& node);

  // part: selects the node's own slot of this part of a striped object; else 0.
  Known look_up(KeyHash hash, NodeIndex node, std::uint8_t part = 0);
  Verdict publish(Node& node, const PublishItem& item, const Batch& batch, BatchAnswer& answer);
  Verdict withdraw(const Node& node, const PublishItem& item);
  void supersede(KeyHash hash, NodeIndex by, std::vector<Holding>& drops);
  void bury(KeyHash hash, std::uint64_t version, Burial why);
  void forget_oldest_tombstone();
  void add(const Slot& slot, NodeIndex holder, KeyView& key) const;

  DirectoryOptions options_;
  Sessions sessions_;
  ReplicaTable table_;
  Tombstones tombstones_;
  std::vector<Node> nodes_;  // by NodeIndex
  std::vector<NodeIndex> free_nodes_;
  boost::unordered_flat_map<NodeId, NodeIndex> index_;
  std::uint64_t reports_missing_ = 0;
  std::uint64_t removal_;
};

template <typename Use>
std::optional<std::uint64_t> Directory::walk(std::uint64_t position, std::uint64_t buckets,
                                             Use use) const {
  std::vector<KeyView> keys;
  std::optional<std::uint64_t> next = position;
  for (; buckets > 0 && next.has_value(); --buckets) {
    keys.clear();
    next = table_.visit(*next, [&](const Slot& slot) {
      const NodeIndex holder = sessions_.node_of(slot.session());
      if (holder >= Sessions::kMaxNodes) return;
      KeyView* key = nullptr;
      for (KeyView& known : keys) {
        if (known.hash == slot.hash) key = &known;
      }
      if (key == nullptr) {
        key = &keys.emplace_back();
        key->hash = slot.hash;
      }
      add(slot, holder, *key);
    });
    for (const KeyView& key : keys) use(key);
  }
  return next;
}

}  // namespace mc::metadata
