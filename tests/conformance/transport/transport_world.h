// SPDX-License-Identifier: Apache-2.0
//
// What it is: two nodes joined by a transport, stepped by one thread, for each kind of transport.
//   Time is the world's own: tcp's follows the clock, loop's goes on by steps.
// Threads: one. Owns the transports and whatever they need.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace mc::transport::testing {

inline constexpr NodeId kNodeA = 11;
inline constexpr NodeId kNodeB = 22;

class World {
 public:
  virtual ~World() = default;
  virtual Transport& a() = 0;
  virtual Transport& b() = 0;
  virtual std::uint64_t now_ns() const = 0;
  // Both nodes work once; what happened at a and at b is appended.
  virtual void step(std::vector<Event>& at_a, std::vector<Event>& at_b) = 0;
  // Node b and its connections vanish.
  virtual void kill_b() = 0;
  // Why that cannot be shown within one process; empty: it can.
  virtual std::string why_immortal() const { return {}; }
};

struct WorldKind {
  std::string name;
  std::function<std::unique_ptr<World>()> make;  // null: this host lacks a library for it
};
std::vector<WorldKind> world_kinds();

}  // namespace mc::transport::testing
