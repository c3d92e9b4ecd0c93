// SPDX-License-Identifier: Apache-2.0
//
// A range of memory from which the transport tests take memory. A transport whose
//   pieces must lie in registered regions registers the range once.
// Threads: a single thread.
// Owns: the range, for the life of the process.
#pragma once

#include <cstddef>
#include <new>
#include <span>

namespace mc::transport::testing {

std::span<std::byte> memory_arena();
// Null: the arena is full.
void* take_from_arena(std::size_t bytes);
// False: the memory is not of the arena.
bool give_to_arena(void* data);

// An allocation that does not fit comes from the heap.
template <typename T>
struct ArenaAllocator {
  using value_type = T;
  ArenaAllocator() = default;
  template <typename U>
  ArenaAllocator(const ArenaAllocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(std::size_t count) {
    void* data = take_from_arena(count * sizeof(T));
    return static_cast<T*>(data != nullptr ? data : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* data, std::size_t) {
    if (!give_to_arena(data)) ::operator delete(data);
  }
  bool operator==(const ArenaAllocator&) const { return true; }
};

}  // namespace mc::transport::testing
