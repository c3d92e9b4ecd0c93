// SPDX-License-Identifier: Apache-2.0
//
// Pieces of memory as the kernels (kernels.cu) take them. Lists of pieces lie in memory that the
//   device can read; addresses are the device's.
#pragma once

#include <stdint.h>

namespace mc::device {

// Source and destination must not overlap.
struct CopiedPiece {
  uint64_t to;
  uint64_t from;
  uint64_t bytes;
};

// A part of the bytes that a checksum (libmc/base/checksum.h) covers.
struct SummedPiece {
  uint64_t from;
  uint64_t bytes;
  uint64_t after;  // the bytes that follow the piece
  uint64_t start;  // of the first piece: the complement of the sum so far; of the others: 0
  uint64_t to;     // address of the checksum, which starts with kNoSum
};
constexpr uint64_t kNoSum = ~uint64_t{0};

}  // namespace mc::device
