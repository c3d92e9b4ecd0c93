// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/fanout.h"

#include <utility>
#include <vector>

namespace mc::metadata {

void Fanout::start(std::uint8_t method, std::map<NodeId, std::string> bodies,
                   std::uint64_t deadline_ns, Take take, Finish finish) {
  if (bodies.empty()) {
    finish(0);
    return;
  }
  std::vector<NodeId> nodes;
  for (const auto& [node, body] : bodies) nodes.push_back(node);
  const std::uint64_t id = state_->next++;
  state_->orders.emplace(
      id, Order{method, std::move(bodies), {}, deadline_ns, std::move(take), std::move(finish)});
  for (const NodeId node : nodes) send(state_, id, node);
}

void Fanout::send(const std::shared_ptr<State>& state, std::uint64_t id, NodeId node) {
  const auto order = state->orders.find(id);
  if (order == state->orders.end()) return;
  const auto body = order->second.waiting.find(node);
  const auto link = state->link_of(node);
  // A node without a link gets the order after the next join. If the node is gone, fenced() ends
  // its part.
  if (link == nullptr || body == order->second.waiting.end()) return;
  link->call(order->second.method, body->second, order->second.deadline_ns, state->epoch,
             [weak = std::weak_ptr(state), id, node](const Result<rpc::Answer>& answer) {
               if (const auto alive = weak.lock()) took(alive, id, node, answer);
             });
}

void Fanout::took(const std::shared_ptr<State>& state, std::uint64_t id, NodeId node,
                  const Result<rpc::Answer>& answer) {
  const auto order = state->orders.find(id);
  if (order == state->orders.end() || !order->second.waiting.contains(node)) return;
  const bool busy = answer ? answer->status == MC_BUSY : answer.error().code() == MC_BUSY;
  if (busy) order->second.busy.insert(node);
  if (!answer || answer->status != 0) return;
  if (order->second.take != nullptr) order->second.take(node, answer->body);
  confirm(state, id, node);
}

void Fanout::confirm(const std::shared_ptr<State>& state, std::uint64_t id, NodeId node) {
  const auto order = state->orders.find(id);
  if (order == state->orders.end()) return;
  order->second.waiting.erase(node);
  if (!order->second.waiting.empty()) return;
  const Finish finish = std::move(order->second.finish);
  state->orders.erase(order);
  finish(0);
}

void Fanout::joined(NodeId node) {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, order] : state_->orders) {
    if (order.waiting.contains(node)) ids.push_back(id);
  }
  for (const std::uint64_t id : ids) send(state_, id, node);
}

void Fanout::fenced(NodeId node) {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, order] : state_->orders) {
    if (order.waiting.contains(node)) ids.push_back(id);
  }
  for (const std::uint64_t id : ids) confirm(state_, id, node);
}

void Fanout::tick(std::uint64_t now_ns) {
  std::vector<std::pair<std::uint64_t, NodeId>> again;
  for (auto& [id, order] : state_->orders) {
    for (const NodeId node : std::exchange(order.busy, {})) again.emplace_back(id, node);
  }
  for (const auto& [id, node] : again) send(state_, id, node);
  for (auto order = state_->orders.begin(); order != state_->orders.end();) {
    if (order->second.deadline_ns > now_ns) {
      ++order;
      continue;
    }
    const auto unconfirmed = static_cast<std::uint32_t>(order->second.waiting.size());
    const Finish finish = std::move(order->second.finish);
    order = state_->orders.erase(order);
    finish(unconfirmed);
  }
}

}  // namespace mc::metadata
