// SPDX-License-Identifier: Apache-2.0
//
// A namespace of the agent: the pool, the rules, and the users that may connect.
// Threads: the agent's loop.
// Owns: the pool and its scrubber.
// Trusts: its caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/pool/object_store.h"
#include "agent/pool/scrubber.h"
#include "agent/server/contributions.h"

namespace mc::agent {

// A pool without a size of its own has this much room for objects of other hosts that are read here.
inline constexpr std::uint64_t kLeastContributedPoolBytes = 64ull << 20;
inline constexpr std::uint64_t kContributorQuotaBytes = 4ull << 30;

// Gets and views of clients in the pool of this host, as the clients count.
struct ReadCounts {
  std::uint64_t hits = 0, misses = 0, hit_bytes = 0;
};

// Bytes that clients copied between devices and this host's memory, as the clients count.
struct DeviceCounts {
  std::uint64_t worker_bytes = 0, own_bytes = 0;
};

struct Tenant {
  std::string name;
  bool isolated = false;
  bool clustered = false;          // objects of other hosts are found too
  bool wants_disks = false;        // the options let evicted objects go to the tier on local disks
  bool on_disks = false;           // they go there
  bool reads_need_lease = false;   // this host's own objects are read only with the masters' leases
  bool temporary = false;          // created by an admin verb, not by the configuration
  std::uint64_t last_used_ns = 0;  // of a namespace that ends without sessions
  std::vector<std::uint32_t> allow_uids;
  std::uint64_t quota_option_bytes = 0;  // 0: half of the pool's current size
  // Size and capacity by the configuration or the last resize. own_pool_bytes 0: the pool has what
  // processes contribute. capacity_option_bytes 0: the pool's size.
  std::uint64_t own_pool_bytes = 0;
  std::uint64_t capacity_option_bytes = 0;
  Contributions contributions;
  std::uint64_t next_reservation_cache_question_ns = 0;  // during a shrink
  std::unique_ptr<ObjectStore> store;
  std::unique_ptr<Scrubber> scrubber;
  ReadCounts reads;
  DeviceCounts device_counts;

  std::uint64_t session_quota_bytes() const {
    if (quota_option_bytes != 0) return quota_option_bytes;
    const std::uint64_t half = store->pool().target_bytes() / 2;
    // Staging memory does not depend on the contributions.
    return own_pool_bytes != 0 ? half : std::max(half, kContributorQuotaBytes);
  }
  // True if an object beyond the capacity has room on another host, or here after a contribution.
  bool fits_elsewhere() const { return clustered && own_pool_bytes == 0; }
  // The size of a pool with these contributions.
  std::uint64_t pool_bytes_with(const Contributions& given) const {
    const std::uint64_t least =
        own_pool_bytes != 0 ? own_pool_bytes
                            : std::max(kLeastContributedPoolBytes, given.largest_buffer_bytes());
    return std::max(least, given.bytes());
  }
};

}  // namespace mc::agent
