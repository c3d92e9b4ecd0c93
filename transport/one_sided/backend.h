// SPDX-License-Identifier: Apache-2.0
//
// The part of a one-sided requester that depends on the network: the messages of the
//   link, the lanes, and the way from the queues to the lanes.
//
//     one_sided::Requester ─► Backend ─┬─► rdma::Backend     queue pairs of verbs
//      peers, operations, ticks        └─► fabric::Backend   endpoints of libfabric
//
// Threads: the transport's.
// Trusts: nothing that take() is given.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/flow/operations.h"
#include "transport/one_sided/control_message.h"
#include "transport/one_sided/peer.h"

namespace mc::transport::one_sided {

class Backend {
 public:
  virtual ~Backend() = default;

  // The backend's own kind of peer. Each Peer& below is of this kind.
  virtual std::unique_ptr<Peer> make_peer(PeerId id, const PeerSpec& spec) = 0;

  // The messages of the link.
  virtual std::vector<std::byte> hello(Peer& peer) = 0;
  virtual std::vector<std::byte> describe(RegionId region) const = 0;
  virtual std::vector<std::byte> ping() const = 0;
  // Acts on a message of the peer. False: the peer breaks the contract.
  virtual bool take(Peer& peer, const ControlHeader& header, std::span<const std::byte> body,
                    std::uint64_t now_ns) = 0;

  // Puts a checked operation into a queue of the peer. Another outcome than kDone: the operation
  // ends with this outcome.
  virtual Outcome queue(Peer& peer, OperationState& operation, std::uint64_t now_ns) = 0;
  // Posts queued operations to lanes, as far as the lanes have room.
  virtual void pump(Peer& peer, std::uint64_t now_ns) = 0;
  // A notification has ended.
  virtual void on_notice_ended(Peer&, OperationId) {}

  // Opens and probes lanes, and fails silent lanes. away_ns: the time for which this side did not
  // look; a silence of that length says nothing about the peer.
  virtual void look_after_lanes(Peer& peer, std::uint64_t now_ns, std::uint64_t away_ns) = 0;
  virtual void close_lanes(Peer& peer, const std::string& why, std::uint64_t now_ns) = 0;
  // Fails the lanes that carry slices of the operation. Only then can no byte of the operation land
  // any more.
  virtual void abandon_lanes_of(Peer& peer, OperationId operation, std::uint64_t now_ns) = 0;
  // Closes the lanes of a peer that was idle for too long.
  virtual void fall_asleep(Peer& peer, std::uint64_t now_ns) = 0;
  virtual void on_link_failed(Peer& peer, std::uint64_t now_ns) = 0;
  // Empties the peer's queues. No slice is on a lane after the call.
  virtual void on_lost(Peer& peer, std::uint64_t now_ns) = 0;
};

}  // namespace mc::transport::one_sided
