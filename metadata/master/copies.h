// SPDX-License-Identifier: Apache-2.0
//
// The copies that a leader orders: for objects with too few replicas, for drained nodes, for tasks that copy or
//   move one object, and for objects that many hosts read.
//
//     publish ────────────► RepairPlanner ──────────────┐
//     end of a copy ──────► RepairPlanner, DrainPlanner ├─► Copy order to the target ──► end of the copy
//     tick ───────────────► all, and Relocations,       │   Drop order to the holder that a move or drain releases
//                           HotReplicas ────────────────┘
//
// The copies of a new object begin with the object's publish. A node has at most so many jobs and so many bytes
// under way that its network stays busy (CopyLimits).
// Threads: the master's loop.
// Owns: the planners.
// Trusts: the views, which the caller refreshes before tick().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "metadata/directory/directory.h"
#include "metadata/master/drops.h"
#include "metadata/master/fanout.h"
#include "metadata/master/master_report.h"
#include "metadata/membership/membership.h"
#include "metadata/placement/drain.h"
#include "metadata/placement/hot_replicas.h"
#include "metadata/placement/relocations.h"
#include "metadata/placement/repair.h"
#include "metadata/wire/messages.h"

namespace mc::metadata {

class Copies {
 public:
  // The state of the leader around this part, which outlives the part.
  struct Around {
    Directory& directory;
    const Membership& membership;
    const std::vector<NodeView>& views;
    Drops& drops;
    MasterCounters& counters;
  };

  Copies(Around around, Fanout::LinkOf link_of, std::uint64_t epoch)
      : around_(around), link_of_(std::move(link_of)), epoch_(epoch) {}

  // settled: all members have reported, so a missing holder is really missing.
  void tick(bool settled, std::uint64_t now_ns);
  // Begins copies of the accepted objects that want more holders.
  void published(std::span<const PublishItem> items, std::span<const Verdict> verdicts,
                 std::uint64_t now_ns);
  // Puts wait for so many replicas of existing objects, too.
  void await(std::span<const AwaitedKey> keys, std::uint64_t now_ns);
  void located(KeyHash key);
  void node_gone(NodeId node, std::uint64_t now_ns);
  // A node takes copies that took none before, or a node has reported. An object may lack replicas, or
  // find a place for one.
  void look_again() { repair_.request_pass(); }

  [[nodiscard]] bool drains(NodeId node) const { return drains_.contains(node); }
  [[nodiscard]] bool drained(NodeId node) const;
  // Begins the drain, if no drain of the node is running.
  const DrainProgress& drain(const wire::Drain& wanted);
  void end_drain(NodeId node) { drains_.erase(node); }

  // As Relocations::begin().
  Result<std::uint64_t> relocate(const wire::Relocate& wanted, std::uint64_t now_ns);
  [[nodiscard]] const Relocation* relocation(std::uint64_t number) const {
    return relocations_.find(number);
  }

  [[nodiscard]] std::size_t repairs_queued() const { return repair_.queued(); }
  [[nodiscard]] std::size_t repairs_running() const { return repair_.in_flight(); }

 private:
  void begin_repairs(std::uint32_t looks);
  void advance_drain(DrainPlanner& planner, std::uint64_t buckets);
  void advance_relocations();
  void advance_hot();
  void order(const CopyJob& job, std::function<void(bool ok)> done);
  void release(const std::vector<Holding>& holdings);

  const Around around_;
  const Fanout::LinkOf link_of_;
  const std::uint64_t epoch_;
  std::uint64_t now_ns_ = 0;
  bool settled_ = false;
  bool beginning_repairs_ = false;
  bool advancing_drain_ = false;
  RepairPlanner repair_{{}};
  HotReplicas hot_{{}};
  std::uint32_t sample_ = 1;
  std::map<NodeId, DrainPlanner> drains_;
  Relocations relocations_;
  // Answers may arrive after this leadership has ended. The weak pointer is empty then.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::metadata
