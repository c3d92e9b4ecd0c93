// SPDX-License-Identifier: Apache-2.0
//
// Random keys of 64 bytes, and objects stored under some of them for the get cases.
// Threads: a single thread.
// Owns: the stored objects; the destructor removes the objects.
// Trusts: the address and size of a view only while the pool keeps the object. The bench learns
//   when the pool did not keep an object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mc/status.h"

namespace mc::ctl {

struct BenchKey {
  std::array<std::uint64_t, 8> words;
  mc_slice slice() const { return {words.data(), sizeof(words)}; }
};
// Key number i of the sequence of the seed.
BenchKey bench_key(std::uint64_t seed, std::uint64_t number);
std::uint64_t random_seed();
std::uint64_t mix_bits(std::uint64_t value);

// One object to get. Picks are stored in the order of access, so that keys are read in sequence.
struct Pick {
  BenchKey key;
  const void* data;  // the object in the pool
};

class Dataset {
 public:
  // Stores key_count objects: as many of object_bytes as fit, the others of 64 bytes. Only the
  // large objects are picked.
  static Result<Dataset> store(mc_client* client, std::size_t object_bytes, std::uint64_t key_count,
                               std::uint64_t pool_bytes);
  Dataset(Dataset&& other) noexcept;
  Dataset& operator=(Dataset&&) = delete;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  ~Dataset();

  const Pick& pick(std::uint64_t number) const { return picks_[number % picks_.size()]; }
  // Keys without objects.
  const BenchKey& absent(std::uint64_t number) const { return absent_[number % absent_.size()]; }
  std::size_t object_bytes() const { return object_bytes_; }
  std::uint64_t key_count() const { return key_count_; }
  std::uint64_t measured_keys() const { return measured_keys_; }  // objects of object_bytes

 private:
  Dataset(mc_client* client, std::size_t object_bytes, std::uint64_t key_count);
  Status put_all(std::uint64_t pool_bytes);
  Status choose_picks();

  mc_client* client_;
  std::size_t object_bytes_;
  std::uint64_t key_count_;
  std::uint64_t big_count_ = 0;
  std::uint64_t measured_keys_ = 0;
  std::uint64_t seed_;
  std::vector<Pick> picks_;
  std::vector<BenchKey> absent_;
};

}  // namespace mc::ctl
