// SPDX-License-Identifier: Apache-2.0
//
// Orders to agents to drop objects. The directory has forgotten these holders already. A later removal or
//   upsert of the same key must wait for the open orders of the key, or readers could still read the object
//   after its removal was complete.
// Threads: the master's loop.
// Owns: a copy of each order until the end. Orders of removals, and orders that nobody waits for, are
//   limited in number; those of upserts are limited by the requests that the links may have open.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "metadata/directory/directory_types.h"
#include "metadata/master/fanout.h"

namespace mc::metadata {

class Drops {
 public:
  using Holdings = std::vector<Holding>;

  Drops(Fanout::LinkOf link_of, std::uint64_t epoch, std::uint64_t now_ns);

  // Too many removals are open.
  [[nodiscard]] bool full() const { return removals_ >= kMaxRemovals; }
  // removal: its number. finish gets the number of hosts that neither dropped the objects nor left in time.
  // The order is repeated after the deadline as well. REQUIRES: !full().
  void remove(const Holdings& holdings, std::uint64_t removal, std::uint64_t deadline_ns,
              Fanout::Finish finish);
  // done: called when each holder has dropped the objects or is gone. After the deadline done is not called.
  void replace(const Holdings& holdings, std::uint64_t deadline_ns, std::function<void()> done);
  // Nobody waits. If a holder's link is lost, the report that follows finds the leftovers.
  void release(const Holdings& holdings);

  // Appends the key's holdings of open orders, up to that version, each once.
  void add_open(Holdings& holdings, KeyHash hash, std::uint64_t up_to_version) const;
  [[nodiscard]] bool none_open() const { return open_.empty(); }

  // The node has joined (again), or is gone.
  void joined(NodeId node) { fanout_.joined(node); }
  void fenced(NodeId node) { fanout_.fenced(node); }
  void tick(std::uint64_t now_ns);

 private:
  static constexpr std::size_t kMaxRemovals = 1024;
  static constexpr std::size_t kMaxQuiet = 512;

  void order(Holdings holdings, std::uint64_t removal, std::uint64_t deadline_ns,
             Fanout::Finish finish);
  void order_quietly(const Holdings& holdings, std::uint64_t removal);
  void go_on(Holdings holdings, std::uint64_t removal);

  const Fanout::LinkOf link_of_;
  const std::uint64_t epoch_;
  Fanout fanout_;
  std::map<Holding, std::size_t> open_;  // number of open orders of each
  std::size_t removals_ = 0;
  std::size_t quiet_ = 0;
  std::uint64_t now_ns_;  // of the last tick
};

}  // namespace mc::metadata
