// SPDX-License-Identifier: Apache-2.0
//
// Places puts for which this host has no room. The Placer finds a host that takes the
//   object. That host pulls the bytes from the memory of the putting session.
//
//     place ──► kLocating ──► kChoosing ──► kOffering ──► kOffered ──Held──► done
//                   │             │             ▲             │
//                exists:      no host:          └─────────────┘ no room, failed, lost, or late:
//                 done        no space                          the next host that the master named
//
//   The version of the put is made here and is the same for all hosts. A host that answers too late
//   therefore holds the same put, or is refused like that put. If the version is too old (kBehind),
//   the put gets a later version.
//
//   The Striper takes objects that no host takes as a whole, or that are too large for a single
//   piece. The Striper has each stripe placed here as a separate object.
// Threads: the agent's loop.
// Owns: mappings of sessions' memory, and the regions of these mappings.
// Trusts: peers report outcomes truthfully. Peers can read only the bytes of a put under way. The
//   holder compares the checksum, so a client that changes the bytes meanwhile harms its own put.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "agent/server/remote_request.h"
#include "libmc/base/memory_file.h"
#include "transport/transport.h"

namespace mc::agent {

struct PlaceCounters {
  std::uint64_t asked = 0;    // puts
  std::uint64_t offered = 0;  // to hosts
  std::uint64_t placed = 0, placed_bytes = 0;
  std::uint64_t existed = 0, refused = 0, lost = 0, late = 0, nobody = 0, master_away = 0;
};

class Placer final : public transport::RegionGuard {
 public:
  // The cookie bit of this class' notifications.
  static constexpr std::uint64_t kHoldCookie = 1ull << 61;
  static constexpr std::size_t kMaxPlacements = 64;

  Placer(const Masters& masters, Peers& peers, transport::Transport& transport, VersionClock& clock,
         MemberId self, const metadata::Reader& place)
      : masters_(masters),
        peers_(peers),
        transport_(transport),
        clock_(clock),
        self_(self),
        place_(place) {}
  ~Placer() override;

  // The remote request ends with MC_OK, or with MC_NO_SPACE if no host takes the object.
  void place(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
             std::uint64_t now_ns);
  // Places a stripe of the Striper's put. ended gets the node that holds the stripe, if any does.
  using Ended = std::function<void(mc_status, MemberId)>;
  struct Stripe {
    std::shared_ptr<RemoteRequest> remote_request;
    ClusterTenant* tenant = nullptr;
    transport::RegionId region = transport::kNoRegion;
    StripeFacts facts;
    std::uint64_t sum = 0;
    std::vector<MemberId> nodes;  // in the order to ask
    Ended ended;                  // called by tell_of_stripes()
  };
  std::uint64_t place_stripe(Stripe stripe);
  void forget_stripe(std::uint64_t id) { placements_.erase(id); }
  // Calls `ended` of all stripes whose placement has ended.
  void tell_of_stripes();
  // The bytes that the client of a remote request puts. REQUIRES: the request is being placed.
  const std::byte* bytes_of(const RemoteRequest& remote_request) const;
  void on_held(MemberId from, const HoldAnswer& answer);
  // A notification of this class has ended.
  void on_event(const transport::Event& event);
  void on_peer_lost(MemberId node);
  void forget(const ClusterTenant& tenant);
  void forget_session(std::uint64_t session);
  void flush(std::uint64_t now_ns);
  std::uint64_t next_ns() const;
  bool take_ended() { return std::exchange(ended_, false); }
  const PlaceCounters& counters() const { return counters_; }
  // Called for each put that another host now holds.
  std::function<void(const metadata::KeyHash& name)> on_placed;
  // Offers a put to the Striper. must: no host takes the object in one piece. Returns true if the
  // Striper takes the put.
  std::function<bool(const std::shared_ptr<RemoteRequest>&, ClusterTenant&, transport::RegionId,
                     bool must)>
      on_large;

  transport::Outcome pin(const transport::Access& access, std::uint64_t* ticket) override;
  void unpin(std::uint64_t) override {}

 private:
  enum class Step : std::uint8_t { kLocating, kChoosing, kOffering, kOffered };
  struct Placement {
    std::uint64_t id = 0;
    std::shared_ptr<RemoteRequest> remote_request;
    ClusterTenant* tenant = nullptr;
    metadata::KeyHash name;
    transport::RegionId region = transport::kNoRegion;
    std::uint64_t version = 0;
    unsigned versions = 0;  // count of versions made
    std::uint64_t offset = 0, length = 0, sum = 0;
    std::optional<StripeFacts> stripe;
    Ended ended;  // of a stripe
    Step step = Step::kLocating;
    std::vector<MemberId> nodes;  // still to ask; the first is being asked
    std::vector<MemberId> asked;
    bool chosen = false;  // the master names no more nodes
    std::uint64_t try_until_ns = 0;
  };
  struct Memory {  // of a session
    Mapping mapping;
    transport::RegionId region = transport::kNoRegion;
  };

  Placement* find(std::uint64_t id);
  void close_regions();
  Result<transport::RegionId> region_of(const RemoteRequest::Source& source);
  void locate(Placement& placement, std::uint64_t now_ns);
  void choose(Placement& placement, std::uint64_t now_ns);
  void offer(Placement& placement, std::uint64_t now_ns);
  void next_node(Placement& placement, std::uint64_t now_ns);
  void make_version(Placement& placement);
  bool goes_in_stripes(Placement& placement, bool must);
  void end_remote_request(Placement& placement, mc_status status, std::uint64_t& reason);

  const Masters& masters_;
  Peers& peers_;
  transport::Transport& transport_;
  VersionClock& clock_;
  const MemberId self_;
  const metadata::Reader place_;
  PlaceCounters counters_;
  std::map<std::uint64_t, Placement> placements_;
  std::map<std::uint64_t, Memory> memory_;  // by session
  std::vector<Memory> closing_;             // peers may still read there
  struct Told {
    Ended ended;
    mc_status status = MC_OK;
    MemberId node = metadata::kNoNode;
  };
  std::vector<Told> told_;
  std::uint64_t next_id_ = 1;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t now_ns_ = 0;
  bool ended_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
