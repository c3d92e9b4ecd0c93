// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/checksum.h"

#include <isa-l/crc64.h>

#include <algorithm>

#include "libmc/base/copy.h"

namespace mc {

namespace {
constexpr std::size_t kStepBytes = 16 * 1024;
}

std::uint64_t checksum(std::uint64_t sum, const void* data, std::size_t size) {
  return crc64_ecma_refl(sum, static_cast<const unsigned char*>(data), size);
}

std::uint64_t copy_and_checksum(std::uint64_t sum, void* to, const void* from, std::size_t size) {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  while (size > 0) {
    const std::size_t step = std::min(size, kStepBytes);
    sum = crc64_ecma_refl(sum, in, step);
    // The next step's sum reads the lines that this step's copy has begun to load.
    copy_in(out, in, step, size > step ? step : 0);
    in += step;
    out += step;
    size -= step;
  }
  return sum;
}

std::uint64_t copy_out_and_checksum(std::uint64_t sum, void* to, const void* from,
                                    std::size_t size) {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  while (size > 0) {
    const std::size_t step = std::min(size, kStepBytes);
    copy_out(out, in, step);
    sum = crc64_ecma_refl(sum, out, step);
    in += step;
    out += step;
    size -= step;
  }
  return sum;
}

}  // namespace mc
