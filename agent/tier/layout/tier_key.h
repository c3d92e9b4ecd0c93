// SPDX-License-Identifier: Apache-2.0
//
// The name of an object in the tier: 96 bits of XXH3-128 over the key, seeded with the tier's secret
//   and the namespace. Two objects with the same name are taken for one, so the record on the disk
//   has the full key, and a read compares both keys.
// Threads: values.
// Trusts: nothing. Any bytes are a key.
#pragma once

#include <cstdint>
#include <string_view>

namespace mc::tier {

struct TierKey {
  std::uint64_t hash = 0;
  std::uint32_t more = 0;
  bool operator==(const TierKey&) const = default;
};

struct TierKeyHash {
  std::size_t operator()(const TierKey& key) const { return key.hash; }
};

// namespace_id: names the namespace on all disks. secret: of the tier (Superblock::secret).
TierKey tier_key(std::string_view key, std::uint64_t namespace_id, std::uint64_t secret);

}  // namespace mc::tier
