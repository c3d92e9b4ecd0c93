// SPDX-License-Identifier: Apache-2.0
//
// Removals by key that clients of this host ask for.
//
//     begin ──► each partition's master removes the keys at every holder ──► the copy here ──► done
//                  ▲ kRecovering: the master cannot decide yet │
//                  └──────────── 20 ms later ─────────────────┘
//
//   The master tells every holder, this host included. Objects that only this host knows are
//   removed at once. A recovering master is asked again: otherwise a later put could yield to the
//   removed object.
// Threads: The agent's loop.
// Owns: The removals that wait for a recovering master.
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

class Removals {
 public:
  Removals(OperationTable& operations, const ClusterTenants& tenants, const Masters& masters,
           Announcer& announcer, Fetcher& fetcher)
      : operations_(operations),
        tenants_(tenants),
        masters_(masters),
        announcer_(announcer),
        fetcher_(fetcher) {}

  void begin(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant) {
    remove(remote_request, tenant, std::nullopt);
  }
  // Asks recovering masters again.
  void poll();
  std::uint64_t next_ns() const {
    return undecided_.empty() ? UINT64_MAX : undecided_.front().due_ns;
  }

 private:
  struct Doomed {  // an item of a remote request
    std::size_t item = 0;
    std::uint64_t version = 0;     // of the object on this host, or 0
    std::uint64_t generation = 0;  // of the object's index entry, or 0
  };
  struct Undecided {
    std::shared_ptr<RemoteRequest> remote_request;
    std::uint32_t partition = 0;
    std::uint64_t due_ns = 0;
  };
  // partition: removes only keys of this partition.
  void remove(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
              std::optional<std::uint32_t> partition);
  void ask(std::uint32_t partition, const std::shared_ptr<RemoteRequest>& remote_request,
           std::vector<Doomed> doomed, const metadata::wire::Remove& request);
  void end(RemoteRequest& remote_request, const std::vector<Doomed>& doomed,
           const Result<metadata::wire::RemoveReply>& reply);

  OperationTable& operations_;
  const ClusterTenants& tenants_;
  const Masters& masters_;
  Announcer& announcer_;
  Fetcher& fetcher_;
  std::deque<Undecided> undecided_;
};

}  // namespace mc::agent
