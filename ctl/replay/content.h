// SPDX-License-Identifier: Apache-2.0
//
// The keys and bytes of replayed blocks. The bytes of a block are a function of the key,
//   so any reader can check every byte without having seen the put.
//     word 0: the number of the block; word 1: the seed of the key;
//     word i: mix(seed + i * golden ratio)
//   Words of two blocks differ at nearly every position, so a wrong, shifted or torn block shows.
// Threads: any; values without state.
// Owns: nothing.
// Trusts: nothing in the bytes that it verifies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mc/mc.h"

namespace mc::ctl {

// "trace/<name>/block/<number>", padded to the length of the hash keys of engines.
class BlockKey {
 public:
  static constexpr std::size_t kBytes = 64;
  static constexpr std::size_t kMaxNameBytes = 28;

  // A longer name is cut.
  BlockKey(std::string_view name, std::uint64_t block);

  mc_slice slice() const { return {text_.data(), text_.size()}; }
  std::string_view text() const { return {text_.data(), text_.size()}; }

 private:
  std::array<char, kBytes> text_;
};

struct BlockContent {
  std::uint64_t block = 0;
  std::uint64_t seed = 0;

  BlockContent(const BlockKey& key, std::uint64_t block_number);

  void fill(void* bytes, std::size_t size) const;
  // The number of bytes that differ from the bytes that fill() writes at this offset of the object.
  std::uint64_t wrong_bytes(const void* bytes, std::size_t size, std::uint64_t offset = 0) const;
};

}  // namespace mc::ctl
