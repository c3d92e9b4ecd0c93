// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/layout/tier_key.h"

#include "libmc/base/hash.h"

namespace mc::tier {

TierKey tier_key(std::string_view key, std::uint64_t namespace_id, std::uint64_t secret) {
  const std::uint64_t words[] = {namespace_id, secret};
  const std::uint64_t seed = XXH3_64bits(words, sizeof(words));
  const XXH128_hash_t hash = XXH3_128bits_withSeed(key.data(), key.size(), seed);
  return {.hash = hash.low64, .more = static_cast<std::uint32_t>(hash.high64)};
}

}  // namespace mc::tier
