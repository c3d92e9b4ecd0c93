// SPDX-License-Identifier: Apache-2.0
#include "metadata/placement/hot_keys.h"

#include <algorithm>

namespace mc::metadata {

// Four times twelve bits of a hash that is already random.
std::array<std::size_t, HotKeys::kRows> HotKeys::cells(KeyHash hash) {
  std::array<std::size_t, kRows> cells{};
  for (std::size_t row = 0; row < kRows; ++row) {
    cells[row] = row * kColumns + (hash.lo >> (16 + 12 * row)) % kColumns;
  }
  return cells;
}

std::uint32_t HotKeys::estimate(KeyHash hash) const {
  std::uint32_t least = UINT32_MAX;
  for (const std::size_t cell : cells(hash)) least = std::min(least, counts_[cell]);
  return least;
}

void HotKeys::note(KeyHash hash, std::uint32_t weight) {
  const std::uint32_t before = estimate(hash);
  const std::uint32_t after = before + std::min(weight, UINT32_MAX - before);
  for (const std::size_t cell : cells(hash)) counts_[cell] = std::max(counts_[cell], after);
  const std::uint32_t threshold = options_.locates_per_holder;
  // Only the note that crosses the threshold, so that each key is listed once.
  if (before >= threshold || after < threshold) return;
  if (candidates_.size() < options_.max_hot) candidates_.push_back(hash);
}

std::vector<HotKey> HotKeys::advise(const Directory& directory, std::uint64_t now_ns) {
  if (!window_over(now_ns)) return {};
  const bool first = window_end_ns_ == 0;
  window_end_ns_ = now_ns + options_.window_ns;
  std::vector<HotKey> hot;
  LocateAnswer found;
  if (!first) directory.locate(candidates_, found);
  for (std::size_t i = 0; i < found.keys.size(); ++i) {
    const std::uint32_t holders = found.keys[i].holder_count;
    const std::uint32_t locates = estimate(candidates_[i]);
    if (holders == 0 || holders >= kMaxReplicas || found.keys[i].attributes.striped) continue;
    if (locates / holders < options_.locates_per_holder) continue;
    hot.push_back({candidates_[i], locates, holders});
  }
  std::sort(hot.begin(), hot.end(), [](const HotKey& a, const HotKey& b) {
    return std::pair(b.locates, a.hash) < std::pair(a.locates, b.hash);
  });
  counts_.fill(0);
  candidates_.clear();
  return hot;
}

}  // namespace mc::metadata
