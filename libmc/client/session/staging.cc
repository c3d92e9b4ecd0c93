// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/session/staging.h"

#include <chrono>
#include <iterator>

#include "libmc/base/clock.h"

namespace mc::client {

Staging::Staging(Mapping mapping) : mapping_(std::move(mapping)) {
  free_[0] = mapping_.size_bytes();
}

std::optional<std::uint64_t> Staging::allocate(std::uint64_t bytes, std::uint64_t deadline_ns) {
  bytes = (bytes + 63) / 64 * 64;
  if (bytes > mapping_.size_bytes()) return std::nullopt;
  MutexLock lock(mutex_);
  for (;;) {
    if (const auto offset = take(bytes)) return offset;
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) return std::nullopt;
    freed_.wait_for(mutex_, std::chrono::nanoseconds(deadline_ns - now));
  }
}

std::optional<std::uint64_t> Staging::take(std::uint64_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < bytes) continue;
    const std::uint64_t offset = it->first;
    const std::uint64_t rest = it->second - bytes;
    free_.erase(it);
    if (rest > 0) free_[offset + bytes] = rest;
    used_[offset] = bytes;
    return offset;
  }
  return std::nullopt;
}

void Staging::free(std::uint64_t offset) {
  {
    const MutexLock lock(mutex_);
    const auto found = used_.find(offset);
    if (found == used_.end()) return;
    auto it = free_.emplace(offset, found->second).first;
    used_.erase(found);
    if (const auto next = std::next(it);
        next != free_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it != free_.begin()) {
      const auto previous = std::prev(it);
      if (previous->first + previous->second == it->first) {
        previous->second += it->second;
        free_.erase(it);
      }
    }
  }
  freed_.notify_all();
}

bool Staging::unused() const {
  const MutexLock lock(mutex_);
  return used_.empty();
}

std::optional<std::uint64_t> Staging::offset_of(const void* memory, std::uint64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const auto base = reinterpret_cast<std::uintptr_t>(mapping_.data());
  if (address < base || address - base > mapping_.size_bytes() ||
      bytes > mapping_.size_bytes() - (address - base)) {
    return std::nullopt;
  }
  return address - base;
}

}  // namespace mc::client
