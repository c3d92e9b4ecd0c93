// SPDX-License-Identifier: Apache-2.0
//
// Numbers and texts drawn from a fuzzer's input; zeros after the end of the input.
// Threads: values. Trusts: nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace mc::fuzz {

// Ends the run and prints the line of the broken promise.
inline void require(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: broken\n", file, line);
  std::abort();
}

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  std::size_t left() const { return left_; }

  template <typename T>
  T take() {
    T value{};
    const std::size_t count = std::min(sizeof(T), left_);
    if (count > 0) std::memcpy(static_cast<void*>(&value), at_, count);
    skip(count);
    return value;
  }
  // A number in [0, end).
  std::uint32_t below(std::uint32_t end) { return take<std::uint16_t>() % end; }
  std::string_view text(std::size_t bytes) {
    const std::string_view result(reinterpret_cast<const char*>(at_), std::min(bytes, left_));
    skip(result.size());
    return result;
  }
  void fill(void* to, std::size_t bytes) {
    const std::size_t count = std::min(bytes, left_);
    if (count > 0) std::memcpy(to, at_, count);
    skip(count);
  }

 private:
  void skip(std::size_t count) {
    at_ += count;
    left_ -= count;
  }
  const std::uint8_t* at_;
  std::size_t left_;
};

}  // namespace mc::fuzz
