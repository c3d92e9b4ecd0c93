// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/limbo.h"

#include <algorithm>

#include "agent/pool/extents/extent_allocator.h"
#include "agent/pool/policy/policy.h"
#include "libmc/base/failpoint.h"
#include "shm/atomic.h"
#include "shm/pins.h"

namespace mc::agent {

namespace {

// This many entries are worth a fence and a look at all pins.
constexpr std::size_t kCheckEntries = 512;

// Bytes of the pool that an object of this length has: only its last granule is not full.
constexpr std::uint64_t pool_bytes(std::uint64_t length) {
  return (length + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
}

}  // namespace

void Limbo::add(std::uint32_t id) {
  const std::uint64_t length = index_.entry(id).length.load_relaxed();
  bytes_ += pool_bytes(length);
  ++unchecked_count_;
  unchecked_bytes_ += length;
  waiting_.push_back(id);
}

void Limbo::hold(std::uint32_t id) {
  held_bytes_ += pool_bytes(index_.entry(id).length.load_relaxed());
  ++held_count_;
}

void Limbo::release(std::uint32_t id) {
  held_bytes_ -= pool_bytes(index_.entry(id).length.load_relaxed());
  --held_count_;
  add(id);
}

bool Limbo::check_is_due(std::uint64_t unchecked_bytes) const {
  return unchecked_count_ >= kCheckEntries ||
         (unchecked_count_ > 0 && unchecked_bytes_ >= unchecked_bytes);
}

std::vector<std::uint64_t> Limbo::sorted_pins() const {
  std::vector<std::uint64_t> pins;
  collect_pins_(pins);
  std::sort(pins.begin(), pins.end());
  return pins;
}

void Limbo::check() {
  shm::full_fence();
  const std::vector<std::uint64_t> pins = sorted_pins();
  const auto pinned = [&](std::uint32_t id) {
    const std::uint64_t pin = shm::pin_value(id, index_.entry(id).version.load_relaxed());
    return std::binary_search(pins.begin(), pins.end(), pin);
  };
  const auto kept =
      pins.empty() ? waiting_.begin() : std::partition(waiting_.begin(), waiting_.end(), pinned);
  unpinned_.insert(unpinned_.end(), kept, waiting_.end());
  waiting_.erase(kept, waiting_.end());
  unchecked_count_ = 0;
  unchecked_bytes_ = 0;
}

void Limbo::reclaim() {
  if (!waiting_.empty()) check();
  free_some(unpinned_.size());
}

// Prefetches for the entries that are freed after the next, at three distances.
void Limbo::prefetch_frees() const {
  const auto after = [this](std::size_t distance) {
    return unpinned_.size() > distance ? unpinned_[unpinned_.size() - 1 - distance] : kNoEntry;
  };
  if (const std::uint32_t id = after(12); id != kNoEntry) extents_.prefetch_entry(id);
  if (const std::uint32_t id = after(8); id != kNoEntry) extents_.prefetch_block(id);
  if (const std::uint32_t id = after(4); id != kNoEntry) extents_.prefetch_neighbours(id);
}

void Limbo::free_some(std::uint64_t most) {
  for (; most > 0 && !unpinned_.empty(); --most) {
    prefetch_frees();
    const std::uint32_t id = unpinned_.back();
    unpinned_.pop_back();
    bytes_ -= pool_bytes(index_.entry(id).length.load_relaxed());
    extents_.free(id);
    MC_FAILPOINT("reclaim.after_free");
  }
}

std::uint64_t Limbo::tail_bytes() const {
  std::uint64_t bytes = 0;
  for (const std::uint32_t id : waiting_) bytes += extents_.tail_bytes(id);
  return bytes;
}

}  // namespace mc::agent
