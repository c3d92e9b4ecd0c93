// SPDX-License-Identifier: Apache-2.0
//
// Integers at fixed places of a buffer, least significant byte first.
// Threads: any. REQUIRES: the place is inside the buffer.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

namespace mc::auth {

static_assert(std::endian::native == std::endian::little);

template <typename T>
T load(const char* bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes + at, sizeof(T));
  return value;
}
template <typename T>
void store(char* bytes, std::size_t at, T value) {
  std::memcpy(bytes + at, &value, sizeof(T));
}

}  // namespace mc::auth
