// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/memory_arena.h"

#include <sys/mman.h>

#include <map>

namespace mc::transport::testing {

namespace {

constexpr std::size_t kArenaBytes = 64u << 20;
constexpr std::size_t kAlignment = 64;

struct Arena {
  Arena() {
    void* data = ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    begin = static_cast<std::byte*>(data);
    free[0] = kArenaBytes;
  }
  std::byte* begin;
  std::map<std::size_t, std::size_t> free;  // offset to bytes
  std::map<std::size_t, std::size_t> used;
};

Arena& arena() {
  static Arena* one = new Arena;  // outlives all allocations
  return *one;
}

}  // namespace

std::span<std::byte> memory_arena() { return {arena().begin, kArenaBytes}; }

void* take_from_arena(std::size_t bytes) {
  Arena& a = arena();
  const std::size_t wanted = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (auto at = a.free.begin(); at != a.free.end(); ++at) {
    const auto [offset, size] = *at;
    if (size < wanted) continue;
    a.free.erase(at);
    if (size > wanted) a.free[offset + wanted] = size - wanted;
    a.used[offset] = wanted;
    return a.begin + offset;
  }
  return nullptr;
}

bool give_to_arena(void* data) {
  Arena& a = arena();
  auto* byte = static_cast<std::byte*>(data);
  if (byte < a.begin || byte >= a.begin + kArenaBytes) return false;
  const auto used = a.used.find(static_cast<std::size_t>(byte - a.begin));
  if (used == a.used.end()) return true;
  auto [offset, size] = *used;
  a.used.erase(used);
  const auto after = a.free.find(offset + size);
  if (after != a.free.end()) {
    size += after->second;
    a.free.erase(after);
  }
  auto before = a.free.lower_bound(offset);
  if (before != a.free.begin() && (--before)->first + before->second == offset) {
    before->second += size;
  } else {
    a.free[offset] = size;
  }
  return true;
}

}  // namespace mc::transport::testing
