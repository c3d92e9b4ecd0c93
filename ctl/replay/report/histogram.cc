// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/report/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mc::ctl {
namespace {

constexpr std::size_t kSubBuckets = 32;
constexpr std::uint64_t kLargest = (std::uint64_t{1} << 44) - 1;

// Each power of two has 32 equal buckets; each value below 64 has its own bucket.
std::size_t bucket_of(std::uint64_t ns) {
  const std::uint64_t value = std::min(ns, kLargest);
  const auto width = static_cast<std::size_t>(std::bit_width(value));
  const std::size_t shift = width > 6 ? width - 6 : 0;
  return shift * kSubBuckets + (value >> shift);
}

}  // namespace

void LatencyHistogram::add(std::uint64_t ns, std::uint64_t count) {
  counts_[bucket_of(ns)] += count;
  count_ += count;
}

void LatencyHistogram::merge(const LatencyHistogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
}

std::uint64_t LatencyHistogram::bucket_floor_ns(std::size_t bucket) {
  if (bucket < 2 * kSubBuckets) return bucket;
  const std::size_t shift = bucket / kSubBuckets - 1;
  return static_cast<std::uint64_t>(bucket - shift * kSubBuckets) << shift;
}

double LatencyHistogram::percentile_ns(double fraction) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(count_)));
  const std::uint64_t wanted = std::clamp<std::uint64_t>(rank, 1, count_);
  std::uint64_t seen = 0;
  std::size_t bucket = 0;
  while (seen + counts_[bucket] < wanted) seen += counts_[bucket++];
  const std::uint64_t floor = bucket_floor_ns(bucket);
  const std::uint64_t width = bucket_floor_ns(bucket + 1) - floor;
  return static_cast<double>(floor) + static_cast<double>(width - 1) / 2;
}

}  // namespace mc::ctl
