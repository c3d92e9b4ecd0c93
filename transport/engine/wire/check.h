// SPDX-License-Identifier: Apache-2.0
//
// A question about written bytes: whether a range has this checksum. The requester writes the question into a
//   place of the owner's region for questions; the outcome of that write is the answer.
//
//   0         8      16         24  32
//   │ address │ size │ checksum │ 0 │
//
// Threads: values.
// Trusts: no peer. The verifier checks the range (verifier.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mc::transfer {

struct CheckQuestion {
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;  // 1 to kMaxCheckBytes
  std::uint64_t checksum = 0;    // CRC-64 of libmc/base/checksum.h, from 0
  std::uint64_t reserved = 0;
};
inline constexpr std::size_t kCheckQuestionBytes = 32;
static_assert(sizeof(CheckQuestion) == kCheckQuestionBytes);

// A question keeps the owner's I/O thread for about a millisecond.
inline constexpr std::uint64_t kMaxCheckBytes = 8 << 20;
// Places for questions; a place has one question at a time.
inline constexpr std::uint32_t kCheckPlaces = 1024;

}  // namespace mc::transfer
