// SPDX-License-Identifier: Apache-2.0
//
// All operations of this agent.
//
//     begin ──► step() ──► waits ──an answer or an event is stored, a child has ended: wake──► step()
//                            ▲ └────────────────────the wake time has come ───────────────────► │
//                            └──────────────────────────────────────────────────────────────────┤
//                                            the parent takes the operation, or gone ◄── end ◄──┘
//
//   The code that gets an answer for an operation stores the answer in the operation and wakes the
//   operation. run() steps the operations that are awake, one after the other. Events of the
//   transport go to Operation::on_event(), which stores the event or hands the event to the
//   operation's owner.
// Threads: the agent's loop.
// Owns: the operations from begin() to the end. An operation with a parent stays until the parent
//   takes the operation.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/cluster/operations/operation.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

class OperationTable {
 public:
  // The time of this turn of the loop.
  std::uint64_t now_ns() const { return now_ns_; }
  void set_now(std::uint64_t now_ns) { now_ns_ = now_ns; }

  // Adds the operation, whose first step comes with the next run(). T::kKind names the kind. An
  // operation with a parent stays after its end until the parent takes the operation.
  template <typename T>
  T& begin(std::unique_ptr<T> operation, ClusterTenant* tenant, OperationId parent = {}) {
    T& begun = *operation;
    add(std::move(operation), T::kKind, tenant, parent);
    return begun;
  }
  // Null: the operation is gone or of another kind. T is a kind, with T::kKind, or the base of
  // several kinds, with T::includes(kind).
  template <typename T>
  T* find(OperationId id) const {
    return is<T>(id.kind()) ? static_cast<T*>(find_any(id)) : nullptr;
  }
  // Takes a child that has ended out of the table. Null: the child has not ended.
  template <typename T>
  std::unique_ptr<T> take(OperationId id) {
    T* const ended = find<T>(id);
    if (ended == nullptr || !ended->over()) return nullptr;
    return std::unique_ptr<T>(static_cast<T*>(remove(id).release()));
  }
  std::size_t count(OperationKind kind) const { return counts_[static_cast<std::size_t>(kind)]; }
  bool any() const { return !operations_.empty(); }
  // True if an operation of the namespace has not ended.
  bool uses(const ClusterTenant& tenant) const { return by_tenant_.contains(&tenant); }
  void set_tenant(Operation& operation, ClusterTenant& tenant);

  // The operation is stepped by the next run(), or by the run() that is under way.
  void wake(Operation& operation);
  // The operation is stepped at this time at the latest. A later call replaces the time.
  void wake_at(Operation& operation, std::uint64_t ns);
  // The operation or its owner calls end(), once. The operation may be used until its step returns.
  void end(Operation& operation);
  // Asks the operation to end early. The parent still takes the operation.
  void abort(OperationId id);
  // As abort(), but nobody takes the operation. Does nothing if the operation is gone.
  void cancel(OperationId id);
  // Cancels operations of the namespace without a parent, a bounded number in a call.
  void cancel_all(const ClusterTenant& tenant);

  void on_event(const transport::Event& event);
  // Steps the operations that are awake, for a bounded time.
  void run();
  // The time of the next run() even if nothing happens; kNever: not before an event.
  std::uint64_t next_ns() const;

  // Settles an item of a client's request. take_settled() reports that to the loop, once.
  void settle(RemoteRequest& remote_request, RemoteRequest::Item& item, mc_status status) {
    remote_request.settle(item, status);
    settled_ = true;
  }
  bool take_settled() { return std::exchange(settled_, false); }

 private:
  template <typename T>
  static bool is(OperationKind kind) {
    if constexpr (requires { T::kKind; }) {
      return kind == T::kKind;
    } else {
      return T::includes(kind);
    }
  }
  void add(std::unique_ptr<Operation> operation, OperationKind kind, ClusterTenant* tenant,
           OperationId parent);
  Operation* find_any(OperationId id) const;
  std::unique_ptr<Operation> remove(OperationId id);
  void leave_tenant(Operation& operation);
  void wake_due();

  struct IdHash {
    std::size_t operator()(OperationId id) const { return id.value(); }
  };
  std::unordered_map<OperationId, std::unique_ptr<Operation>, IdHash> operations_;
  std::array<std::size_t, 16> counts_{};  // of operations that have not ended, by kind
  std::unordered_map<const ClusterTenant*, std::set<OperationId>> by_tenant_;  // the same
  std::deque<OperationId> awake_;
  std::set<std::pair<std::uint64_t, OperationId>> times_;  // when operations wake
  std::vector<std::unique_ptr<Operation>> ended_;          // a step of these may still run
  std::uint32_t last_serial_ = 0;
  std::uint64_t now_ns_ = 0;
  bool settled_ = false;
};

}  // namespace mc::agent
