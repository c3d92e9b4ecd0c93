// SPDX-License-Identifier: Apache-2.0
//
// What it is: puts for which this host has no room: another one is found that takes the object, and
//   pulls its bytes from the memory of the session that puts it.
//
//     begin ──► kLocating ──► kChoosing ──► kOffered ──Held──► done
//               exists: done     │  nobody     │ no room, failed, lost, its share of the time used
//               up
//                                ▼             └──► the next of those that the master named
//                            no space
//
//   The put's version is made here and is the same at every host that is asked, so that one which
//   answers too late holds the same put, or is refused like it. One whose version came too late
//   (kBehind) gets a later one.
//
//   What no host takes as a whole, or is larger than objects shall be in one piece, is the
//   Striper's; it has its stripes placed here, each as an object of its own.
// Threads: the agent's loop. Owns: mappings of sessions' memory, and their regions.
// Trusts: what it is told of outcomes, as any peer. Peers read from a session's memory only what is
//   being placed, while it is; the checksum is compared there, so that a client which changes the
//   bytes meanwhile harms its own put.
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
  // Of Operation::cookie: notifications of this class.
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

  // The remote request ends with MC_OK, or MC_NO_SPACE where no host takes the object.
  void place(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
             std::uint64_t now_ns);
  // One stripe, of a put that the Striper cares for: one of these nodes holds it in the end, which
  // ended names, or none does.
  using Ended = std::function<void(mc_status, MemberId)>;
  struct Stripe {
    std::shared_ptr<RemoteRequest> remote_request;
    ClusterTenant* tenant = nullptr;
    transport::RegionId region = transport::kNoRegion;
    StripeFacts facts;
    std::uint64_t sum = 0;
    std::vector<MemberId> nodes;  // to be asked in this order
    Ended ended;                  // from tell_of_stripes()
  };
  std::uint64_t place_stripe(Stripe stripe);
  void forget_stripe(std::uint64_t id) { placements_.erase(id); }
  // Calls ended of stripes whose placement is over.
  void tell_of_stripes();
  // The bytes that an remote request's client puts. REQUIRES: it is being placed.
  const std::byte* bytes_of(const RemoteRequest& remote_request) const;
  void on_held(MemberId from, const PeerMessage& message);
  // A notification of this class has ended.
  void on_event(const transport::Event& event);
  void on_peer_lost(MemberId node);
  void forget(const ClusterTenant& tenant);
  void forget_session(std::uint64_t session);
  void flush(std::uint64_t now_ns);
  std::uint64_t next_ns() const;
  bool take_ended() { return std::exchange(ended_, false); }
  const PlaceCounters& counters() const { return counters_; }
  // Hears of puts that another host holds now.
  std::function<void(const metadata::KeyHash& name)> on_placed;
  // Asked for puts that could go in stripes. must: it has no other way. True: it is taken care of.
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
    unsigned versions = 0;                          // made
    std::uint64_t offset = 0, length = 0, sum = 0;  // of the bytes to be held
    std::optional<StripeFacts> stripe;
    Ended ended;  // of a stripe, instead of the remote request
    Step step = Step::kLocating;
    std::vector<MemberId> nodes;  // still to be asked, the first one now
    std::vector<MemberId> asked;
    bool chosen = false;  // the master has named all it will
    std::uint64_t try_until_ns = 0;
  };
  struct Memory {  // of a session
    Mapping mapping;
    transport::RegionId region = transport::kNoRegion;
  };

  Placement* find(std::uint64_t id);
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
  std::vector<Memory> closing_;             // peers still read
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
