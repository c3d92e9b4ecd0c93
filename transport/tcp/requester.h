// SPDX-License-Identifier: Apache-2.0
//
// The asking side: cuts operations into slices, gives slices to lanes, and watches
//   lanes.
//
//     submit ─► small queue ──► lane 0 (small)               slices of large operations take turns,
//            └► bulk queue ───► lanes 1…n by Rails::choose   so that none waits for another to end
//
//   A lane that fails gives its slices back. Reads go to another lane. Writes go to another lane
//   after the failed lane is cut at the peer. Notifications end with kPeerLost, because they may
//   have arrived.
// Threads: the transport's.
// Owns: peers, lanes, operations.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "transport/flow/due_peers.h"
#include "transport/flow/peer_table.h"
#include "transport/rails/rails.h"
#include "transport/tcp/asking_lane.h"

namespace mc::transport::tcp {

// An operation of at most this size goes to the small lane as a whole.
inline constexpr std::uint64_t kSmallBytes = 32 * 1024;
inline constexpr std::uint64_t kSmallLaneBytes = 1024 * 1024;  // in flight on the small lane

class Requester : public SliceSink {
 public:
  // max_asked_bytes: the limit for large operations to all peers together.
  Requester(LaneLoop& loop, Dialer& dialer, Counters& counters, std::uint64_t max_asked_bytes);
  ~Requester() override;

  Result<PeerId> connect(const PeerSpec& spec);
  Status attach(Link link, std::uint64_t now_ns);
  void dial_failed(PeerId peer, std::uint32_t lane, std::uint64_t now_ns);
  void close_peer(PeerId peer);

  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns);
  void cancel(OperationId operation);

  // Cuts and sends slices as far as there is room, after lanes have worked.
  void pump_all(std::uint64_t now_ns);
  // Handles deadlines, signs of life and redials that are due.
  void tick(std::uint64_t now_ns);
  std::uint64_t next_tick_ns() const;
  std::vector<Event>& events() { return events_; }
  bool has_events() const { return !events_.empty(); }
  void report_rails(std::vector<RailReport>& reports) const;
  RailCounts count_rails() const;

  OperationState* find_operation(OperationId id) override { return operations_.find(id); }
  void on_slice(AskingLane& lane, const Slice& slice, Outcome outcome,
                std::uint64_t now_ns) override;
  void on_lane_failed(AskingLane& lane, std::uint64_t now_ns) override;
  void on_cut(AskingLane& lane, Outcome outcome) override;
  Counters& lane_counters() override { return counters_; }

 private:
  // A lane that failed with writes under way. Bytes of the lane may still land until the peer has
  // answered a cut.
  struct Cut {
    std::uint32_t lane = 0;
    std::uint32_t serial = 0;
    std::uint32_t asked_on = kMaxLanes;  // a lane that is up; kMaxLanes: not asked yet
  };
  struct TcpPeer {
    TcpPeer(PeerId number, const PeerSpec& wanted)
        : id(number),
          spec(wanted),
          lanes(1 + wanted.bulk_lanes),
          small(1),
          bulk(wanted.bulk_lanes) {}
    const PeerId id;
    const PeerSpec spec;
    std::vector<std::unique_ptr<AskingLane>> lanes;  // 0: small; null: down
    Rails small;
    Rails bulk;
    Queue<OperationId> small_waiting;
    std::array<Queue<OperationId>, kPriorityCount> bulk_waiting;
    Turns turns;
    Queue<Slice> resend;
    Queue<Slice> uncut_writes;  // sent again when no cuts are left
    std::vector<Cut> cuts;
    std::uint64_t heard_ns = 0;  // while no lane is up
    bool lost = false;
    bool listed = false;              // in due_
    bool waiting_for_credit = false;  // in waiting_for_credit_
  };

  static bool is_up(const TcpPeer& peer) {
    return peer.small.up_count() + peer.bulk.up_count() > 0;
  }
  static Rails& rails_of(TcpPeer& peer, std::uint32_t lane) {
    return lane == 0 ? peer.small : peer.bulk;
  }
  static std::size_t rail_of(std::uint32_t lane) { return lane == 0 ? 0 : lane - 1; }

  Outcome check(const Operation& operation, std::uint64_t now_ns, std::uint64_t* size) const;
  void pump_later(TcpPeer& peer) { due_.add(peer); }
  void pump(TcpPeer& peer, std::uint64_t now_ns);
  void pump_small(TcpPeer& peer, std::uint64_t now_ns);
  void pump_bulk(TcpPeer& peer, std::uint64_t now_ns);
  bool ask_next(TcpPeer& peer, Priority priority, std::uint64_t now_ns);
  void wake_waiting_for_credit();
  bool resend(TcpPeer& peer, std::uint64_t now_ns);
  void ask_cuts(TcpPeer& peer, std::uint64_t now_ns);
  void take_back(TcpPeer& peer, AskingLane& lane);
  // A lane with room for the bytes; for small operations, first the small lane.
  AskingLane* choose(TcpPeer& peer, std::uint64_t bytes, bool small, Priority priority);
  void ask(TcpPeer& peer, AskingLane& lane, OperationState& operation, const Slice& slice,
           std::uint64_t now_ns);
  Slice cut(OperationState& operation, std::uint64_t bytes);

  void end(OperationState& operation, Outcome outcome);
  // Ends the operation now, or as soon as no lane sends from its pieces any more.
  void give_up(OperationState& operation, Outcome outcome);
  void abandon_lanes_of(OperationId operation, PeerId peer, std::uint64_t now_ns);
  void expire(std::uint64_t now_ns);
  void look_after(TcpPeer& peer, std::uint64_t now_ns, bool was_away);
  void lose(TcpPeer& peer);
  void tell(Event::Kind kind, PeerId peer);

  LaneLoop& loop_;
  Dialer& dialer_;
  Counters& counters_;
  Operations operations_;
  PeerTable<TcpPeer> peers_;
  DuePeers<TcpPeer, &TcpPeer::listed> due_;
  Credits credits_;
  DuePeers<TcpPeer, &TcpPeer::waiting_for_credit> waiting_for_credit_;
  std::vector<Event> events_;
  std::uint64_t next_deadline_ns_ = ~std::uint64_t{0};
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t last_look_ns_ = 0;
  std::uint32_t next_serial_ = 1;
};

}  // namespace mc::transport::tcp
