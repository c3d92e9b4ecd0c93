// SPDX-License-Identifier: Apache-2.0
//
// What it is: random keys of 64 bytes, and objects stored under some of them for the get cases.
// Threads: one. Owns: the objects it stored, which it removes again. Trusts: a view's address and
// size only while the pool keeps the object; the bench is told when it did not.
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
// Key number i of the sequence that the seed names.
BenchKey bench_key(std::uint64_t seed, std::uint64_t number);
std::uint64_t random_seed();
std::uint64_t mix_bits(std::uint64_t value);

// One object to get, in the order of access, so that the keys themselves are read in sequence.
struct Pick {
  BenchKey key;
  const void* data;  // where the object lies in the pool
};

class Dataset {
 public:
  // Stores key_count objects: as many of object_bytes as fit, the others of 64 bytes; only the
  // former are picked.
  static Result<Dataset> store(mc_client* client, std::size_t object_bytes, std::uint64_t key_count,
                               std::uint64_t pool_bytes);
  Dataset(Dataset&& other) noexcept;
  Dataset& operator=(Dataset&&) = delete;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  ~Dataset();

  const Pick& pick(std::uint64_t number) const { return picks_[number % picks_.size()]; }
  // Keys nothing is stored under.
  const BenchKey& absent(std::uint64_t number) const { return absent_[number % absent_.size()]; }
  std::size_t object_bytes() const { return object_bytes_; }
  std::uint64_t key_count() const { return key_count_; }
  std::uint64_t measured_keys() const { return measured_keys_; }  // objects of the size picked from

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
