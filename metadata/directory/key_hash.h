// SPDX-License-Identifier: Apache-2.0
//
// A key's name in the directory: 128 bits of XXH3 over namespace and key, keyed by the
//   cluster's secret. Agents compute the hash. The master never sees a key's text. Without the
//   secret, a chooser of keys cannot aim keys at one bucket or make two keys collide. XXH3 is not
//   cryptographic, so a cluster member, which knows the secret, could do both. Members are trusted
//   not to, and limits of the tables bound the harm.
//
// The partition that a key belongs to. Partitions are equal intervals of the upper half of the
//   hash, so a partition's keys are spread evenly over the table. Masters and agents must agree:
//   partition_of() never changes (tests/unit/partition_test.cc has golden values), and a cluster's
//   number of partitions is fixed (metadata/master/elector.h).
// Threads: any; KeyHasher is constant after construction.
// Trusts: nothing. Any bytes are a key.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "libmc/base/hash.h"

namespace mc::metadata {

// The top bits of hi choose the partition, lo chooses the bucket. So a master with few partitions
// still fills the table evenly.
struct KeyHash {
  std::uint64_t hi = 0;
  std::uint64_t lo = 0;
  auto operator<=>(const KeyHash&) const = default;
};

// Each partition costs a thread and a connection to the cluster store, at every master and agent,
// and a link between each agent and the leader.
inline constexpr std::uint32_t kMaxPartitions = 64;

// REQUIRES: partitions > 0.
inline std::uint32_t partition_of(KeyHash hash, std::uint32_t partitions) {
  return static_cast<std::uint32_t>((static_cast<unsigned __int128>(hash.hi) * partitions) >> 64);
}

// The secret of a cluster's key hashes. key: the cluster's key; empty: the cluster has none.
inline std::string key_hash_secret(std::string_view cluster_id, std::string_view key) {
  return key.empty() ? "mc cluster " + std::string(cluster_id) : std::string(key);
}

class KeyHasher {
 public:
  // cluster_secret: from key_hash_secret().
  explicit KeyHasher(std::string_view cluster_secret) {
    XXH3_generateSecret(secret_.data(), secret_.size(), cluster_secret.data(),
                        cluster_secret.size());
  }

  // The namespace is hashed separately, so no pair (namespace, key) equals another pair by moving a
  // letter across the border.
  [[nodiscard]] KeyHash hash(std::string_view namespace_name, std::string_view key) const {
    const XXH64_hash_t tenant = XXH3_64bits_withSecret(namespace_name.data(), namespace_name.size(),
                                                       secret_.data(), secret_.size());
    const XXH128_hash_t inner =
        XXH3_128bits_withSecret(key.data(), key.size(), secret_.data(), secret_.size());
    return mix({inner.high64, inner.low64}, tenant);
  }
  // The seed of the namespace's indexes, equal at all agents of the cluster.
  [[nodiscard]] std::uint64_t index_seed(std::string_view namespace_name) const {
    return hash(namespace_name, "seed of the index").hi;
  }
  // The key's name in the directory. lo is the key's hash in the indexes, so that an agent finds the
  // object of a name.
  [[nodiscard]] KeyHash name(std::string_view namespace_name, std::string_view key) const {
    return {hash(namespace_name, key).hi,
            hash_key(key.data(), key.size(), index_seed(namespace_name))};
  }

 private:
  [[nodiscard]] KeyHash mix(KeyHash hash, std::uint64_t with) const {
    const std::array<std::uint64_t, 3> words = {hash.hi, hash.lo, with};
    const XXH128_hash_t mixed =
        XXH3_128bits_withSecret(words.data(), sizeof(words), secret_.data(), secret_.size());
    return {mixed.high64, mixed.low64};
  }

  std::array<unsigned char, XXH3_SECRET_SIZE_MIN + 56> secret_{};
};

}  // namespace mc::metadata
