// SPDX-License-Identifier: Apache-2.0
//
// The hash of a key: XXH3-64, seeded with the pool's secret so that a tenant cannot aim
//   keys at one bucket. The hash is never 0, which means "no key".
// Threads: any.
// Trusts: nothing. Any bytes are a key.
#pragma once

#include <cstddef>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace mc {

inline std::uint64_t hash_key(const void* key, std::size_t key_bytes, std::uint64_t seed) {
  const std::uint64_t hash = XXH3_64bits_withSeed(key, key_bytes, seed);
  return hash != 0 ? hash : 1;
}

}  // namespace mc
