// SPDX-License-Identifier: Apache-2.0
//
// Access to the bytes of the cluster's own reservations in a pool.
// Threads: the agent's loop.
// Owns: nothing.
// Trusts: nothing from outside.
#pragma once

#include <algorithm>
#include <cstdint>

#include "agent/pool/object_store.h"
#include "libmc/base/checksum.h"

namespace mc::agent {

// The session of the cluster's reservations. A restarted agent does not know this session, and
// frees the reservations.
inline constexpr std::uint64_t kClusterSession = 0x6d63636c7573746dull;

// Calls take(offset in the pool, bytes) for each contiguous piece of a range of an object.
template <typename Take>
void each_piece(const PoolExtents& extents, std::uint64_t from, std::uint64_t bytes, Take take) {
  std::uint64_t begins = 0;
  for (std::uint32_t i = 0; i < extents.count && bytes > 0; ++i) {
    const std::uint64_t ends = begins + extents.at[i].length_bytes;
    if (from < ends) {
      const std::uint64_t size = std::min(ends - from, bytes);
      take(extents.at[i].offset_bytes + (from - begins), size);
      from += size;
      bytes -= size;
    }
    begins = ends;
  }
}

// Continues the checksum `seed` over a range of the object in the reservation.
inline std::uint64_t sum_of(ObjectStore& store, std::uint32_t entry, std::uint64_t seed,
                            std::uint64_t from, std::uint64_t bytes) {
  each_piece(store.extents(entry), from, bytes, [&](std::uint64_t offset, std::uint64_t size) {
    seed = checksum(seed, store.pool().data() + offset, size);
  });
  return seed;
}

}  // namespace mc::agent
