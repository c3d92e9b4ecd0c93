// SPDX-License-Identifier: Apache-2.0
//
// The way of operations from the queues of a peer to the lanes: operations are cut
//   into slices, and slices become work requests.
//
//     queue ─► small queue ──► small lane of a rail ┐  Rails::choose_run picks the rail;
//          └─► bulk queues ──► bulk lanes of rails  ┘  large operations take turns by priority
//
// Threads: the transport's. Owns no state: the queues lie in the peers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/flow/operations.h"
#include "transport/limits.h"
#include "transport/one_sided/local_regions.h"
#include "transport/rdma/lanes.h"

namespace mc::transport::rdma {

// The lane to which the next slices of a priority go, and the bytes that may go there before
// another lane is chosen.
struct Run {
  std::size_t at = 0;  // place of the lane
  std::uint64_t bytes = 0;
  std::uint64_t signal_bytes = 0;  // a request is signalled after so many bytes
  Priority priority = Priority::kForeground;
  bool is_only = false;  // there is no other lane to choose
};

// Memory of an operation at both ends, as far as a single key covers the memory at each end.
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
  // Moves the part's begin past the first bytes of the stretch, and the stretch's begin likewise.
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

class Queues {
 public:
  Queues(const RdmaOptions& options, const LocalRegions& regions, one_sided::Requester& requester,
         Lanes& lanes)
      : options_(options), regions_(regions), requester_(requester), lanes_(lanes) {}

  Outcome add(RdmaPeer& peer, OperationState& operation, std::uint64_t now_ns);
  void pump(RdmaPeer& peer, std::uint64_t now_ns);

 private:
  bool resend(RdmaPeer& peer, std::uint64_t now_ns);
  void pump_small(RdmaPeer& peer, std::uint64_t now_ns);
  void pump_bulk(RdmaPeer& peer, std::uint64_t now_ns);
  bool take_turn(RdmaPeer& peer, Priority priority, std::uint64_t most_bytes, std::uint64_t now_ns);
  bool is_ready(RdmaPeer& peer, OperationState& operation);
  // Begins a run with a slice of that size. False: no rail has room.
  bool choose(RdmaPeer& peer, std::uint64_t bytes, bool small, const OperationState& operation,
              Run& run);
  // The peer's rails whose local device is near the operation's memory.
  std::uint64_t near_rails(const RdmaPeer& peer, const OperationState& operation) const;
  Outcome find_stretch(const Path& path, const OperationState& operation, const Part& part,
                       Stretch& stretch);
  static std::uint32_t post_straight(Lane& lane, const Run& run, const OperationState& operation,
                                     Part& part, Stretch& stretch, std::uint64_t limit_bytes,
                                     std::uint64_t now_ns);
  Outcome post_gathered(Lane& lane, const Run& run, const OperationState& operation, Part& part,
                        Stretch& stretch, const Path& path, std::uint64_t now_ns);
  // Posts slices until the part or the run ends, or the lane is full. False: the operation has been
  // given up.
  bool post(RdmaPeer& peer, Run& run, OperationState& operation, Part& part, std::uint64_t now_ns);
  enum class Posted { kAll, kNoRoom, kGivenUp };
  Posted post_all(RdmaPeer& peer, OperationState& operation, Part& part, bool small, Run& run,
                  std::uint64_t now_ns);

  const RdmaOptions& options_;
  const LocalRegions& regions_;
  one_sided::Requester& requester_;
  Lanes& lanes_;
};

}  // namespace mc::transport::rdma
