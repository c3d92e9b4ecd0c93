// SPDX-License-Identifier: Apache-2.0
//
// Copies and moves of single objects that clients ask for. Each is a task:
//
//     begin ──► kPending ──copy job──► kRunning ──► each target holds the object ──► kDone
//                   ▲                     │  │        (a move: the source is released)
//                   └──the next target────┘  └──the copy failed, the object changed──► kFailed
//
//   The tasks of one key run one after the other. An ended task can be asked for until kMaxTasks later
//   tasks have begun. The tasks end with the master's leadership.
// Threads: one; the directory's.
// Trusts: nothing; begin() checks keys and nodes against the directory and the members.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/placement/copy_job.h"
#include "metadata/placement/drain.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

struct RelocationOrder {
  KeyHash key;
  NodeId source = kNoNode;      // a move: the holder to release. A copy: kNoNode
  std::vector<NodeId> targets;  // a move: one
};

struct Relocation {
  enum class State : std::uint8_t { kPending, kRunning, kFailed, kDone };

  std::uint64_t number = 0;
  RelocationOrder order;  // targets: those that still lack the object
  State state = State::kPending;
  unsigned copies = 0;        // ordered so far
  std::uint64_t version = 0;  // of the latest copy
  std::uint64_t begun_ns = 0;
  std::uint64_t changed_ns = 0;
  NodeId node = kNoNode;  // the latest that was ordered to copy
  std::string message;    // why the task failed

  [[nodiscard]] bool moves() const { return order.source != kNoNode; }
  [[nodiscard]] bool over() const { return state == State::kFailed || state == State::kDone; }
};

class Relocations {
 public:
  static constexpr std::size_t kMaxTasks = 4096;
  static constexpr std::size_t kMaxOpen = 1024;
  static constexpr unsigned kMaxCopies =
      16;  // of one task, which has at most MC_MAX_REPLICAS targets

  // Returns the task's number. Errors: MC_NOT_FOUND (no such key), MC_INVALID_ARGUMENT (no, too many
  // or unknown targets, a source that does not hold the object), MC_UNSUPPORTED (an object in stripes),
  // MC_BUSY (a target that takes no objects now, or too many open tasks).
  Result<std::uint64_t> begin(RelocationOrder order, const Directory& directory,
                              std::span<const NodeView> nodes, std::uint64_t now_ns);
  // Appends the orders that may start.
  void advance(const Directory& directory, std::span<const NodeView> nodes, std::uint64_t now_ns,
               CopyAndRelease& orders);
  // A copy job ended, or its time is over. ok: the target's publish was applied.
  void finished(const Directory& directory, KeyHash hash, bool ok, std::uint64_t now_ns);

  // Null: no such task is known.
  [[nodiscard]] const Relocation* find(std::uint64_t number) const;

 private:
  Relocation* task(std::uint64_t number);
  void go_on(Relocation& task, const Directory& directory, std::span<const NodeView> nodes,
             std::uint64_t now_ns, CopyAndRelease& orders);
  void end(Relocation& task, std::string failure, std::uint64_t now_ns);

  std::deque<Relocation> tasks_;  // numbers ascend by 1
  std::set<std::uint64_t> open_;
  std::map<KeyHash, std::uint64_t> running_;  // the task of each job
  CopyLedger ledger_{{.max_in_flight = 64, .max_per_node = 16}};
  std::uint64_t last_ = 0;
};

}  // namespace mc::metadata
