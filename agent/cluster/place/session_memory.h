// SPDX-License-Identifier: Apache-2.0
//
// The memory of this host's sessions that peers read while a put is placed on another host.
// Threads: the agent's loop.
// Owns: mappings of sessions' memory, and the regions of these mappings, until no peer reads there.
// Trusts: nothing; the guard decides which bytes a peer may read.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "agent/server/remote_request.h"
#include "libmc/base/memory_file.h"
#include "transport/transport.h"

namespace mc::agent {

class SessionMemory {
 public:
  // guard: asked for each read of a peer; outlives this object.
  SessionMemory(transport::Transport& transport, transport::RegionGuard& guard)
      : transport_(transport), guard_(guard) {}
  ~SessionMemory();

  // Maps and registers the memory on first use. Errors: MC_NO_MEMORY and the transport's errors.
  Result<transport::RegionId> region_of(const RemoteRequest::Source& source);
  // REQUIRES: region_of() of that source has succeeded.
  const std::byte* bytes_of(const RemoteRequest::Source& source) const;
  // The session has ended.
  void forget(std::uint64_t session);
  // Closes the regions of ended sessions that no peer reads any more.
  void poll();
  bool closing() const { return !closing_.empty(); }

 private:
  struct Memory {
    Mapping mapping;
    transport::RegionId region = transport::kNoRegion;
  };

  transport::Transport& transport_;
  transport::RegionGuard& guard_;
  std::map<std::uint64_t, Memory> memory_;  // by session
  std::vector<Memory> closing_;             // peers may still read there
};

}  // namespace mc::agent
