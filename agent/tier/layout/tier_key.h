// SPDX-License-Identifier: Apache-2.0
//
// The name of an object in the tier: 128 bits. In a cluster, all hosts give the object this name. Without a
//   cluster, the name is XXH3-128 over the key, seeded with the tier's secret and the namespace. Two objects
//   with the same name are taken for one, so the record on the disk has the full key, and a read compares the
//   keys.
// Threads: values.
// Trusts: nothing. Any bytes are a key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mc::tier {

struct TierKey {
  std::uint64_t hash = 0;
  std::uint64_t more = 0;
  bool operator==(const TierKey&) const = default;
};

struct TierKeyHash {
  std::size_t operator()(const TierKey& key) const { return key.hash; }
};

// An object as a caller names it.
struct ObjectName {
  std::string_view key = {};
  std::uint64_t namespace_id = 0;  // names the namespace on all disks
  // The name in the cluster. The key may then be empty, except for a put. Nothing: the tier makes the name.
  std::optional<TierKey> given = {};
};

// secret: of the tier (Superblock::secret).
TierKey tier_key(const ObjectName& name, std::uint64_t secret);

}  // namespace mc::tier
