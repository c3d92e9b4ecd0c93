// SPDX-License-Identifier: Apache-2.0
//
// What it is: the asking side: operations are cut into slices, slices become work requests on
//   lanes (queue pairs), lanes are watched.
//
//     submit ─► small queue ──► small lane of a rail ┐  by Rails::choose; slices of large
//     operations
//            └► bulk queue ───► bulk lanes of rails  ┘  take turns
//
//     a peer:  no link ─► link, its devices known ─► dormant ─► first use: lanes are opened
//     a lane:  down ─► opening (kOpen) ─► getting ready ─► probing (a write of nothing) ─► up ─►
//     down …
//
//   A lane that fails takes its queue pair down first; then nothing lands any more, and its slices
//   go elsewhere: reads at once, writes when the peer has closed its end. An operation that is
//   given up ends when the last of its slices has.
// Threads: the transport's. Owns peers, lanes, operations.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/flow/due_peers.h"
#include "transport/flow/edges.h"
#include "transport/flow/queue.h"
#include "transport/one_sided/asking_link.h"
#include "transport/one_sided/local_regions.h"
#include "transport/one_sided/remote_regions.h"
#include "transport/rails/rails.h"
#include "transport/rdma/device_registrar.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/opener.h"

namespace mc::transport::rdma {

// Up to here an operation goes to a small lane.
inline constexpr std::uint64_t kSmallBytes = 32 * 1024;
// A lane that owes a completion for so long is left, if another one is up.
inline constexpr std::uint64_t kLaneSilentNs = 300'000'000;
// The kernel may take so long to find a neighbour that nobody has spoken to before.
inline constexpr std::uint64_t kFirstWayNs = 2'000'000'000;

class Requester {
 public:
  Requester(const RdmaOptions& options, const DeviceSlots& devices, const LocalRegions& regions,
            Edges& edges, Opener& opener, Dialer& dialer, Counters& counters);

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
  void report_rails(std::vector<RailReport>& reports) const;

  std::size_t submit(std::span<Operation> operations, std::uint64_t now_ns);
  void cancel(OperationId operation);
  void on_completion(const ibv_wc& completion, std::uint64_t now_ns);

  // Devices were opened.
  void on_devices_changed();
  // Before one is closed.
  void on_closing(const Device& device, std::uint64_t now_ns);
  // Its port went down: what is posted there will not come back soon.
  void on_port_down(const Device& device, std::uint64_t now_ns) { on_closing(device, now_ns); }
  void on_port_up() { next_look_ns_ = 0; }

  void pump_all(std::uint64_t now_ns);
  void tick(std::uint64_t now_ns);
  std::uint64_t next_tick_ns() const;
  std::vector<Event>& events() { return events_; }
  bool has_events() const { return !events_.empty(); }
  // For operators: each rail of a peer with its state and what failed last.
  std::string describe_rails(PeerId peer) const;

 private:
  enum class LaneState : std::uint8_t { kDown, kOpening, kReadying, kProbing, kUp };
  // Where a lane is or will be.
  struct Place {
    Path path;
    LaneRole role = LaneRole::kBulk;
    Rails* rails = nullptr;  // of the peer
    std::uint32_t rail = 0;  // there
    LaneState state = LaneState::kDown;
    std::unique_ptr<Lane> lane;
    std::uint32_t serial = 0;
    std::uint32_t packet_number = 0;
    std::uint64_t remote_epoch = 0;
    std::uint64_t since_ns = 0;  // of its state; while up: of its last completion
    bool must_flush = false;
    std::string why;  // it is down
  };
  // A write that waits for the peer to close the end that it may still come to.
  struct HeldWrite {
    std::uint32_t serial = 0;
    Slice slice;
  };
  struct Peer : public Watched {
    Peer(Requester& of, const PeerSpec& wanted) : owner(of), spec(wanted) {}
    void on_edge(std::uint64_t now_ns) override { owner.work_link(*this, now_ns); }

    Requester& owner;
    PeerSpec spec;
    PeerId id = kNoPeer;
    std::uint64_t token = 0;
    AskingLink link{kProtocol, owner.edges_, *this};
    std::array<std::optional<PortAddress>, kMaxDevices> remote;
    RemoteRegions::Epochs epochs{};
    std::uint64_t version = 1;  // of the epochs
    std::vector<Path> paths;
    std::vector<Place> places;  // one small for each path, then the bulk ones
    Rails small{0};
    Rails bulk{0};
    bool dormant = true;
    std::uint64_t used_ns = 0;
    std::uint32_t open_operations = 0;
    Queue<OperationId> small_waiting;
    std::array<Queue<OperationId>, kPriorityCount> bulk_waiting;
    Turns turns;
    Queue<Slice> resend;
    std::vector<HeldWrite> held;
    std::uint64_t usable_ns = 0;  // the last time that there was a way
    bool lost = false;
    bool listed = false;              // in due_
    bool waiting_for_credit = false;  // in waiting_for_credit_
  };
  // Where the next slices of one priority go, and how many bytes, before another place is chosen.
  struct Run {
    std::size_t at = 0;
    std::uint64_t bytes = 0;
    std::uint64_t signal_bytes = 0;  // a request is signalled after so many
    Priority priority = Priority::kForeground;
    bool is_only = false;  // and there is no other place
  };
  // Memory of an operation at both ends, as far as one key holds at each.
  struct Stretch {
    std::uint64_t bytes = 0;
    std::uintptr_t local = 0;
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
    std::uint64_t remote = 0;
  };
  // What of an operation is to be posted now, in slices of about that size.
  struct Part {
    // The slice that begins there. A tail that is not worth one goes with the one before.
    std::uint64_t bytes_from(std::uint64_t from_bytes) const {
      const std::uint64_t left = end_bytes - from_bytes;
      if (left >= slice_bytes + slice_bytes / 4) return slice_bytes;
      return left <= slice_bytes || left <= kMaxSliceBytes ? left : slice_bytes;
    }
    // Where a turn of about so many bytes ends.
    std::uint64_t turn_end(std::uint64_t turn_bytes) const {
      const bool is_last = end_bytes - offset_bytes < turn_bytes + slice_bytes / 4;
      return is_last ? end_bytes : offset_bytes + turn_bytes;
    }

    // Over bytes of the stretch that begins here.
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
  struct LaneOwner {
    Peer* peer = nullptr;
    std::uint32_t place = 0;
    std::uint32_t generation = 0;
  };

  Peer* find(PeerId id) const;
  static bool is_up(const Peer& peer) { return peer.small.up_count() + peer.bulk.up_count() > 0; }

  // Operations.
  Outcome check(const Operation& operation, std::uint64_t now_ns, std::uint64_t* size);
  void end(OperationState& operation, Outcome outcome);
  void give_up(OperationState& operation, Outcome outcome);
  void expire(std::uint64_t now_ns);
  void abandon_lanes_of(OperationId operation, PeerId peer, std::uint64_t now_ns);

  // From queues to lanes.
  void wake(Peer& peer, std::uint64_t now_ns);
  // Freed credit goes first to those who waited for it.
  void wake_waiting_for_credit() {
    waiting_for_credit_.take([this](PeerId id) { return find(id); },
                             [this](Peer& peer) { pump_later(peer); });
  }
  void pump_later(Peer& peer) { due_.add(peer); }
  void pump(Peer& peer, std::uint64_t now_ns);
  bool resend(Peer& peer, std::uint64_t now_ns);
  void pump_small(Peer& peer, std::uint64_t now_ns);
  void pump_bulk(Peer& peer, std::uint64_t now_ns);
  bool take_turn(Peer& peer, Priority priority, std::uint64_t most_bytes, std::uint64_t now_ns);
  bool is_ready(Peer& peer, OperationState& operation);
  // Begins a run with a slice of that size. False: no rail has room.
  bool choose(Peer& peer, std::uint64_t bytes, bool small, const OperationState& operation,
              Run& run);
  // Of the peer's rails, those whose device here is near to what the operation moves.
  std::uint64_t near_rails(const Peer& peer, const OperationState& operation) const;
  Outcome find_stretch(const Path& path, const OperationState& operation, const Part& part,
                       Stretch& stretch);
  static std::uint32_t post_straight(Lane& lane, const Run& run, const OperationState& operation,
                                     Part& part, Stretch& stretch, std::uint64_t limit_bytes,
                                     std::uint64_t now_ns);
  Outcome post_gathered(Lane& lane, const Run& run, const OperationState& operation, Part& part,
                        Stretch& stretch, const Path& path, std::uint64_t now_ns);
  // Posts slices until the part or the run is at its end, or the lane is full. False: the operation
  // has been given up.
  bool post(Peer& peer, Run& run, OperationState& operation, Part& part, std::uint64_t now_ns);
  enum class Posted { kAll, kNoRoom, kGivenUp };
  Posted post_all(Peer& peer, OperationState& operation, Part& part, bool small, Run& run,
                  std::uint64_t now_ns);

  // Lanes.
  void open_lane(Peer& peer, std::size_t place, std::uint64_t now_ns);
  void on_opened(Peer& peer, const OpenedBody& opened, std::uint64_t now_ns);
  void on_ready(std::uint32_t index, std::uint32_t generation, QueuePair pair,
                const Status& status);
  void fail_lane(Peer& peer, std::size_t place, std::string why, std::uint64_t now_ns,
                 const ibv_wc* error = nullptr);
  // The idle lanes of a path on which one has failed have to prove themselves.
  void suspect(Peer& peer, const Path& path, std::uint64_t now_ns);
  void take_back(Peer& peer, const Place& place, const Slice& slice);
  // So many slices of an operation, of so many bytes together, have ended.
  void on_slices(OperationId id, std::uint32_t count, std::uint64_t bytes, Outcome outcome);
  // Lanes for the paths that there are now; those that were are closed.
  void rebuild(Peer& peer, std::vector<Path> paths, std::uint64_t now_ns);

  // Peers.
  void work_link(Peer& peer, std::uint64_t now_ns);
  bool take(Peer& peer, const Message& message, std::uint64_t now_ns);
  void on_devices(Peer& peer, const std::vector<DeviceEntry>& devices, std::uint64_t now_ns);
  void find_paths(Peer& peer, std::uint64_t now_ns);
  void release_held(Peer& peer, std::optional<std::uint32_t> serial);
  void fail_link(Peer& peer, std::uint64_t now_ns);
  void look_after(Peer& peer, std::uint64_t now_ns, bool was_away);
  void look_after_lanes(Peer& peer, std::uint64_t now_ns, bool was_away);
  void lose(Peer& peer);
  void tell(Event::Kind kind, PeerId peer);

  const RdmaOptions& options_;
  const DeviceSlots& devices_;
  const LocalRegions& regions_;
  Edges& edges_;
  Opener& opener_;
  Dialer& dialer_;
  Counters& counters_;
  Operations operations_;
  RemoteRegions remote_regions_{kDescriptorFormat};
  std::array<std::optional<PortAddress>, kMaxDevices> own_addresses_;
  std::vector<std::string> own_names_;                      // by slot
  Credits credits_{kMaxDevices, options_.max_asked_bytes};  // of large operations, by slot
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::uint32_t> peer_generations_;
  std::vector<LaneOwner> lanes_;
  std::vector<std::uint32_t> free_lanes_;
  DuePeers<Peer, &Peer::listed> due_;
  DuePeers<Peer, &Peer::waiting_for_credit> waiting_for_credit_;  // wait for credit
  std::vector<Event> events_;
  std::uint64_t next_deadline_ns_ = ~std::uint64_t{0};
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t last_look_ns_ = 0;
  std::uint64_t now_ns_ = 0;  // of the last tick
  std::uint32_t next_serial_ = 1;
};

}  // namespace mc::transport::rdma
