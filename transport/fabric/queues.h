// SPDX-License-Identifier: Apache-2.0
//
// The way of operations from the queues of a peer to the lanes: operations are cut
//   into slices, and slices become requests. Notifications go over the link.
//
//     queue ─► small queue ──► lane ┐  Rails::choose picks the lane;
//          └─► bulk queue ───► lane ┘  large operations take turns, slice by slice
//
// Threads: the transport's. Owns no state: the queues lie in the peers.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/fabric/lanes.h"
#include "transport/one_sided/local_regions.h"

namespace mc::transport::fabric {

class Queues {
 public:
  Queues(const LocalRegions& regions, one_sided::Requester& requester, Lanes& lanes)
      : regions_(regions), requester_(requester), lanes_(lanes) {}

  Outcome add(FabricPeer& peer, OperationState& operation, std::uint64_t now_ns);
  void pump(FabricPeer& peer, std::uint64_t now_ns);

 private:
  void pump_notices(FabricPeer& peer);
  void pump_small(FabricPeer& peer, std::uint64_t now_ns);
  bool resend(FabricPeer& peer, std::uint64_t now_ns);
  void pump_bulk(FabricPeer& peer, std::uint64_t now_ns);
  bool is_ready(FabricPeer& peer, OperationState& operation);
  std::optional<std::size_t> choose(FabricPeer& peer, std::uint64_t bytes);
  // Posts the slice, or as much of the slice as a request can carry; returns the bytes. 0: nothing
  // was posted, since the operation was given up, or there is no room now.
  std::uint32_t post(FabricPeer& peer, std::size_t place, OperationState& operation, Slice slice,
                     Cursor* after, std::uint64_t now_ns);

  const LocalRegions& regions_;
  one_sided::Requester& requester_;
  Lanes& lanes_;
};

}  // namespace mc::transport::fabric
