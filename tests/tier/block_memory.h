// SPDX-License-Identifier: Apache-2.0
//
// Memory that a Disk may read and write: aligned to a block, filled with a pattern.
// Threads: one.
// Owns: the memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "agent/tier/disk/disk.h"

namespace mc::tier::testing {

class BlockMemory {
 public:
  explicit BlockMemory(std::uint64_t bytes)
      : bytes_(bytes), data_(new (std::align_val_t{kBlockBytes}) std::byte[bytes]) {
    std::memset(data_.get(), 0, bytes);
  }
  // Filled with bytes that differ from seed to seed and from word to word.
  BlockMemory(std::uint64_t bytes, std::uint64_t seed) : BlockMemory(bytes) {
    for (std::uint64_t at = 0; at < bytes; at += sizeof at) {
      const std::uint64_t word = (seed * 1'000'003 + at) * 0x9e3779b97f4a7c15u;
      std::memcpy(data_.get() + at, &word, sizeof word);
    }
  }

  std::byte* data() const { return data_.get(); }
  std::uint64_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }
  bool operator==(const BlockMemory& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), bytes_) == 0;
  }

 private:
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete[](data, std::align_val_t{kBlockBytes});
    }
  };
  std::uint64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace mc::tier::testing
