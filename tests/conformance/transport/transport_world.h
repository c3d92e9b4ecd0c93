// SPDX-License-Identifier: Apache-2.0
//
// Two nodes joined by a transport, stepped by one thread, for each kind of transport.
//   Time is the world's own: the time of tcp follows the clock, the time of loop advances by steps.
// Threads: a single thread.
// Owns: the transports and the helpers.
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
  // Both nodes work once. Appends the events at a and at b.
  virtual void step(std::vector<Event>& at_a, std::vector<Event>& at_b) = 0;
  // Node b and all connections of b vanish.
  virtual void kill_b() = 0;
  // Why a single process cannot show this; empty: a process can.
  virtual std::string why_immortal() const { return {}; }
};

struct WorldKind {
  std::string name;
  std::function<std::unique_ptr<World>()> make;  // null: this host lacks a library
};
std::vector<WorldKind> world_kinds();

}  // namespace mc::transport::testing
