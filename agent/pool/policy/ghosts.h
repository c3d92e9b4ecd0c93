// SPDX-License-Identifier: Apache-2.0
//
// A small memory of evicted objects, 8 bytes each, in sets of eight. A full set drops
//   its oldest ghost.
// Threads: the policy's thread.
// Owns: the table; the owner chooses its size.
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

  // Makes room for at least `count` ghosts and keeps the old ghosts. Growth costs a pass over
  // the table.
  void grow_to(std::size_t count);
  // now: stamps count up to `now` and wrap; the stamp farthest behind is the oldest. Returns the
  // dropped ghost, if any.
  std::optional<Ghost> add(std::uint64_t key_hash, std::uint16_t stamp, std::uint16_t mark,
                           std::uint16_t now);
  // Forgets the ghost and returns it.
  std::optional<Ghost> take(std::uint64_t key_hash);

  // For passes of the owner over all ghosts, empty slots included.
  [[nodiscard]] std::vector<Ghost>& all() { return table_; }
  [[nodiscard]] std::size_t capacity() const { return table_.size(); }
  [[nodiscard]] std::size_t memory_bytes() const { return table_.capacity() * sizeof(Ghost); }

 private:
  static constexpr std::size_t kWays = 8;

  [[nodiscard]] Ghost* set_of(std::uint32_t tag);

  std::vector<Ghost> table_;
};

}  // namespace mc::agent
