// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/relocations.h"

#include <algorithm>
#include <utility>

namespace mc::metadata {

namespace {

const NodeView* view_of(NodeId node, std::span<const NodeView> nodes) {
  const auto found = std::ranges::find(nodes, node, &NodeView::node);
  return found == nodes.end() ? nullptr : &*found;
}

bool holds(const KeyView& key, NodeId node) {
  return std::ranges::find(key.all_holders(), node) != key.all_holders().end();
}

Status check(const RelocationOrder& order, const KeyView& key, std::span<const NodeView> nodes) {
  if (key.holder_count == 0) return {MC_NOT_FOUND, "no host holds the key"};
  if (key.attributes.striped) {
    return {MC_UNSUPPORTED, "the object lies in stripes; a drain of a host moves its stripes"};
  }
  if (order.targets.empty() || order.targets.size() > MC_MAX_REPLICAS) {
    return {MC_INVALID_ARGUMENT, "a copy has 1 to 8 targets"};
  }
  if (order.source != kNoNode && !holds(key, order.source)) {
    return {MC_INVALID_ARGUMENT, "the source does not hold the object; see mcctl where"};
  }
  for (const NodeId target : order.targets) {
    const NodeView* const view = view_of(target, nodes);
    if (view == nullptr || target == order.source) {
      return {MC_INVALID_ARGUMENT, "a target is no other host of the cluster; see mcctl nodes"};
    }
    if (view->draining || view->suspected) {
      return {MC_BUSY, "a target takes no objects now, because the host drains or is not heard of"};
    }
  }
  return {};
}

}  // namespace

Result<std::uint64_t> Relocations::begin(RelocationOrder order, const Directory& directory,
                                         std::span<const NodeView> nodes, std::uint64_t now_ns) {
  if (Status wrong = check(order, directory.about(order.key), nodes); !wrong.ok()) {
    return fail(std::move(wrong));
  }
  while (tasks_.size() >= kMaxTasks && tasks_.front().over()) tasks_.pop_front();
  if (open_.size() >= kMaxOpen || tasks_.size() >= kMaxTasks) {
    return fail(MC_BUSY, "too many copies and moves are open; try again later");
  }
  Relocation& made = tasks_.emplace_back();
  made.number = ++last_;
  made.order = std::move(order);
  made.begun_ns = made.changed_ns = now_ns;
  open_.insert(made.number);
  return made.number;
}

void Relocations::advance(const Directory& directory, std::span<const NodeView> nodes,
                          std::uint64_t now_ns, CopyAndRelease& orders) {
  if (directory.recovering()) return;
  for (auto next = open_.begin(); next != open_.end() && !ledger_.full();) {
    Relocation& each = *task(*next++);
    if (!ledger_.contains(each.order.key)) go_on(each, directory, nodes, now_ns, orders);
  }
}

// Starts the copy to the next target, or ends the task. REQUIRES: no job of the key runs.
void Relocations::go_on(Relocation& task, const Directory& directory,
                        std::span<const NodeView> nodes, std::uint64_t now_ns,
                        CopyAndRelease& orders) {
  const KeyView key = directory.about(task.order.key);
  if (key.holder_count == 0) return end(task, "the object was removed or evicted", now_ns);
  if (key.attributes.striped) return end(task, "the object lies in stripes now", now_ns);
  std::erase_if(task.order.targets, [&](NodeId target) { return holds(key, target); });
  if (task.order.targets.empty()) {
    // Only another holder of the same version lets the source go. The directory has one version.
    const NodeId source = task.order.source;
    if (source != kNoNode && holds(key, source) && key.holder_count > 1) {
      orders.releases.push_back({key.hash, key.version, source});
    }
    return end(task, "", now_ns);
  }
  if (task.moves() && !holds(key, task.order.source)) {
    return end(task, "the source does not hold the object any more", now_ns);
  }
  const NodeId target = task.order.targets.front();
  if (view_of(target, nodes) == nullptr) return end(task, "the target has left", now_ns);
  NodeId source = task.order.source;
  if (source == kNoNode) {
    const auto holders = key.all_holders();
    const auto best = std::ranges::find_if(
        holders, [&](NodeId holder) { return stays(holder, nodes) && ledger_.free(holder); });
    source = best == holders.end() ? holders.front() : *best;
  }
  if (!ledger_.free(source) || !ledger_.free(target)) return;
  if (++task.copies > kMaxCopies) return end(task, "the target evicts the object again", now_ns);
  const CopyJob job{key.hash, key.version, key.bytes, source, target, 0, 0};
  ledger_.start(job);
  running_[key.hash] = task.number;
  task.state = Relocation::State::kRunning;
  task.version = key.version;
  task.node = target;
  task.changed_ns = now_ns;
  orders.copies.push_back(job);
}

// A copy that succeeded may be gone again. Then the next advance() copies the object again.
void Relocations::finished(const Directory& directory, KeyHash hash, bool ok,
                           std::uint64_t now_ns) {
  const auto job = ledger_.finish(hash);
  const auto at = running_.find(hash);
  if (!job || at == running_.end()) return;
  Relocation& ended = *task(at->second);
  running_.erase(at);
  ended.changed_ns = now_ns;
  if (ok) return;
  const KeyView key = directory.about(hash);
  const bool changed = key.holder_count == 0 || key.version != ended.version;
  end(ended,
      changed ? "the object was replaced or removed meanwhile"
              : "the target has no room for the object, or could not read the object",
      now_ns);
}

void Relocations::end(Relocation& task, std::string failure, std::uint64_t now_ns) {
  task.state = failure.empty() ? Relocation::State::kDone : Relocation::State::kFailed;
  task.message = std::move(failure);
  task.changed_ns = now_ns;
  open_.erase(task.number);
}

const Relocation* Relocations::find(std::uint64_t number) const {
  if (tasks_.empty() || number < tasks_.front().number || number > last_) return nullptr;
  return &tasks_[number - tasks_.front().number];
}

Relocation* Relocations::task(std::uint64_t number) {
  return &tasks_[number - tasks_.front().number];
}

}  // namespace mc::metadata
