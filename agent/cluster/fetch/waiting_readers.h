// SPDX-License-Identifier: Apache-2.0
//
// The readers on this host that wait for an object of another host.
// Threads: the agent's loop.
// Owns: references to the readers' requests.
// Trusts: the requests come from the agent's server.
#pragma once

#include <memory>
#include <vector>

#include "agent/cluster/fetch/fetch_counters.h"
#include "agent/cluster/fetch/object_reader.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

// Settles the item if this host has the object. Returns true if so.
bool serve_locally(RemoteRequest& remote_request, RemoteRequest::Item& item,
                   const ClusterTenant& tenant);

class WaitingReaders {
 public:
  void add(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item) {
    waiters_.push_back({remote_request, item});
  }
  bool empty() const { return waiters_.empty(); }

  // The next three return true if a request has ended.

  // Pins the object for all readers. If `kept` is a live entry, the readers get that entry.
  // Otherwise the reservation is served unpublished.
  bool serve(FetchedObject& object, std::uint32_t kept, FetchCounters& counters);
  // Ends all readers without the object.
  bool fail(mc_status status);
  // Ends the readers whose own deadline has passed.
  bool expire(std::uint64_t now_ns, FetchCounters& counters);

 private:
  struct Waiter {
    std::shared_ptr<RemoteRequest> remote_request;
    std::size_t item = 0;

    RemoteRequest::Item& its_item() const { return remote_request->items[item]; }
    bool settle(mc_status status) const {
      remote_request->settle(its_item(), status);
      return remote_request->over();
    }
  };
  std::vector<Waiter> waiters_;
};

}  // namespace mc::agent
