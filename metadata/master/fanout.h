// SPDX-License-Identifier: Apache-2.0
//
// One order to several agents. The order is complete when each agent has answered or is
//   fenced. A fenced agent is gone from the cluster, so no reader can read its objects. An agent
//   that loses the link gets the order again after the next join. A busy agent gets the order again
//   every tick. Agents that have not answered at the deadline are counted as unconfirmed.
// Threads: the master's loop.
// Owns: the open orders, at most max_open.
// Trusts: nothing; the caller decodes the agents' answers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "metadata/membership/node.h"
#include "metadata/rpc/rpc_link.h"

namespace mc::metadata {

class Fanout {
 public:
  using LinkOf = std::function<std::shared_ptr<rpc::RpcLink>(NodeId)>;
  using Take = std::function<void(NodeId, std::string_view body)>;
  using Finish = std::function<void(std::uint32_t unconfirmed)>;

  Fanout(LinkOf link_of, std::uint64_t epoch, std::size_t max_open)
      : state_(std::make_shared<State>(std::move(link_of), epoch, max_open)) {}

  [[nodiscard]] bool full() const { return open() >= state_->max_open; }
  [[nodiscard]] std::size_t open() const { return state_->orders.size(); }
  // take is called for each answer; finish is called once, possibly at once. REQUIRES: !full().
  void start(std::uint8_t method, std::map<NodeId, std::string> bodies, std::uint64_t deadline_ns,
             Take take, Finish finish);
  // The node has joined (again). Sends the orders that the node has not confirmed.
  void joined(NodeId node);
  // The node is gone.
  void fenced(NodeId node);
  void tick(std::uint64_t now_ns);

 private:
  struct Order {
    std::uint8_t method = 0;
    std::map<NodeId, std::string> waiting;
    std::set<NodeId> busy;  // nodes of `waiting` that get the order again with the next tick
    std::uint64_t deadline_ns = 0;
    Take take;
    Finish finish;
  };
  struct State {
    State(LinkOf link, std::uint64_t of_epoch, std::size_t max)
        : link_of(std::move(link)), epoch(of_epoch), max_open(max) {}
    LinkOf link_of;
    const std::uint64_t epoch;
    const std::size_t max_open;
    std::map<std::uint64_t, Order> orders;
    std::uint64_t next = 1;
  };

  static void send(const std::shared_ptr<State>& state, std::uint64_t id, NodeId node);
  static void took(const std::shared_ptr<State>& state, std::uint64_t id, NodeId node,
                   const Result<rpc::Answer>& answer);
  static void confirm(const std::shared_ptr<State>& state, std::uint64_t id, NodeId node);

  // An answer may arrive after the leadership has ended. The weak pointer is empty then.
  std::shared_ptr<State> state_;
};

}  // namespace mc::metadata
