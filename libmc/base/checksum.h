// SPDX-License-Identifier: Apache-2.0
//
// The checksum of an object's bytes: CRC-64/XZ (ECMA-182, reflected; ISA-L's
//   crc64_ecma_refl). The sum starts from the key's hash, so bytes stored under another key do not
//   match. Reasons for CRC over XXH3: both reach about 70 GB/s from cache here, a CRC finds every
//   burst error of up to 64 bits, and ISA-L selects the instruction set at run time.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mc {

// Continues sum over size more bytes.
std::uint64_t checksum(std::uint64_t sum, const void* data, std::size_t size);

// Copies and sums in one pass over the source. Each 16 KiB is summed while the lines are in the
// first-level cache, then copied by copy_in(). Call order_copies() before another thread is told.
// Returns the continued sum.
std::uint64_t copy_and_checksum(std::uint64_t sum, void* to, const void* from, std::size_t size);
// The same for a copy out of a pool, with copy_out(). Needs no order_copies().
std::uint64_t copy_out_and_checksum(std::uint64_t sum, void* to, const void* from,
                                    std::size_t size);

}  // namespace mc
