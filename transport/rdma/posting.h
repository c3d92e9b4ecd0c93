// SPDX-License-Identifier: Apache-2.0
//
// What it is: the values by which Queues posts an operation: the run of a lane, the part of the
//   operation that is posted now, and the stretch of memory that one key covers at each end.
// Threads: values. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/flow/operations.h"
#include "transport/limits.h"

namespace mc::transport::rdma {

// The lane to which the next slices of one priority go, and the bytes that may go there before
// another lane is chosen.
struct Run {
  std::size_t at = 0;  // place of the lane
  std::uint64_t bytes = 0;
  std::uint64_t signal_bytes = 0;  // one request in so many bytes is signalled
  Priority priority = Priority::kForeground;
  bool is_only = false;  // there is no other lane to choose
};

// Memory of an operation at both ends, as far as one key covers it at each.
struct Stretch {
  std::uint64_t bytes = 0;
  std::uintptr_t local = 0;
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t remote = 0;
};

// The part of an operation that is to be posted now, in slices of about slice_bytes.
struct Part {
  // The size of the slice that begins at from_bytes. A tail below a quarter of a slice joins the
  // slice before it.
  std::uint64_t bytes_from(std::uint64_t from_bytes) const {
    const std::uint64_t left = end_bytes - from_bytes;
    if (left >= slice_bytes + slice_bytes / 4) return slice_bytes;
    return left <= slice_bytes || left <= kMaxSliceBytes ? left : slice_bytes;
  }
  // The end of a turn of about turn_bytes.
  std::uint64_t turn_end(std::uint64_t turn_bytes) const {
    const bool is_last = end_bytes - offset_bytes < turn_bytes + slice_bytes / 4;
    return is_last ? end_bytes : offset_bytes + turn_bytes;
  }
  // Moves the part's begin past the first bytes of the stretch, and the stretch's begin with it.
  void advance(const OperationState& operation, Stretch& stretch, std::uint64_t bytes) {
    offset_bytes += bytes;
    at.offset_bytes += bytes;
    stretch.bytes -= bytes;
    stretch.local += bytes;
    stretch.remote += bytes;
    if (stretch.bytes > 0) return;
    if (at.offset_bytes == operation.pieces[at.piece].size_bytes) at = {at.piece + 1, 0};
  }

  std::uint64_t offset_bytes = 0;  // in the operation
  std::uint64_t end_bytes = 0;
  std::uint64_t slice_bytes = 0;
  Cursor at;
};

}  // namespace mc::transport::rdma
