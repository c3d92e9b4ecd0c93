// SPDX-License-Identifier: Apache-2.0
#include "tier/sparse_bytes.h"

#include <algorithm>
#include <cstring>

namespace mc::tier::testing {

void SparseBytes::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::uint64_t at = offset % kChunkBytes;
    const std::uint64_t step = std::min<std::uint64_t>(kChunkBytes - at, bytes.size());
    const auto found = chunks_.find(offset / kChunkBytes);
    if (found == chunks_.end()) {
      std::memset(bytes.data(), 0, step);
    } else {
      std::memcpy(bytes.data(), found->second->data() + at, step);
    }
    offset += step;
    bytes = bytes.subspan(step);
  }
}

void SparseBytes::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t at = offset % kChunkBytes;
    const std::uint64_t step = std::min<std::uint64_t>(kChunkBytes - at, bytes.size());
    std::memcpy(own(offset / kChunkBytes).data() + at, bytes.data(), step);
    offset += step;
    bytes = bytes.subspan(step);
  }
}

void SparseBytes::flip_bit(std::uint64_t offset, unsigned bit) {
  own(offset / kChunkBytes)[offset % kChunkBytes] ^= static_cast<std::byte>(1u << bit);
}

void SparseBytes::share(const SparseBytes& other, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::uint64_t last = (offset + bytes - 1) / kChunkBytes;
  for (std::uint64_t number = offset / kChunkBytes; number <= last; ++number) {
    const auto own_chunk = chunks_.find(number);
    const auto other_chunk = other.chunks_.find(number);
    if (own_chunk == chunks_.end() || other_chunk == other.chunks_.end()) continue;
    if (std::memcmp(own_chunk->second->data(), other_chunk->second->data(), kChunkBytes) == 0) {
      own_chunk->second = other_chunk->second;
    }
  }
}

SparseBytes::Chunk& SparseBytes::own(std::uint64_t number) {
  std::shared_ptr<Chunk>& chunk = chunks_[number];
  if (chunk == nullptr) {
    chunk = std::make_shared<Chunk>();
  } else if (chunk.use_count() > 1) {
    chunk = std::make_shared<Chunk>(*chunk);
  }
  return *chunk;
}

}  // namespace mc::tier::testing
