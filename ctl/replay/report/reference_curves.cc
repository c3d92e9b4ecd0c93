// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/report/summary.h"

#include <algorithm>
#include <limits>
#include <list>
#include <queue>
#include <utility>
#include <vector>

namespace mc::ctl {
namespace {

constexpr std::uint64_t kNeverAgain = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kAbsent = 0;  // positions count from 1

template <typename IsResident>
std::uint64_t leading_hits(const TraceRequest& request, IsResident is_resident) {
  const auto miss = std::find_if_not(request.blocks.begin(), request.blocks.end(), is_resident);
  return static_cast<std::uint64_t>(miss - request.blocks.begin());
}

// For each reference of the trace, the position of the next reference to the same block.
std::vector<std::uint64_t> next_uses(const Trace& trace) {
  std::vector<std::uint64_t> next(trace.reference_count, kNeverAgain);
  std::vector<std::uint64_t> later(trace.block_count, kNeverAgain);
  std::uint64_t position = trace.reference_count;
  for (auto request = trace.requests.rbegin(); request != trace.requests.rend(); ++request) {
    for (auto block = request->blocks.rbegin(); block != request->blocks.rend(); ++block) {
      next[position - 1] = later[*block];
      later[*block] = position--;
    }
  }
  return next;
}

// A cache that knows which of its blocks has the latest next use.
class FarthestFirst {
 public:
  FarthestFirst(std::size_t block_count, std::size_t capacity_blocks)
      : next_use_(block_count, kAbsent), capacity_blocks_(capacity_blocks) {}

  [[nodiscard]] bool holds(std::uint32_t block) const { return next_use_[block] != kAbsent; }

  void reference(std::uint32_t block, std::uint64_t next_use) {
    if (holds(block)) --size_;
    next_use_[block] = kAbsent;
    if (next_use == kNeverAgain) return;
    next_use_[block] = next_use;
    farthest_.emplace(next_use, block);
    if (++size_ > capacity_blocks_) give_up_farthest();
  }

 private:
  void give_up_farthest() {
    for (;;) {
      const auto [next_use, block] = farthest_.top();
      farthest_.pop();
      if (next_use_[block] != next_use) continue;  // the block was referenced since then
      next_use_[block] = kAbsent;
      --size_;
      return;
    }
  }

  std::vector<std::uint64_t> next_use_;  // per block
  std::priority_queue<std::pair<std::uint64_t, std::uint32_t>> farthest_;
  std::size_t capacity_blocks_;
  std::size_t size_ = 0;
};

}  // namespace

std::uint64_t lru_prefix_hits(const Trace& trace, std::size_t capacity_blocks) {
  std::list<std::uint32_t> newest_first;
  std::vector<std::list<std::uint32_t>::iterator> where(trace.block_count, newest_first.end());
  std::uint64_t hits = 0;
  for (const TraceRequest& request : trace.requests) {
    hits += leading_hits(request, [&](auto block) { return where[block] != newest_first.end(); });
    for (auto block = request.blocks.rbegin(); block != request.blocks.rend(); ++block) {
      if (where[*block] != newest_first.end()) {
        newest_first.splice(newest_first.begin(), newest_first, where[*block]);
        continue;
      }
      where[*block] = newest_first.insert(newest_first.begin(), *block);
      if (newest_first.size() <= capacity_blocks) continue;
      where[newest_first.back()] = newest_first.end();
      newest_first.pop_back();
    }
  }
  return hits;
}

std::uint64_t optimal_prefix_hits(const Trace& trace, std::size_t capacity_blocks) {
  const std::vector<std::uint64_t> next = next_uses(trace);
  FarthestFirst cache(trace.block_count, capacity_blocks);
  std::uint64_t hits = 0;
  std::size_t position = 0;
  for (const TraceRequest& request : trace.requests) {
    hits += leading_hits(request, [&](auto block) { return cache.holds(block); });
    for (const std::uint32_t block : request.blocks) cache.reference(block, next[position++]);
  }
  return hits;
}

}  // namespace mc::ctl
