// SPDX-License-Identifier: Apache-2.0
//
// What it is: the little an agent must know about itself across restarts: node id, secret,
// incarnation,
//   the next session id. A memory file of one page, kept in the descriptor store.
// Threads: the agent's loop.
#pragma once

#include <cstdint>

#include "libmc/base/memory_file.h"

namespace mc::agent {

class NodeState {
 public:
  // file: the kept one, or empty. A damaged one is replaced. Counts the incarnation up.
  static Result<NodeState> open(MemoryFile file);

  const MemoryFile& file() const { return file_; }
  std::uint64_t node_id() const;
  std::uint64_t incarnation() const;
  std::uint64_t take_session_id();
  // What a client must show to resume a session.
  std::uint64_t session_secret(std::uint64_t session_id) const;

 private:
  struct Page;
  Page& page() const;
  MemoryFile file_;
  Mapping mapping_;
};

}  // namespace mc::agent
