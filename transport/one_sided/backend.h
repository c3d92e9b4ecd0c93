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
#include "transport/one_sided/one_sided_peer.h"

namespace mc::transport::one_sided {

class Backend {
 public:
  virtual ~Backend() = default;

  // The backend's own kind of peer. Each OneSidedPeer& below is of this kind.
  virtual std::unique_ptr<OneSidedPeer> make_peer(PeerId id, const PeerSpec& spec) = 0;

  // The messages of the link.
  virtual std::vector<std::byte> hello(OneSidedPeer& peer) = 0;
  virtual std::vector<std::byte> describe(RegionId region) const = 0;
  virtual std::vector<std::byte> ping() const = 0;
  // Acts on a message of the peer. False: the peer breaks the contract.
  virtual bool take(OneSidedPeer& peer, const ControlHeader& header,
                    std::span<const std::byte> body, std::uint64_t now_ns) = 0;

  // Puts a checked operation into a queue of the peer. Another outcome than kDone: the operation
  // ends with this outcome.
  virtual Outcome queue(OneSidedPeer& peer, OperationState& operation, std::uint64_t now_ns) = 0;
  // Posts queued operations to lanes, as far as the lanes have room.
  virtual void pump(OneSidedPeer& peer, std::uint64_t now_ns) = 0;
  // A notification has ended.
  virtual void on_notice_ended(OneSidedPeer&, OperationId) {}

  // Opens and probes lanes, and fails silent lanes. away_ns: the time for which this side did not
  // look; a silence of that length says nothing about the peer.
  virtual void look_after_lanes(OneSidedPeer& peer, std::uint64_t now_ns,
                                std::uint64_t away_ns) = 0;
  virtual void close_lanes(OneSidedPeer& peer, const std::string& why, std::uint64_t now_ns) = 0;
  // Fails the lanes that carry slices of the operation. Only then can no byte of the operation land
  // any more.
  virtual void abandon_lanes_of(OneSidedPeer& peer, OperationId operation,
                                std::uint64_t now_ns) = 0;
  // Closes the lanes of a peer that was idle for too long.
  virtual void fall_asleep(OneSidedPeer& peer, std::uint64_t now_ns) = 0;
  virtual void on_link_failed(OneSidedPeer& peer, std::uint64_t now_ns) = 0;
  // Empties the peer's queues. No slice is on a lane after the call.
  virtual void on_lost(OneSidedPeer& peer, std::uint64_t now_ns) = 0;
};

}  // namespace mc::transport::one_sided
