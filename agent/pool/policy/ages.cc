// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/policy/ages.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace mc::agent {

std::size_t Ages::band_of_age(std::uint32_t age) {
  if (age < 2) return age;
  const auto octave = static_cast<std::uint32_t>(std::bit_width(age)) - 1;
  const std::uint32_t upper_half = (age >> (octave - 1)) & 1U;
  return std::min<std::size_t>(2 * octave + upper_half, kBands - 1);
}

std::uint32_t Ages::band_start(std::size_t band) {
  if (band < 2) return static_cast<std::uint32_t>(band);
  const std::uint32_t octave = static_cast<std::uint32_t>(band) / 2;
  return (band % 2 == 0 ? 2U : 3U) << (octave - 1);
}

std::size_t Ages::bucket_of(std::uint16_t stamp) const {
  const auto age = static_cast<std::uint16_t>(now_ - stamp);
  const auto end = start_.begin() + static_cast<std::ptrdiff_t>(count_);
  return static_cast<std::size_t>(std::upper_bound(start_.begin(), end, age) - start_.begin()) - 1;
}

void Ages::advance() {
  assert(count_ < kMaxBuckets);
  ++now_;
  for (std::size_t i = count_; i > 0; --i) {
    start_[i] = static_cast<std::uint16_t>(std::min<std::uint32_t>(start_[i - 1] + 1U, kMaxAge));
    band_[i] = static_cast<std::uint8_t>(band_of_age(start_[i]));
  }
  start_[0] = 0;
  band_[0] = 0;
  ++count_;
}

bool Ages::merge_next(std::size_t& bucket) {
  for (std::size_t i = 0; i + 1 < count_; ++i) {
    if (!may_merge(i)) continue;
    std::copy(start_.begin() + static_cast<std::ptrdiff_t>(i) + 2,
              start_.begin() + static_cast<std::ptrdiff_t>(count_),
              start_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    std::copy(band_.begin() + static_cast<std::ptrdiff_t>(i) + 2,
              band_.begin() + static_cast<std::ptrdiff_t>(count_),
              band_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    --count_;
    bucket = i;
    return true;
  }
  return false;
}

void Ages::halve() {
  for (std::size_t i = 0; i < count_; ++i) {
    start_[i] = static_cast<std::uint16_t>(start_[i] / 2);
    band_[i] = static_cast<std::uint8_t>(band_of_age(start_[i]));
  }
}

bool Ages::may_merge(std::size_t bucket) const {
  if (start_[bucket] == start_[bucket + 1]) return true;
  if (band_[bucket] != band_[bucket + 1]) return false;
  if (band_[bucket] == kBands - 1) return true;
  const std::uint32_t band_width =
      band_start(band_[bucket] + std::size_t{1}) - band_start(band_[bucket]);
  const std::uint32_t end = bucket + 2 < count_ ? start_[bucket + 2] : kMaxAge;
  return end - start_[bucket] <= band_width / 2;
}

}  // namespace mc::agent
