// SPDX-License-Identifier: Apache-2.0
//
// What it is: one order to several agents, which is complete when each has answered or is fenced:
//   gone from the cluster, so that nothing it still holds can be read. An agent that loses its link
//   and comes back is told again, one that is busy every tick. What is open at the deadline is
//   counted as unconfirmed.
// Threads: the master's loop. Owns: the open orders, at most max_open.
// Trusts: agents' answers are decoded by whoever asked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "metadata/membership/node.h"
#include "metadata/rpc/link.h"

namespace mc::metadata {

class Fanout {
 public:
  using LinkOf = std::function<std::shared_ptr<rpc::Link>(NodeId)>;
  using Take = std::function<void(NodeId, std::string_view body)>;
  using Finish = std::function<void(std::uint32_t unconfirmed)>;

  Fanout(LinkOf link_of, std::uint64_t epoch, std::size_t max_open)
      : state_(std::make_shared<State>(std::move(link_of), epoch, max_open)) {}

  [[nodiscard]] bool full() const { return open() >= state_->max_open; }
  [[nodiscard]] std::size_t open() const { return state_->orders.size(); }
  // take is called for each answer, finish once, possibly at once. REQUIRES: !full().
  void start(std::uint8_t method, std::map<NodeId, std::string> bodies, std::uint64_t deadline_ns,
             Take take, Finish finish);
  // It has joined (again): what it has not confirmed is sent.
  void joined(NodeId node);
  // It is gone.
  void fenced(NodeId node);
  void tick(std::uint64_t now_ns);

 private:
  struct Order {
    std::uint8_t method = 0;
    std::map<NodeId, std::string> waiting;
    std::set<NodeId> busy;  // of those: to be told again
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

  // Answers may come after the leadership that asked; they find nothing then.
  std::shared_ptr<State> state_;
};

}  // namespace mc::metadata
