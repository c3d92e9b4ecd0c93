// SPDX-License-Identifier: Apache-2.0
//
// Puts for which this host has no room, or for which the client names another host. Another host
//   holds the object as a whole, or several hosts hold the object in stripes.
//
//     begin ──► kLocate ──► kLocating ──► kPlacing: a Placement ──► done
//                              │ exists: done     │ no host takes the object
//                              └─ too large ──────┴──► a Striping, which has the put from then on
//
//   A put for a named host is offered to that host alone, and never goes in stripes.
//   An object that exists stays as it is, unless the put is an upsert. An upsert is first offered to
//   the object's holders.
// Threads: the agent's loop.
// Owns: the memory of sessions that put; the names of puts under way.
// Trusts: the Server has checked the put.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "agent/cluster/fetch/fetcher.h"
#include "agent/cluster/place/placer.h"
#include "agent/cluster/place/session_memory.h"
#include "agent/cluster/place/striper.h"

namespace mc::agent {

class PutsElsewhere;

struct PutElsewhere final : Operation {
  static constexpr OperationKind kKind = OperationKind::kPut;
  enum class Step : std::uint8_t { kLocate, kLocating, kPlacing };

  PutElsewhere(PutsElsewhere& with, std::shared_ptr<RemoteRequest> of)
      : puts(with), remote_request(std::move(of)) {}

  PutsElsewhere& puts;
  const std::shared_ptr<RemoteRequest> remote_request;
  metadata::KeyHash name;
  transport::RegionId region = transport::kNoRegion;
  Step at = Step::kLocate;
  OperationId placement;
  bool answered = false;  // by the master
  std::optional<FoundObject> found;

 private:
  void step() override;
  void cancel() override;
};

class PutsElsewhere {
 public:
  static constexpr std::size_t kMaxPuts = 64;

  PutsElsewhere(OperationTable& operations, const Masters& masters, Peers& peers,
                transport::Transport& transport, VersionClock& clock, Fetcher& fetcher,
                MemberId self, const metadata::Reader& place, const StripeRules& rules);

  // The remote request ends with MC_OK, or with MC_NO_SPACE if no host takes the object.
  void begin(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant);
  void forget_session(std::uint64_t session);
  // Closes the memory of ended sessions.
  void poll() { memory_.poll(); }
  // When poll() must be called even if nothing happens; UINT64_MAX: never.
  std::uint64_t next_ns() const;

  Placer& placer() { return placer_; }
  Striper& striper() { return striper_; }

 private:
  friend struct PutElsewhere;
  using Step = PutElsewhere::Step;

  void step(PutElsewhere& put);
  void locate(PutElsewhere& put);
  void take_found(PutElsewhere& put);
  void place(PutElsewhere& put, std::vector<MemberId> nodes, bool chosen);
  void take_placement(PutElsewhere& put);
  bool goes_in_stripes(PutElsewhere& put, bool must);
  void settle(PutElsewhere& put, mc_status status, std::uint64_t& reason);
  void end(PutElsewhere& put);

  OperationTable& operations_;
  const Masters& masters_;
  Peers& peers_;
  VersionClock& clock_;
  Fetcher& fetcher_;
  const metadata::Reader place_;
  Placer placer_;
  SessionMemory memory_;  // before the Striper, which reads there
  Striper striper_;
  std::set<OperationId> puts_;
};

}  // namespace mc::agent
