// SPDX-License-Identifier: Apache-2.0
//
// The time since an object's last use, in epochs. Bands cut the time and widen with
//   age, two in an octave. Buckets group objects of about the same age, two to four in a band.
// Threads: the policy's thread.
// Owns: the bucket edges.
// Trusts: its caller.
//
//   epochs ago   0 1 2 3 4   6   8     12    16        24        32 ...
//   bands        |0|1|2|3| 4 | 5 |  6  |  7  |    8    |    9    | ...
//   buckets      | | | | |1|1|1|1| 2 |1|1| 2 | ...      (bucket 0: the current epoch)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace mc::agent {

class Ages {
 public:
  static constexpr std::size_t kBands = 28;
  static constexpr std::size_t kMaxBuckets = 5 * kBands;  // no two neighbours fit in half a band
  // Older objects count as this old; stamps have 16 bits and must not wrap around to young.
  static constexpr std::uint32_t kMaxAge = 1U << 14;

  static std::size_t band_of_age(std::uint32_t age);
  static std::uint32_t band_start(std::size_t band);

  [[nodiscard]] std::uint16_t now() const { return now_; }
  [[nodiscard]] std::size_t bucket_count() const { return count_; }
  [[nodiscard]] std::size_t band_of_bucket(std::size_t bucket) const { return band_[bucket]; }
  // The age of the youngest objects in the bucket.
  [[nodiscard]] std::uint32_t bucket_start(std::size_t bucket) const { return start_[bucket]; }
  [[nodiscard]] std::size_t bucket_of(std::uint16_t stamp) const;

  // Starts an epoch: every bucket's number rises by one, and bucket 0 is empty.
  void advance();
  // Call after advance() and halve() until the result is false. True: two neighbours were merged,
  // and `bucket` is the younger. The number bucket + 1 is gone, and the later buckets move up.
  bool merge_next(std::size_t& bucket);
  // Doubles the length of the epoch: ages halve, and buckets must be merged. REQUIRES: the stamp of
  // every object has become now() - bucket_start(bucket_of(stamp)) / 2.
  void halve();

 private:
  [[nodiscard]] bool may_merge(std::size_t bucket) const;

  std::uint16_t now_ = 0;
  std::size_t count_ = 1;
  std::array<std::uint16_t, kMaxBuckets> start_{};
  std::array<std::uint8_t, kMaxBuckets> band_{};
};

}  // namespace mc::agent
