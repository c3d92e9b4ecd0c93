// SPDX-License-Identifier: Apache-2.0
//
// What it is: the way of operations from the queues of their peer to its lanes: operations are cut
//   into slices, and slices become work requests.
//
//     queue ─► small queue ──► small lane of a rail ┐  Rails::choose_run picks the rail;
//          └─► bulk queues ──► bulk lanes of rails  ┘  large operations take turns by priority
//
// Threads: the transport's. Owns no state: the queues lie in the peers.
#pragma once

#include <cstdint>

#include "transport/one_sided/local_regions.h"
#include "transport/rdma/lanes.h"
#include "transport/rdma/posting.h"

namespace mc::transport::rdma {

class Queues {
 public:
  Queues(const RdmaOptions& options, const LocalRegions& regions, one_sided::Requester& requester,
         Lanes& lanes)
      : options_(options), regions_(regions), requester_(requester), lanes_(lanes) {}

  Outcome add(Peer& peer, OperationState& operation, std::uint64_t now_ns);
  void pump(Peer& peer, std::uint64_t now_ns);

 private:
  bool resend(Peer& peer, std::uint64_t now_ns);
  void pump_small(Peer& peer, std::uint64_t now_ns);
  void pump_bulk(Peer& peer, std::uint64_t now_ns);
  bool take_turn(Peer& peer, Priority priority, std::uint64_t most_bytes, std::uint64_t now_ns);
  bool is_ready(Peer& peer, OperationState& operation);
  // Begins a run with a slice of that size. False: no rail has room.
  bool choose(Peer& peer, std::uint64_t bytes, bool small, const OperationState& operation,
              Run& run);
  // The peer's rails whose local device is near to the memory of the operation.
  std::uint64_t near_rails(const Peer& peer, const OperationState& operation) const;
  Outcome find_stretch(const Path& path, const OperationState& operation, const Part& part,
                       Stretch& stretch);
  static std::uint32_t post_straight(Lane& lane, const Run& run, const OperationState& operation,
                                     Part& part, Stretch& stretch, std::uint64_t limit_bytes,
                                     std::uint64_t now_ns);
  Outcome post_gathered(Lane& lane, const Run& run, const OperationState& operation, Part& part,
                        Stretch& stretch, const Path& path, std::uint64_t now_ns);
  // Posts slices until the part or the run ends, or the lane is full. False: the operation has been
  // given up.
  bool post(Peer& peer, Run& run, OperationState& operation, Part& part, std::uint64_t now_ns);
  enum class Posted { kAll, kNoRoom, kGivenUp };
  Posted post_all(Peer& peer, OperationState& operation, Part& part, bool small, Run& run,
                  std::uint64_t now_ns);

  const RdmaOptions& options_;
  const LocalRegions& regions_;
  one_sided::Requester& requester_;
  Lanes& lanes_;
};

}  // namespace mc::transport::rdma
