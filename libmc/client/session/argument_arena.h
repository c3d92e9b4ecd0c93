// SPDX-License-Identifier: Apache-2.0
//
// The memory for the arguments of requests of a channel or lane: a ring of bytes. Ranges are
//   allocated in order and released in any order.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "shm/layout.h"

namespace mc::client {

class ArgumentArena {
 public:
  explicit ArgumentArena(std::uint32_t size_bytes = shm::kArgumentBytes)
      : size_bytes_(size_bytes) {}

  // Returns an 8-byte-aligned range, or nullopt if the ring is full.
  std::optional<std::uint32_t> allocate(std::uint32_t bytes) {
    bytes = (bytes + 7u) & ~7u;
    if (bytes > size_bytes_) return std::nullopt;
    if (live_.empty()) head_ = 0;
    const std::uint32_t tail = live_.empty() ? 0 : live_.front().offset;
    if (live_.empty() || head_ > tail) {
      if (bytes <= size_bytes_ - head_) return take(head_, bytes);
      if (!live_.empty() && bytes < tail) return take(0, bytes);
      return std::nullopt;
    }
    if (bytes < tail - head_) return take(head_, bytes);
    return std::nullopt;
  }
  void release(std::uint32_t offset) {
    for (Range& range : live_) {
      if (range.offset == offset) {
        range.released = true;
        break;
      }
    }
    while (!live_.empty() && live_.front().released) live_.pop_front();
  }
  void clear() { live_.clear(); }

 private:
  struct Range {
    std::uint32_t offset;
    bool released;
  };
  std::uint32_t take(std::uint32_t offset, std::uint32_t bytes) {
    live_.push_back({offset, false});
    head_ = offset + bytes;
    return offset;
  }

  std::uint32_t size_bytes_;
  std::deque<Range> live_;  // in the order of allocation
  std::uint32_t head_ = 0;
};

}  // namespace mc::client
