// SPDX-License-Identifier: Apache-2.0
//
// The modelled memory, which several simulated threads share. The arena starts empty and zero in
//   every execution and returns the same addresses for the same requests.
// Threads: one real thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace mc::model {

inline constexpr std::uint64_t kArenaBytes = 64u << 20;

std::byte* arena_base();
// Zeroed memory, aligned to a page.
std::byte* arena_allocate(std::uint64_t bytes);
void arena_reset();
// Zeroes a range; the cost depends on the touched pages only.
void arena_zero(void* at, std::uint64_t bytes);
inline bool in_arena(const void* at) {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - arena_base()) < kArenaBytes;
}

template <typename T>
T* shared(std::size_t count = 1) {
  return reinterpret_cast<T*>(arena_allocate(sizeof(T) * count));
}

}  // namespace mc::model
