// SPDX-License-Identifier: Apache-2.0
//
// The facts that an agent keeps across restarts: node id, secret, incarnation and the
//   next session id. The facts lie in a memory file of one page, which the descriptor store keeps.
// Threads: the agent's loop.
// Owns: the file and the mapping of the file.
// Trusts: nothing in a kept file; a damaged file is replaced.
#pragma once

#include <cstdint>
#include <functional>

#include "libmc/base/memory_file.h"

namespace mc::agent {

class NodeState {
 public:
  // Of an earlier agent of this host. node_id 0: none is known.
  struct Known {
    std::uint64_t node_id = 0, incarnation = 0;
  };
  // file: the kept file, or an empty one. A new file takes the place of a damaged one, and has the node id and
  // the incarnation of known(). Increments the incarnation.
  static Result<NodeState> open(MemoryFile file, const std::function<Known()>& known);

  const MemoryFile& file() const { return file_; }
  std::uint64_t node_id() const;
  std::uint64_t incarnation() const;
  std::uint64_t take_session_id();
  // The secret that a client must present to resume a session.
  std::uint64_t session_secret(std::uint64_t session_id) const;

 private:
  struct Page;
  Page& page() const;
  MemoryFile file_;
  Mapping mapping_;
};

}  // namespace mc::agent
