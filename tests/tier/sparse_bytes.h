// SPDX-License-Identifier: Apache-2.0
//
// A large range of bytes in memory that costs only the chunks with written bytes. Copies share their
//   chunks until one of the copies changes.
// Threads: each object belongs to one thread; a copy may belong to another thread.
// Owns: the chunks, together with the copies.
// Trusts: its caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

namespace mc::tier::testing {

class SparseBytes {
 public:
  static constexpr std::uint64_t kChunkBytes = 64u << 10;

  // Bytes that were never written read as zeros.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void flip_bit(std::uint64_t offset, unsigned bit);
  // Shares the chunks of the range with other, where the bytes are the same.
  void share(const SparseBytes& other, std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t held_bytes() const { return chunks_.size() * kChunkBytes; }

 private:
  using Chunk = std::array<std::byte, kChunkBytes>;
  Chunk& own(std::uint64_t number);

  std::map<std::uint64_t, std::shared_ptr<Chunk>> chunks_;
};

}  // namespace mc::tier::testing
