// SPDX-License-Identifier: Apache-2.0
//
// What it is: the checksum of an object's bytes: CRC-64/XZ (ECMA-182, reflected; ISA-L's
// crc64_ecma_refl), started from the key's hash, so that bytes stored under another key do not
// match. Chosen over XXH3: both run near 70 GB/s from cache here, a CRC finds every burst error of
// up to 64 bits, and ISA-L picks the instruction set at run time. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mc {

// Continues sum over size more bytes.
std::uint64_t checksum(std::uint64_t sum, const void* data, std::size_t size);

// Copies and sums in one pass over the source: each 16 KiB is summed while its lines are in the
// first cache and copied from there by copy_in(): call order_copies() before telling anybody.
// Returns the continued sum.
std::uint64_t copy_and_checksum(std::uint64_t sum, void* to, const void* from, std::size_t size);

}  // namespace mc
