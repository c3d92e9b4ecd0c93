// SPDX-License-Identifier: Apache-2.0
//
// What it is: the asking side: operations are cut into slices, slices become requests on lanes, and
//   lanes are watched. Notifications go over the link.
//
//     submit ─► small queue ──► lane ┐  by Rails::choose; slices of large operations
//            └► bulk queue ───► lane ┘  take turns
//
//     a peer:  no link ─► link, its domains known ─► dormant ─► first use: lanes are opened
//     a lane:  down ─► looking (reads the peer's beacon) ─► up ─► down …
//
//   A slice that fails puts its region in doubt: the peer is asked whether it is still there. Then
//   it goes out again, at most kMostTries times; a write only when the peer has closed the endpoint
//   that it went to, so that it does not land once more later. A lane that is given up is closed
//   first; after that nothing of a read lands by it.
// Threads: the transport's. Owns peers, lanes, operations.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/fabric/domain_registrar.h"
#include "transport/fabric/lane.h"
#include "transport/flow/due_peers.h"
#include "transport/flow/edges.h"
#include "transport/flow/queue.h"
#include "transport/one_sided/asking_link.h"
#include "transport/one_sided/local_regions.h"
#include "transport/one_sided/remote_regions.h"
#include "transport/rails/rails.h"

namespace mc::transport::fabric {

// Up to here an operation does not wait behind large ones.
inline constexpr std::uint64_t kSmallBytes = 32 * 1024;
inline constexpr std::uint32_t kMostTries = 4;  // of a slice
// Of requests of a lane, one after the other. The first may be about its own key; a second one says
// that the endpoint has broken by it.
inline constexpr std::uint32_t kMostFailures = 2;
// The kernel may take so long to find a neighbour that nobody has spoken to before.
inline constexpr std::uint64_t kFirstWayNs = 2'000'000'000;
// Notifications of a peer that were sent and not answered.
inline constexpr std::size_t kMaxUnanswered = 64;

class Requester {
 public:
  Requester(const FabricOptions& options, const DomainSlots& domains, const LocalRegions& regions,
            Edges& edges, Dialer& dialer, Counters& counters)
      : options_(options),
        domains_(domains),
        regions_(regions),
        edges_(edges),
        dialer_(dialer),
        counters_(counters) {}

  Result<PeerId> connect(const PeerSpec& spec);
  Status attach(Link link, std::uint64_t now_ns);
  void dial_failed(PeerId peer, std::uint64_t now_ns);
  void close_peer(PeerId peer);
  Result<RemoteRegionId> import_region(PeerId peer, std::span<const std::byte> text);

  Result<RemoteRegionId> import_named(PeerId peer, std::uint64_t name);
  bool ready_to_read(RemoteRegionId region, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                     std::uint64_t now_ns);
  void doubt(RemoteRegionId region);
  bool has_way(PeerId id) const {
    const Peer* peer = find(id);
    return peer != nullptr && is_up(*peer);
  }
  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns);
  void cancel(OperationId operation);
  // Takes what lanes have done. True: there was something.
  bool poll_lanes(std::uint64_t now_ns);
  // Lanes that owe something will tell by their descriptors, as far as they have any.
  bool may_sleep();

  // Before a domain of ours is closed; after that, or when one was opened.
  void on_closing(std::size_t slot, std::uint64_t now_ns);
  void on_domains_changed(std::uint64_t now_ns);
  // Our domains that break, and how it was seen; the caller takes them.
  struct Broken {
    std::size_t slot = 0;
    std::string why;
  };
  std::vector<Broken>& broken() { return broken_; }

  void pump_all(std::uint64_t now_ns);
  void tick(std::uint64_t now_ns);
  std::uint64_t next_tick_ns() const;
  std::vector<Event>& events() { return events_; }
  bool has_events() const { return !events_.empty(); }
  // Requests are out.
  bool is_busy() const { return !active_.empty(); }
  void report_rails(std::vector<RailReport>& reports) const;
  // For operators: each rail of a peer with its state and what failed last.
  std::string describe_rails(PeerId peer) const;

 private:
  enum class LaneState : std::uint8_t { kDown, kLooking, kUp };
  // A lane's completion queue has something.
  class LaneEvents : public Watched {
   public:
    LaneEvents(Requester& owner, PeerId peer, std::size_t place)
        : owner_(owner), peer_(peer), place_(place) {}
    void on_edge(std::uint64_t now_ns) override {
      static_cast<void>(owner_.poll_lane(*owner_.find(peer_), place_, now_ns));
    }

   private:
    Requester& owner_;
    const PeerId peer_;
    const std::size_t place_;
  };
  // Where a lane is or will be: a rail.
  struct Place {
    std::uint8_t ours = 0;
    std::uint8_t theirs = 0;
    LaneState state = LaneState::kDown;
    std::unique_ptr<Lane> lane;
    std::unique_ptr<LaneEvents> events;
    std::uint64_t remote_epoch = 0;
    std::uint64_t since_ns = 0;     // of its state; while up: of its last completion
    std::uint64_t measured_ns = 0;  // from here on bytes are counted
    std::uint64_t measured_bytes = 0;
    std::uint32_t failures = 0;  // of requests, without a success since
    bool full = false;           // the provider had no room
    std::string why;             // it is down
  };
  // A write that may still land, until the peer has closed the endpoint that it went to.
  struct HeldWrite {
    std::uint8_t slot = 0;  // of the peer
    std::uint64_t epoch = 0;
    Slice slice;
  };
  struct Peer : public Watched {
    Peer(Requester& of, PeerId number, const PeerSpec& wanted)
        : owner(of), id(number), spec(wanted) {}
    void on_edge(std::uint64_t now_ns) override { owner.work_link(*this, now_ns); }

    Requester& owner;
    const PeerId id;
    const PeerSpec spec;
    AskingLink link{kProtocol, owner.edges_, *this};
    std::map<std::uint8_t, DomainEntry> remote;
    RemoteRegions::Epochs epochs{};
    std::uint64_t version = 1;  // of the epochs
    std::vector<Place> places;
    Rails rails{0};
    bool dormant = true;
    std::uint64_t used_ns = 0;
    std::uint64_t attend_again_ns = 0;
    std::uint32_t open_operations = 0;
    Queue<OperationId> small_waiting;
    Queue<OperationId> bulk_waiting;
    Queue<OperationId> notices_waiting;
    std::set<OperationId> notices_sent;  // and not answered
    Queue<Slice> resend;
    std::vector<HeldWrite> held;
    std::uint64_t usable_ns = 0;  // the last time that there was a way
    bool lost = false;
    bool listed = false;              // in due_
    bool waiting_for_credit = false;  // in waiting_for_credit_
    bool active = false;              // in active_
  };

  Peer* find(PeerId id) const;
  static bool is_up(const Peer& peer) { return peer.rails.up_count() > 0; }

  // Operations.
  Outcome check(const Operation& operation, std::uint64_t now_ns, std::uint64_t* size);
  // It has neither ended nor been given up.
  bool goes_on(OperationId id) {
    const OperationState* operation = operations_.find(id);
    return operation != nullptr && operation->failure == Outcome::kDone;
  }
  void end(OperationState& operation, Outcome outcome);
  void give_up(OperationState& operation, Outcome outcome);
  void expire(std::uint64_t now_ns);
  void abandon_lanes_of(OperationId operation, PeerId peer, std::uint64_t now_ns);
  bool poll_lane(Peer& peer, std::size_t place, std::uint64_t now_ns);
  void on_completion(Peer& peer, std::size_t place, const Completion& completion,
                     std::uint64_t now_ns);
  void on_slice_done(OperationState& operation, const Slice& slice);
  // It failed, or its lane was closed.
  void take_back(Peer& peer, const Place& place, Slice slice);
  void release_held(Peer& peer);

  // From queues to lanes.
  void wake(Peer& peer, std::uint64_t now_ns);
  // Freed credit goes first to those who waited for it.
  void wake_waiting_for_credit() {
    waiting_for_credit_.take([this](PeerId id) { return find(id); },
                             [this](Peer& peer) { pump_later(peer); });
  }
  void try_again(std::uint64_t now_ns);
  void pump_later(Peer& peer) { due_.add(peer); }
  void pump(Peer& peer, std::uint64_t now_ns);
  void pump_notices(Peer& peer);
  bool pump_small(Peer& peer, std::uint64_t now_ns);
  bool resend(Peer& peer, std::uint64_t now_ns);
  void pump_bulk(Peer& peer, std::uint64_t now_ns);
  bool is_ready(Peer& peer, OperationState& operation);
  std::optional<std::size_t> choose(Peer& peer, std::uint64_t bytes);
  // Posts the slice, or as much of it as one request can; returns the bytes. 0: nothing was posted,
  // since the operation was given up, or there is no room now.
  std::uint32_t post(Peer& peer, std::size_t place, OperationState& operation, Slice slice,
                     Cursor* after, std::uint64_t now_ns);

  // Lanes.
  void find_places(Peer& peer, std::uint64_t now_ns);
  void open_lane(Peer& peer, std::size_t place, std::uint64_t now_ns);
  void fail_lane(Peer& peer, std::size_t place, std::string why, std::uint64_t now_ns);
  void fail_lanes(Peer& peer, const std::string& why, std::uint64_t now_ns);
  void activate(Peer& peer);
  void look(Peer& peer, std::size_t place, std::uint64_t now_ns);
  void on_looked(Peer& peer, std::size_t place, bool came, std::uint64_t now_ns);
  // Before a request goes to a provider that works for the peer only while it is called.
  void attend(Peer& peer, const Domain& domain, std::uint64_t now_ns);
  void measure(Peer& peer, Place& place, std::size_t rail, std::uint64_t now_ns);

  // Peers.
  void work_link(Peer& peer, std::uint64_t now_ns);
  bool take(Peer& peer, const Message& message, std::uint64_t now_ns);
  void on_domains(Peer& peer, const std::vector<DomainEntry>& domains, std::uint64_t now_ns);
  void on_notified(Peer& peer, const NotifiedBody& notified);
  void fail_link(Peer& peer, std::uint64_t now_ns);
  // away_ns: for which this side did not look, and nobody is to blame.
  void look_after(Peer& peer, std::uint64_t now_ns, std::uint64_t away_ns);
  void look_after_lanes(Peer& peer, std::uint64_t now_ns, std::uint64_t away_ns);
  void lose(Peer& peer, std::uint64_t now_ns);
  void tell(Event::Kind kind, PeerId peer);

  const FabricOptions& options_;
  const DomainSlots& domains_;
  const LocalRegions& regions_;
  Edges& edges_;
  Dialer& dialer_;
  Counters& counters_;
  Operations operations_;
  RemoteRegions remote_regions_{kDescriptorFormat};
  Credits credits_{kMaxDomains, options_.max_asked_bytes};  // by slot
  std::map<PeerId, std::unique_ptr<Peer>> peers_;
  PeerId next_peer_ = 1;
  DuePeers<Peer, &Peer::listed> due_;
  DuePeers<Peer, &Peer::waiting_for_credit> waiting_for_credit_;  // wait for credit
  std::vector<PeerId> active_;                                    // lanes of theirs owe something
  std::vector<Broken> broken_;
  std::vector<Event> events_;
  std::uint64_t next_deadline_ns_ = ~std::uint64_t{0};
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t last_look_ns_ = 0;
  bool full_ = false;         // a lane has met a provider without room
  std::uint64_t now_ns_ = 0;  // of the last tick
};

}  // namespace mc::transport::fabric
