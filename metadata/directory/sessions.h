// SPDX-License-Identifier: Apache-2.0
//
// The owners of the table's slots. A session is a period of a node in the directory.
//   A session begins with a join (a new incarnation) or with a report. The session ends with the
//   node's death, with a newer incarnation, or with the end of the next report. Each slot names its
//   session. A node has a session of its own for objects that it has on a disk only. Closing a session kills all its slots in O(1); later the slots are erased. A session
//   id is reused only after the last slot that names it is erased. So no dead slot comes back to
//   life, however often a node restarts.
// Threads: the directory's.
// Owns: 24 bytes a session, at most 65,535 sessions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "metadata/directory/slot.h"

namespace mc::metadata {

using NodeIndex = std::uint16_t;  // index in Directory's table of nodes

class Sessions {
 public:
  static constexpr NodeIndex kNobody = 0xffff;      // the session is closed
  static constexpr NodeIndex kTombstones = 0xfffe;  // slots that say "removed"
  static constexpr NodeIndex kMaxNodes = 0x4000;
  static constexpr SessionId kTombstoneSession = 0;
  static constexpr NodeIndex kOfDisks = 0x4000;  // a bit of node_of_

  struct Counts {
    std::uint64_t entries = 0;
    std::uint64_t bytes = 0;
  };

  Sessions();

  // nullopt: all ids are in use, most of them by dead slots. Sweep and try again.
  std::optional<SessionId> open(NodeIndex node, bool of_disks = false);
  void close(SessionId session);

  [[nodiscard]] NodeIndex node_of(SessionId session) const {
    const NodeIndex node = node_of_[session];
    return node >= kTombstones ? node : static_cast<NodeIndex>(node & ~kOfDisks);
  }
  // REQUIRES: node_of() is a node.
  [[nodiscard]] bool of_disks(SessionId session) const {
    return (node_of_[session] & kOfDisks) != 0;
  }
  [[nodiscard]] bool dead(SessionId session) const { return node_of_[session] == kNobody; }
  [[nodiscard]] Counts counts(SessionId session) const { return counts_[session]; }
  [[nodiscard]] std::uint64_t dead_slots() const { return dead_slots_; }
  [[nodiscard]] std::uint64_t memory_bytes() const;

  // The table calls added() and dropped() for every slot that enters or leaves.
  void added(const Slot& slot) {
    Counts& counts = counts_[slot.session()];
    ++counts.entries;
    counts.bytes += slot.bytes();
  }
  void dropped(const Slot& slot) {
    Counts& counts = counts_[slot.session()];
    --counts.entries;
    counts.bytes -= slot.bytes();
    if (!dead(slot.session())) return;
    --dead_slots_;
    if (counts.entries == 0) free_.push_back(slot.session());
  }

 private:
  std::vector<NodeIndex> node_of_;  // apart from the counts, because a locate reads only this array
  std::vector<Counts> counts_;
  std::vector<SessionId> free_;
  std::uint64_t dead_slots_ = 0;
};

}  // namespace mc::metadata
