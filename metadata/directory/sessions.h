// SPDX-License-Identifier: Apache-2.0
//
// What it is: who a slot of the table belongs to. A session is one node's standing with the
//   directory: it begins with a join (a new incarnation) or with a report, and ends with the node's
//   death, a newer incarnation, or the end of the next report. A slot names its session; when the
//   session is closed all its slots are dead, in O(1), and are erased one by one later.
//   A session's id is used again only when no slot names it any more, so that nothing dead can come
//   back to life, however often a node restarts.
// Threads: the directory's. Owns: 24 bytes a session, at most 65,535 of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "metadata/directory/slot.h"

namespace mc::metadata {

using NodeIndex = std::uint16_t;  // of Directory's table of nodes

class Sessions {
 public:
  static constexpr NodeIndex kNobody = 0xffff;      // the session is closed
  static constexpr NodeIndex kTombstones = 0xfffe;  // slots that say "removed"
  static constexpr NodeIndex kMaxNodes = 0x4000;
  static constexpr SessionId kTombstoneSession = 0;

  struct Counts {
    std::uint64_t entries = 0;
    std::uint64_t bytes = 0;
  };

  Sessions();

  // nullopt: all ids are in use, most by dead slots; sweep and try again.
  std::optional<SessionId> open(NodeIndex node);
  void close(SessionId session);

  [[nodiscard]] NodeIndex node_of(SessionId session) const { return node_of_[session]; }
  [[nodiscard]] bool dead(SessionId session) const { return node_of_[session] == kNobody; }
  [[nodiscard]] Counts counts(SessionId session) const { return counts_[session]; }
  [[nodiscard]] std::uint64_t dead_slots() const { return dead_slots_; }
  [[nodiscard]] std::uint64_t memory_bytes() const;

  // Every slot that enters or leaves the table is told here, and nowhere else.
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
  std::vector<NodeIndex> node_of_;  // apart from the counts: a locate reads nothing else
  std::vector<Counts> counts_;
  std::vector<SessionId> free_;
  std::uint64_t dead_slots_ = 0;
};

}  // namespace mc::metadata
