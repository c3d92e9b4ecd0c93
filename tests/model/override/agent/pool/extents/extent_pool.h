// SPDX-License-Identifier: Apache-2.0
//
// agent/pool/extents/extent_pool.h for the model: an allocator that returns the most recently freed
//   extent, so that reuse is as quick as possible. The product's allocator is private to the agent
//   and part of no protocol.
// Threads: the simulated agent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/pool/extents/extent_allocator.h"
#include "libmc/base/memory_file.h"
#include "shm/layout.h"

namespace mc::agent {

struct PoolExtent {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  BlockId node = kNoBlock;
};

struct PoolExtents {
  std::uint32_t count = 0;
  PoolExtent at[MC_MAX_EXTENTS];
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum += at[i].length_bytes;
    return sum;
  }
};

inline namespace model_checked {

class ExtentPool {
 public:
  static Result<std::unique_ptr<ExtentPool>> create(shm::IndexHeader*, std::uint64_t pool_bytes,
                                                    std::uint64_t, std::uint32_t, HugePages) {
    auto pool = std::make_unique<ExtentPool>();
    pool->bytes_ = pool_bytes;
    pool->data_ = model::arena_allocate(pool_bytes);
    for (std::uint64_t at = pool_bytes; at > 0; at -= kGranuleBytes) {
      pool->free_.push_back(at - kGranuleBytes);
    }
    return pool;
  }
  std::byte* data() const { return data_; }
  bool allocate(std::uint64_t bytes, bool, PoolExtents& extents) {
    if (bytes > kGranuleBytes || free_.empty()) return false;
    extents.count = 1;
    extents.at[0] = {free_.back(), kGranuleBytes, 1};
    free_.pop_back();
    return true;
  }
  void free(const PoolExtent& extent) { free_.push_back(extent.offset_bytes); }
  void trim(PoolExtents&, std::uint64_t) {}
  // Every extent fits every object, so no clearing is needed.
  using Side = ExtentAllocator::Side;
  using Neighbour = ExtentAllocator::Neighbour;
  void set_owner(const PoolExtent& extent, std::uint32_t owner) {
    owners_[extent.offset_bytes] = owner;
  }
  Neighbour neighbour(const PoolExtent&, BlockId, Side) const { return {}; }
  bool grow_into(PoolExtent&, Side, std::uint64_t) { return false; }
  bool take_largest(std::uint64_t, PoolExtent&) { return false; }
  bool take_behind(const PoolExtent&, std::uint64_t, unsigned, PoolExtent&) { return false; }
  void resize(std::uint64_t) {}
  bool must_leave(std::uint64_t offset_bytes, std::uint64_t) const {
    return offset_bytes == must_leave_;
  }
  void let_leave(std::uint64_t offset_bytes) { must_leave_ = offset_bytes; }
  bool shrinking() const { return must_leave_ != ~std::uint64_t{0}; }
  std::vector<std::uint32_t> tail_owners(std::size_t) const {
    const auto owner = owners_.find(must_leave_);
    return owner == owners_.end() ? std::vector<std::uint32_t>{} : std::vector{owner->second};
  }
  bool give_back_tails() {
    must_leave_ = ~std::uint64_t{0};
    return true;
  }
  bool growing() const { return false; }
  void retry_growth() {}
  void prefetch(const PoolExtent&) const {}
  void prefetch_neighbours(const PoolExtent&) const {}
  std::uint64_t target_bytes() const { return bytes_; }
  std::uint64_t reserved_bytes() const { return bytes_; }
  std::uint64_t used_bytes() const { return bytes_ - free_.size() * kGranuleBytes; }
  std::uint64_t free_bytes() const { return free_.size() * kGranuleBytes; }
  std::uint64_t memory_bytes() const { return 0; }
  struct Elsewhere {
    const Mapping* mapping;
    std::uint64_t offset_bytes;
    std::uint64_t bytes;
  };
  void collapse_first(const std::function<std::optional<Elsewhere>()>&) {}

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t must_leave_ = ~std::uint64_t{0};
  std::vector<std::uint64_t> free_;
  std::map<std::uint64_t, std::uint32_t> owners_;
};

}  // namespace model_checked
}  // namespace mc::agent
