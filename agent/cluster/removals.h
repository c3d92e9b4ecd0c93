// SPDX-License-Identifier: Apache-2.0
//
// Removals by key that clients of this host ask for.
//
//     begin ──► a Removal for each partition: kAsk ──► kAsking ──► the copy here ──► done
//                                               ▲ kRecovering: the master │
//                                               │ cannot decide yet       │
//                                               └─────── 20 ms later ─────┘
//
//   The master tells every holder, this host included. Objects that only this host knows are
//   removed at once. A recovering master is asked again: otherwise a later put could yield to the
//   removed object.
// Threads: The agent's loop.
// Owns: no state of its own. The OperationTable owns the removals.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/cluster/fetch/fetcher.h"
#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/publish/announcer.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

class Removals;

// The keys of one partition that a remote request removes.
struct Removal final : Operation {
  static constexpr OperationKind kKind = OperationKind::kRemove;
  enum class Step : std::uint8_t { kAsk, kAsking };
  struct Doomed {  // an item of the remote request
    std::size_t item = 0;
    metadata::KeyHash name;
    std::uint64_t version = 0;        // of the object on this host, or 0
    std::uint64_t generation = 0;     // of the object's index entry, or 0
    bool on_disk = false;             // a disk of this host has the object
    std::uint64_t up_to_version = 0;  // of objects on disks
  };

  Removal(Removals& with, std::shared_ptr<RemoteRequest> of, std::uint32_t partition_of_keys)
      : removals(with), remote_request(std::move(of)), partition(partition_of_keys) {}

  Removals& removals;
  const std::shared_ptr<RemoteRequest> remote_request;
  const std::uint32_t partition;
  Step at = Step::kAsk;
  std::uint64_t not_before_ns = 0;
  std::vector<Doomed> doomed;  // keys that are not decided yet
  std::optional<Result<metadata::wire::RemoveReply>> reply;

 private:
  void step() override;
  void cancel() override;
};

class Removals {
 public:
  Removals(OperationTable& operations, const Masters& masters, Announcer& announcer,
           Fetcher& fetcher)
      : operations_(operations), masters_(masters), announcer_(announcer), fetcher_(fetcher) {}

  void begin(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant);

 private:
  friend struct Removal;
  using Step = Removal::Step;

  void step(Removal& removal);
  void ask(Removal& removal);
  void take_reply(Removal& removal);
  bool decide(Removal& removal, const Removal::Doomed& what, metadata::Lookup said,
              const metadata::wire::RemoveReply& reply);
  void end(Removal& removal, mc_status status);
  void settle(Removal& removal, const Removal::Doomed& what, mc_status status);

  OperationTable& operations_;
  const Masters& masters_;
  Announcer& announcer_;
  Fetcher& fetcher_;
};

}  // namespace mc::agent
