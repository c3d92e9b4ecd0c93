// SPDX-License-Identifier: Apache-2.0
//
// Finds a host that holds an object, or a stripe of an object, that a client of this host puts. The
//   chosen host pulls the bytes from the memory of the putting session.
//
//     begin ──► kOffering ──► kOffered ──Held──► end: the owner takes the Placement
//                 ▲  │            │ no room, failed, lost, or late: the next host
//                 │  └ no host left ──► kChoosing: the master names hosts ─┐
//                 └────────────────────────────────────────────────────────┘
//
//   The owner has made the version, which is the same for all hosts. A host that answers too late
//   therefore holds the same put, or is refused like that put. If the version of an object is too
//   old (kBehind), the object gets a later version.
// Threads: the agent's loop.
// Owns: the names of placements under way. The OperationTable owns the placements.
// Trusts: peers report outcomes truthfully. Peers can read only the bytes of a put under way. The
//   holder compares the checksum, so a client that changes the bytes meanwhile harms its own put.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/operations/operation_table.h"
#include "agent/cluster/peer/peers.h"
#include "agent/cluster/peer/stripe.h"

namespace mc::agent {

struct PlaceCounters {
  std::uint64_t asked = 0;    // puts
  std::uint64_t offered = 0;  // to hosts
  std::uint64_t placed = 0, placed_bytes = 0;
  std::uint64_t existed = 0, refused = 0, lost = 0, late = 0, nobody = 0, master_away = 0;
};

class Placer;

struct Placement final : Operation {
  static constexpr OperationKind kKind = OperationKind::kPlace;
  enum class Step : std::uint8_t { kChoosing, kOffering, kOffered };
  enum class End : std::uint8_t { kPlaced, kNobody, kRefused, kLate, kMasterAway };
  // What is placed.
  struct Put {
    std::shared_ptr<RemoteRequest> remote_request;
    metadata::KeyHash name;
    transport::RegionId region = transport::kNoRegion;
    std::uint64_t version = 0;
    std::uint64_t offset = 0, length = 0, sum = 0;  // in the region
    std::optional<StripeFacts> stripe;
  };

  Placement(Placer& with, Put of) : placer(with), put(std::move(of)) {}

  // The result.
  End result = End::kNobody;
  MemberId holder = metadata::kNoNode;

  Placer& placer;
  Put put;
  Step at = Step::kOffering;
  unsigned versions = 1;        // count of versions made
  std::vector<MemberId> nodes;  // still to ask; the first is being asked
  std::vector<MemberId> asked;
  bool chosen = false;  // the master names no more nodes
  std::uint64_t try_until_ns = 0;
  // Stored by others, for the next step.
  std::optional<HoldAnswer> held;
  bool unreached = false;
  bool answered = false;                             // by the master
  std::optional<std::vector<MemberId>> from_master;  // none: no master could be asked

 private:
  void step() override;
  void on_event(const transport::Event& event) override;
  void cancel() override;
};

class Placer final : public transport::RegionGuard {
 public:
  Placer(OperationTable& operations, const Masters& masters, Peers& peers,
         transport::Transport& transport, VersionClock& clock, MemberId self,
         const metadata::Reader& place)
      : operations_(operations),
        masters_(masters),
        peers_(peers),
        transport_(transport),
        clock_(clock),
        self_(self),
        place_(place) {}

  // nodes: hosts to ask first, in order. chosen: the master is not asked for more hosts.
  OperationId begin(Placement::Put put, ClusterTenant& tenant, std::vector<MemberId> nodes,
                    bool chosen, OperationId parent);
  void on_held(MemberId from, const HoldAnswer& answer);
  void on_peer_lost(MemberId node);
  PlaceCounters& counters() { return counters_; }

  transport::Outcome pin(const transport::Access& access, std::uint64_t* ticket) override;
  void unpin(std::uint64_t) override {}

 private:
  friend struct Placement;
  using Step = Placement::Step;

  void step(Placement& placement);
  void go_on(Placement& placement);
  void choose(Placement& placement);
  void take_nodes(Placement& placement);
  void offer(Placement& placement);
  void take_answer(Placement& placement);
  void next_node(Placement& placement);
  void end(Placement& placement, Placement::End result);

  OperationTable& operations_;
  const Masters& masters_;
  Peers& peers_;
  transport::Transport& transport_;
  VersionClock& clock_;
  const MemberId self_;
  const metadata::Reader place_;
  PlaceCounters counters_;
  std::set<OperationId> placements_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mc::agent
