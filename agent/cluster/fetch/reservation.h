// SPDX-License-Identifier: Apache-2.0
//
// Access to the bytes of the cluster's own reservations in a pool.
// Threads: the agent's loop.
// Owns: nothing.
// Trusts: nothing from outside.
#pragma once

#include <cstdint>

#include "agent/pool/object_store.h"
#include "libmc/base/checksum.h"

namespace mc::agent {

// The session of the cluster's reservations. A restarted agent does not know this session, and
// frees the reservations.
inline constexpr std::uint64_t kClusterSession = 0x6d63636c7573746dull;

// Continues the checksum `seed` over a range of the object in the reservation.
inline std::uint64_t sum_of(ObjectStore& store, std::uint32_t entry, std::uint64_t seed,
                            std::uint64_t from, std::uint64_t bytes) {
  each_piece(store.extents(entry), from, bytes, [&](std::uint64_t offset, std::uint64_t size) {
    seed = checksum(seed, store.pool().data() + offset, size);
  });
  return seed;
}

}  // namespace mc::agent
