// SPDX-License-Identifier: Apache-2.0
//
// What it is: who holds what, in a master's memory: key hash to holders. Soft state: agents know
//   what they hold and tell it; a directory that starts empty is filled by their reports.
//   A pure state machine: no clock, no I/O, no threads; the same calls give the same answers.
// Threads: one. Owns: all its memory. No call moves more than a batch's share of it.
// Trusts: nothing of a batch: sizes, versions, attributes and the position in the stream are
//   checked. That a member tells the truth about what it holds is trusted.
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

  // Nodes. A node is a member from expect() or join() on; until its report is complete, misses are
  // kRecovering. All are O(1) whatever the node held.

  // A member that is known (from the cluster store) and has not been heard yet. Errors: MC_BUSY.
  Status expect(NodeId node);
  // A newer incarnation ends all that an older one held; the same one, reconnecting, keeps it until
  // its report says otherwise. Errors: MC_INVALID_ARGUMENT for an older incarnation, MC_BUSY when
  // there are too many nodes.
  Status join(NodeId node, Incarnation incarnation);
  // The node is gone, and what it held with it. False: it is unknown, or a newer incarnation.
  bool leave(NodeId node, Incarnation incarnation);

  // Streams. Each message of a node has the next sequence number, from 1; a repeated one is
  // acknowledged and ignored, a gap asks for a report.

  // A report names everything the node holds, by apply(); it may begin at any higher number.
  StreamAnswer begin_report(StreamPosition position);
  // What the report did not name is forgotten, in O(1).
  StreamAnswer end_report(StreamPosition position);
  // Applies up to MC_MAX_BATCH_ITEMS changes. answer's memory is used again.
  void apply(const Batch& batch, BatchAnswer& answer);

  // Holders of up to MC_MAX_BATCH_ITEMS keys. answer's memory is used again.
  void locate(std::span<const KeyHash> keys, LocateAnswer& answer) const;
  // Without holders: nobody holds it.
  [[nodiscard]] KeyView about(KeyHash hash) const;
  // Forgets keys and says whom to tell; their versions stay refused: README.md, "Removal".
  void remove(std::span<const RemoveItem> items, RemoveAnswer& answer);

  // What another directory has removed is refused here as well.
  void bury(std::span<const RemoveItem> removed);
  // The node is told to let go of it, and counts as its holder no more. Not refused: should the
  // order be lost with its link, the report after it names the object again.
  void release(const Holding& holding);

  // A number for a removal that agents find by themselves: by a pattern over the keys' text.
  std::uint64_t number_removal() { return ++removal_; }

  // Erases what the dead left behind, in so many buckets of fifteen; to be called now and then
  // while unswept() is not 0, and while resizing().
  void sweep(std::uint64_t buckets) { table_.sweep(buckets); }
  [[nodiscard]] std::uint64_t unswept() const { return sessions_.dead_slots(); }
  [[nodiscard]] bool resizing() const { return table_.resizing(); }

  // Visits the keys of the next few buckets: use(const KeyView&). Start at 0 and go on with what
  // is returned; a key that is there all the time is visited once. nullopt: that was all.
  template <typename Use>
  std::optional<std::uint64_t> walk(std::uint64_t position, std::uint64_t buckets, Use use) const;

  [[nodiscard]] bool recovering() const { return reports_missing_ != 0; }
  [[nodiscard]] std::vector<NodeCounts> nodes() const;
  // Live ones.
  [[nodiscard]] std::uint64_t entry_count() const {
    return table_.count() - tombstone_count() - unswept();
  }
  // Of one node, also those that a report under way has not confirmed yet.
  [[nodiscard]] std::uint64_t entry_count(NodeId node) const;
  [[nodiscard]] std::uint64_t tombstone_count() const {
    return sessions_.counts(Sessions::kTombstoneSession).entries;
  }
  // Entries a resize could not keep; 0 unless hashes are forged.
  [[nodiscard]] std::uint64_t lost() const { return table_.lost(); }
  // The number of the latest removal; agents give it back in Batch::removals_seen.
  [[nodiscard]] std::uint64_t removal() const { return removal_; }
  [[nodiscard]] std::uint64_t memory_bytes() const;

 private:
  struct Node {
    NodeId id = kNoNode;
    Incarnation incarnation = 0;
    std::uint64_t sequence = 0;  // the last one applied
    ReportState report = ReportState::kAwaited;
    bool joined = false;
    SessionId session = 0;            // what is published goes here
    std::optional<SessionId> before;  // while a report comes in: what was known until then
  };
  // Why a version is refused; a tombstone's attributes.
  enum class Burial : std::uint8_t { kRemoved, kReplaced };
  // What the table says about one key, as far as publishing it needs to know.
  struct Known {
    Slot* own = nullptr;
    Slot* tombstone = nullptr;
    unsigned holder_count = 0;  // a holder of several parts counts with each
    std::uint64_t version = 0;  // of the holders, all the same
    std::uint64_t bytes = 0;
    std::uint8_t parts = 0;        // 0: it is not striped
    std::uint32_t parts_held = 0;  // a bit for each; fewer are no object that anybody can read
    bool whole() const {
      return holder_count != 0 && (parts == 0 || parts_held == (1u << parts) - 1);
    }
  };

  Node* find(NodeId node);
  Sessions::Counts counts_of(const Node& node) const;
  NodeIndex index_of(const Node& node) const {
    return static_cast<NodeIndex>(&node - nodes_.data());
  }
  Result<Node*> make_node(NodeId id);
  void close_sessions(Node& node);
  void set_report(Node& node, ReportState state);
  // kApplied: go on.
  StreamAnswer check(StreamPosition position, Node*& node);

  // part: of the node's own slots, that for this part of a striped object; else 0.
  Known look_up(KeyHash hash, NodeIndex node, std::uint8_t part = 0);
  Verdict publish(Node& node, const PublishItem& item, const Batch& batch, BatchAnswer& answer);
  Verdict withdraw(const Node& node, const PublishItem& item);
  void supersede(KeyHash hash, NodeIndex by, std::vector<Holding>& drops);
  void bury(KeyHash hash, std::uint64_t version, Burial why);
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
