// SPDX-License-Identifier: Apache-2.0
//
// A namespace of the agent: the pool, the rules, and the users that may connect.
// Threads: the agent's loop.
// Owns: the pool and its scrubber.
// Trusts: its caller.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/pool/object_store.h"
#include "agent/pool/scrubber.h"

namespace mc::agent {

struct Tenant {
  std::string name;
  bool isolated = false;
  bool clustered = false;          // objects of other hosts are found too
  bool temporary = false;          // created by an admin verb, not by the configuration
  std::uint64_t last_used_ns = 0;  // of a namespace that ends without sessions
  std::vector<std::uint32_t> allow_uids;
  std::uint64_t quota_option_bytes = 0;                  // 0: half of the pool's current size
  std::uint64_t next_reservation_cache_question_ns = 0;  // during a shrink
  std::unique_ptr<ObjectStore> store;
  std::unique_ptr<Scrubber> scrubber;

  std::uint64_t session_quota_bytes() const {
    return quota_option_bytes != 0 ? quota_option_bytes : store->pool().target_bytes() / 2;
  }
};

}  // namespace mc::agent
