// SPDX-License-Identifier: Apache-2.0
//
// What it is: a small memory of objects that were evicted, in 8 bytes each: sets of eight, the
// oldest of a full set giving way.
// Threads: one, that of the policy.
// Owns: its table, which is as large as the owner asks for.
// Trusts: key hashes to be spread evenly. Two keys share a ghost once in some 2^29 lookups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace mc::agent {

class Ghosts {
 public:
  struct Ghost {
    std::uint32_t tag = 0;  // 0: empty
    std::uint16_t stamp = 0;
    std::uint16_t mark = 0;
  };
  static_assert(sizeof(Ghost) == 8);

  // Room for at least `count`; what is remembered stays. Costs a pass over the table when it grows.
  void grow_to(std::size_t count);
  // now: stamps count up to it and wrap; the one farthest behind is the oldest.
  // Returns the ghost that gave way, if any.
  std::optional<Ghost> add(std::uint64_t key_hash, std::uint16_t stamp, std::uint16_t mark,
                           std::uint16_t now);
  // Forgets the ghost and returns it.
  std::optional<Ghost> take(std::uint64_t key_hash);

  // For its owner's passes over all; empty ones included.
  [[nodiscard]] std::vector<Ghost>& all() { return table_; }
  [[nodiscard]] std::size_t capacity() const { return table_.size(); }
  [[nodiscard]] std::size_t memory_bytes() const { return table_.capacity() * sizeof(Ghost); }

 private:
  static constexpr std::size_t kWays = 8;

  [[nodiscard]] Ghost* set_of(std::uint32_t tag);

  std::vector<Ghost> table_;
};

}  // namespace mc::agent
