// SPDX-License-Identifier: Apache-2.0
//
// The descriptors that the agent's loop waits for, each with a handler, over an epoll.
// Threads: the agent's loop.
// Owns: the epoll and the handlers. The watched descriptors belong to their users, who unwatch a
//   descriptor before they close it.
// Trusts: its callers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc::agent {

class EventLoop {
 public:
  using Handler = std::function<void()>;
  // kEdge: the handler need not read the descriptor.
  enum class Trigger { kLevel, kEdge };

  Status open();
  // Errors: MC_NO_MEMORY with the kernel's reason; then the handler is never called.
  Status watch(int fd, Handler handler, Trigger trigger = Trigger::kLevel);
  void unwatch(int fd);
  bool watches(int fd) const { return watched_.contains(fd); }
  // Calls the handlers of all readable descriptors. Waits up to timeout_ms for the first. Returns the
  // time that the handlers took; 0: no handler ran.
  std::uint64_t handle(int timeout_ms);

 private:
  struct Watched {
    std::uint32_t turn;  // tells a descriptor from a later descriptor of the same number
    Handler handler;
  };
  using Table = std::map<int, Watched>;

  Fd epoll_;
  Table watched_;
  std::vector<Table::node_type> ended_;  // a handler may unwatch itself while it runs
  std::uint32_t next_turn_ = 0;
};

}  // namespace mc::agent
