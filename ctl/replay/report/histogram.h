// SPDX-License-Identifier: Apache-2.0
//
// Latencies counted in log-linear buckets: exact below 64 ns, within 1/32 above.
// Threads: a single thread.
// Owns: its counts.
// Trusts: nothing; the size of counts from another process is checked, and any value is a count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace mc::ctl {

class LatencyHistogram {
 public:
  static constexpr std::size_t kBuckets = 1280;  // up to 2^44 ns: five hours

  void add(std::uint64_t ns, std::uint64_t count = 1);
  void merge(const LatencyHistogram& other);

  std::uint64_t count() const { return count_; }
  // The middle of the bucket that reaches this fraction of all values; fraction in [0, 1]. 0 if the
  // histogram is empty.
  double percentile_ns(double fraction) const;

  std::uint64_t bucket_count(std::size_t bucket) const { return counts_[bucket]; }
  static std::uint64_t bucket_floor_ns(std::size_t bucket);  // the least value of the bucket

 private:
  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t count_ = 0;
};

}  // namespace mc::ctl
