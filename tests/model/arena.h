// SPDX-License-Identifier: Apache-2.0
//
// What it is: the modelled memory: what several simulated threads see. It starts empty and zero in
//   every execution and gives the same addresses for the same requests.
// Threads: one real one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace mc::model {

inline constexpr std::uint64_t kArenaBytes = 64u << 20;

std::byte* arena_base();
// Zeros, aligned to a page.
std::byte* arena_allocate(std::uint64_t bytes);
void arena_reset();
// Zeros a range; a long one costs no more than what was touched of it.
void arena_zero(void* at, std::uint64_t bytes);
inline bool in_arena(const void* at) {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - arena_base()) < kArenaBytes;
}

template <typename T>
T* shared(std::size_t count = 1) {
  return reinterpret_cast<T*>(arena_allocate(sizeof(T) * count));
}

}  // namespace mc::model
