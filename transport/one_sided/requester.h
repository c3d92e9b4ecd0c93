// SPDX-License-Identifier: Apache-2.0
//
// The asking side of a one-sided transport: peers, links and regions, and the
//   operations until the end. The backend cuts operations into slices and posts the slices.
//
//     submit ─► check ─► Backend::queue ─► Backend::pump ─► lanes
//
//     a peer:  no link ─► link, devices known ─► dormant ─► first use: lanes are opened
//
//   A peer is lost after kPeerLostNs without a usable lane. The peer is back when a lane is up
//   again.
// Threads: the transport's. Owns peers, remote regions, operations.
// Trusts: nothing that a peer sends; the backend decodes and checks the messages.
#pragma once

#include <string>
#include <vector>

#include "transport/flow/due_peers.h"
#include "transport/one_sided/control_message.h"
#include "transport/one_sided/operation_book.h"

namespace mc::transport::one_sided {

// An operation of at most this size does not wait behind large operations.
inline constexpr std::uint64_t kSmallBytes = 32 * 1024;
// The kernel may take this long to resolve the address of a new neighbour.
inline constexpr std::uint64_t kFirstWayNs = 2'000'000'000;

// The facts that differ between the transports.
struct Traits {
  LinkProtocol link = LinkProtocol::kRdma;
  ControlProtocol control;
  DescriptorFormat descriptor;
  std::uint64_t idle_close_ns = 0;  // the lanes of a peer that is idle for so long are closed
};

class Requester {
 public:
  // The references outlive the requester. backend is used only after the constructor has returned.
  Requester(const Traits& traits, Edges& edges, Dialer& dialer, Counters& counters,
            Backend& backend);

  Result<PeerId> connect(const PeerSpec& spec);
  Status attach(Link link, std::uint64_t now_ns);
  void dial_failed(PeerId peer, std::uint64_t now_ns);
  void close_peer(PeerId peer);
  Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text);
  Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name);
  bool is_reachable(RemoteRegionId region, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                    std::uint64_t now_ns);
  bool is_guarded(RemoteRegionId region) const;
  void doubt(RemoteRegionId region);
  bool has_way(PeerId id) const {
    const OneSidedPeer* peer = peers_.find(id);
    return peer != nullptr && peer->is_up();
  }

  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns);
  void cancel(OperationId operation);
  void pump_all(std::uint64_t now_ns);
  void tick(std::uint64_t now_ns);
  std::uint64_t next_tick_ns() const;
  std::vector<Event>& events() { return operations_.events(); }
  bool has_events() const { return !operations_.events().empty(); }

  // For the backend.
  const Traits& traits() const { return traits_; }
  Edges& edges() { return edges_; }
  Counters& counters() { return counters_; }
  const PeerTable& peers() const { return peers_; }
  OperationBook& operations() { return operations_; }
  RemoteRegions& remote_regions() { return remote_regions_; }
  // The time of the last tick.
  std::uint64_t now_ns() const { return now_ns_; }
  std::uint64_t last_look_ns() const { return last_look_ns_; }
  // The next tick looks after all peers.
  void look_soon() { next_look_ns_ = 0; }
  // Opens the peer's lanes at the next tick, since the peer has an operation.
  void wake(OneSidedPeer& peer, std::uint64_t now_ns);
  void pump_later(OneSidedPeer& peer) { due_.add(peer); }
  void wait_for_credit(OneSidedPeer& peer) { waiting_for_credit_.add(peer); }
  // Freed credit goes first to the waiting peers.
  void wake_waiting_for_credit() {
    if (waiting_for_credit_.empty()) return;
    waiting_for_credit_.take([this](PeerId id) { return peers_.find(id); },
                             [this](OneSidedPeer& peer) { pump_later(peer); });
  }
  // Whether the keys of the operation's region are known. If not, the call asks for the keys. If
  // the region is gone, the call gives the operation up.
  bool is_ready(OneSidedPeer& peer, OperationState& operation);
  // Says that a lost peer is back; does nothing for other peers.
  void welcome_back(OneSidedPeer& peer);

 private:
  friend struct OneSidedPeer;

  Outcome check(const Operation& operation, std::uint64_t now_ns, std::uint64_t* size);
  void work_link(OneSidedPeer& peer, std::uint64_t now_ns);
  void fail_link(OneSidedPeer& peer, std::uint64_t now_ns);
  void look_after(OneSidedPeer& peer, std::uint64_t now_ns, std::uint64_t away_ns);
  void lose(OneSidedPeer& peer, std::uint64_t now_ns);

  const Traits traits_;
  Edges& edges_;
  Dialer& dialer_;
  Counters& counters_;
  Backend& backend_;
  PeerTable peers_;
  OperationBook operations_{peers_, backend_, counters_};
  RemoteRegions remote_regions_{traits_.descriptor};
  DuePeers<OneSidedPeer, &OneSidedPeer::listed> due_;
  DuePeers<OneSidedPeer, &OneSidedPeer::waiting_for_credit> waiting_for_credit_;
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t last_look_ns_ = 0;
  std::uint64_t now_ns_ = 0;
};

}  // namespace mc::transport::one_sided
