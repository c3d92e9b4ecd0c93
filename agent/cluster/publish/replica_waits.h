// SPDX-License-Identifier: Apache-2.0
//
// Puts that end when several hosts hold the object (MC_VISIBLE_REPLICATED).
//
//     begin ──► a ReplicaWait for each partition: kAsk ──► kAsking: the master waits for the holders ──► done
//                                                   ▲          │ too few after a second, or
//                                                   └──────────┘ no master
//
//   The master is asked again until the client's deadline, so a wait outlives a change of the leader.
// Threads: the agent's loop.
// Owns: no state of its own. The OperationTable owns the waits.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/operations/operation_table.h"
#include "agent/cluster/publish/announcer.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

class ReplicaWaits;

// The keys of one partition that a remote request awaits.
struct ReplicaWait final : Operation {
  static constexpr OperationKind kKind = OperationKind::kReplicas;
  enum class Step : std::uint8_t { kAsk, kAsking };
  struct Awaited {
    std::size_t item = 0;  // of the remote request
    metadata::KeyHash name;
  };

  ReplicaWait(ReplicaWaits& with, std::shared_ptr<RemoteRequest> of, std::uint32_t of_partition)
      : waits(with), remote_request(std::move(of)), partition(of_partition) {}

  ReplicaWaits& waits;
  const std::shared_ptr<RemoteRequest> remote_request;
  const std::uint32_t partition;
  Step at = Step::kAsk;
  std::uint64_t not_before_ns = 0;
  std::vector<Awaited> awaited;
  std::optional<Result<metadata::wire::AwaitReplicasAnswer>> answer;

 private:
  void step() override;
  void cancel() override;
};

class ReplicaWaits {
 public:
  ReplicaWaits(OperationTable& operations, const Masters& masters, Announcer& announcer)
      : operations_(operations), masters_(masters), announcer_(announcer) {}

  // A request of kind kReplicas.
  void begin(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant);

 private:
  friend struct ReplicaWait;
  using Step = ReplicaWait::Step;

  void step(ReplicaWait& wait);
  void ask(ReplicaWait& wait);
  void take_answer(ReplicaWait& wait);
  void end(ReplicaWait& wait, mc_status status);

  OperationTable& operations_;
  const Masters& masters_;
  Announcer& announcer_;
  std::size_t asking_ = 0;  // questions that masters have not answered
};

}  // namespace mc::agent
