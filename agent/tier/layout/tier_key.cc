// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/layout/tier_key.h"

#include "libmc/base/hash.h"

namespace mc::tier {

TierKey tier_key(const ObjectName& name, std::uint64_t secret) {
  if (name.given) return *name.given;
  const std::uint64_t words[] = {name.namespace_id, secret};
  const std::uint64_t seed = XXH3_64bits(words, sizeof(words));
  const XXH128_hash_t hash = XXH3_128bits_withSeed(name.key.data(), name.key.size(), seed);
  return {.hash = hash.low64, .more = hash.high64};
}

}  // namespace mc::tier
