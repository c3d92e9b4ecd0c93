// SPDX-License-Identifier: Apache-2.0
//
// The decoder for replies of Redis, of this project's script there, and of sentinels.
// Threads: any; pure functions.
// Trusts: nothing. Any reply becomes a value or an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metadata/store/redis/reply.h"
#include "metadata/store/store_url.h"

namespace mc::metadata {

// The status of an error reply; MC_CORRUPT for any other reply. kStoreUnavailable: refused before
// any effect (a replica, loading, failing over).
Status decode_redis_error(const Reply& reply);
bool is_no_script(const Reply& reply);
Status decode_redis_ok(const Reply& reply);  // "+OK"

// MC_NOT_FOUND, without text: the key is absent.
Result<Entry> decode_redis_entry(const Reply& reply);
// MC_NOT_FOUND: the lease does not exist.
Result<Swap> decode_redis_swap(const Reply& reply);
// Too many entries: MC_TOO_LARGE, without text.
Result<std::vector<Entry>> decode_redis_listing(const Reply& reply);
Result<std::uint64_t> decode_redis_number(const Reply& reply);

// Of INFO replication.
struct RedisReplication {
  std::uint64_t replicas = 0;     // connected now
  bool demands_replicas = false;  // min-replicas-to-write and min-replicas-max-lag are not 0
};
Result<RedisReplication> decode_redis_replication(const Reply& reply);

// MC_NOT_FOUND: the sentinel does not know the name.
Result<Endpoint> decode_redis_master(const Reply& reply);

}  // namespace mc::metadata
