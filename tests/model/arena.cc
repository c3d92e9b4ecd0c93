// SPDX-License-Identifier: Apache-2.0
#include "tests/model/arena.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace mc::model {

namespace {

// Offset 0 means "no word" in counterexamples.
constexpr std::uint64_t kFirst = 4096;
std::uint64_t used_bytes = kFirst;

std::byte* map_arena() {
  void* at = ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) std::abort();
  // A huge page would cost 2 MiB of clearing for the few words of an execution.
  ::madvise(at, kArenaBytes, MADV_NOHUGEPAGE);
  return static_cast<std::byte*>(at);
}

}  // namespace

std::byte* arena_base() {
  static std::byte* const base = map_arena();
  return base;
}

std::byte* arena_allocate(std::uint64_t bytes) {
  std::byte* at = arena_base() + used_bytes;
  used_bytes += (bytes + 4095) / 4096 * 4096;
  if (used_bytes > kArenaBytes) std::abort();
  return at;
}

void arena_reset() {
  ::madvise(arena_base(), used_bytes, MADV_DONTNEED);
  used_bytes = kFirst;
}

void arena_zero(void* at, std::uint64_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(at) % 4096 == 0 && bytes % 4096 == 0) {
    ::madvise(at, bytes, MADV_DONTNEED);
  } else {
    std::memset(at, 0, bytes);
  }
}

}  // namespace mc::model
