// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/operations/operation_table.h"

#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

// The loop also serves the rings of clients.
constexpr std::uint64_t kMostRunNs = 200'000;
constexpr unsigned kStepsBetweenClocks = 16;
constexpr unsigned kMostCancels = 64;

}  // namespace

void OperationTable::add(std::unique_ptr<Operation> operation, OperationKind kind,
                         ClusterTenant* tenant, OperationId parent) {
  OperationId id;
  do {
    id = OperationId(kind, ++last_serial_);
  } while (operations_.contains(id));
  Operation& added = *operation;
  added.id_ = id;
  added.parent_ = parent;
  ++counts_[static_cast<std::size_t>(kind)];
  operations_.emplace(id, std::move(operation));
  if (tenant != nullptr) set_tenant(added, *tenant);
  wake(added);
}

Operation* OperationTable::find_any(OperationId id) const {
  const auto at = operations_.find(id);
  return at == operations_.end() ? nullptr : at->second.get();
}

std::unique_ptr<Operation> OperationTable::remove(OperationId id) {
  const auto at = operations_.find(id);
  std::unique_ptr<Operation> removed = std::move(at->second);
  operations_.erase(at);
  return removed;
}

void OperationTable::set_tenant(Operation& operation, ClusterTenant& tenant) {
  operation.tenant_ = &tenant;
  by_tenant_[&tenant].insert(operation.id_);
}

void OperationTable::leave_tenant(Operation& operation) {
  const auto at = by_tenant_.find(operation.tenant_);
  if (at == by_tenant_.end()) return;
  at->second.erase(operation.id_);
  if (at->second.empty()) by_tenant_.erase(at);
}

// ---- Waking -------------------------------------------------------------------------------------

void OperationTable::wake(Operation& operation) {
  if (operation.over_ || std::exchange(operation.awake_, true)) return;
  awake_.push_back(operation.id_);
}

void OperationTable::wake_at(Operation& operation, std::uint64_t ns) {
  if (operation.over_ || operation.wake_ns_ == ns) return;
  if (operation.wake_ns_ != Operation::kNever) times_.erase({operation.wake_ns_, operation.id_});
  operation.wake_ns_ = ns;
  if (ns != Operation::kNever) times_.emplace(ns, operation.id_);
}

void OperationTable::wake_due() {
  while (!times_.empty() && times_.begin()->first <= now_ns_) {
    Operation& due = *find_any(times_.begin()->second);
    wake_at(due, Operation::kNever);
    wake(due);
  }
}

void OperationTable::on_event(const transport::Event& event) {
  Operation* const of = find_any(OperationId::of(event.cookie));
  if (of != nullptr && !of->over_) of->on_event(event);
}

void OperationTable::run() {
  wake_due();
  const std::uint64_t until_ns = now_ns_ + kMostRunNs;
  for (unsigned steps = 1; !awake_.empty(); ++steps) {
    const OperationId id = awake_.front();
    awake_.pop_front();
    Operation* const next = find_any(id);
    if (next == nullptr || next->over_) continue;
    next->awake_ = false;
    next->step();
    if (steps % kStepsBetweenClocks == 0 && mc::now_ns() >= until_ns) break;
  }
  ended_.clear();
}

std::uint64_t OperationTable::next_ns() const {
  if (!awake_.empty()) return 0;
  return times_.empty() ? Operation::kNever : times_.begin()->first;
}

// ---- Ends ---------------------------------------------------------------------------------------

void OperationTable::end(Operation& operation) {
  wake_at(operation, Operation::kNever);
  operation.over_ = true;
  --counts_[static_cast<std::size_t>(operation.id_.kind())];
  leave_tenant(operation);
  if (Operation* const parent = find_any(operation.parent_); parent != nullptr) {
    wake(*parent);
  } else {
    ended_.push_back(remove(operation.id_));
  }
}

void OperationTable::abort(OperationId id) {
  Operation* const operation = find_any(id);
  if (operation == nullptr || operation->over_) return;
  if (!std::exchange(operation->cancelled_, true)) operation->cancel();
}

void OperationTable::cancel(OperationId id) {
  Operation* const operation = find_any(id);
  if (operation == nullptr) return;
  operation->parent_ = {};
  if (operation->over_) {
    remove(id);
  } else {
    abort(id);
  }
}

void OperationTable::cancel_all(const ClusterTenant& tenant) {
  const auto of = by_tenant_.find(&tenant);
  if (of == by_tenant_.end()) return;
  std::vector<OperationId> some;
  for (const OperationId id : of->second) {
    const Operation& operation = *find_any(id);
    if (operation.cancelled_ || operation.parent_) continue;
    some.push_back(id);
    if (some.size() == kMostCancels) break;
  }
  for (const OperationId id : some) cancel(id);
}

}  // namespace mc::agent
