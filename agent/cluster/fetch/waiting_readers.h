// SPDX-License-Identifier: Apache-2.0
//
// The readers on this host that wait for an object of another host.
// Threads: the agent's loop.
// Owns: references to the readers' requests.
// Trusts: the requests come from the agent's server.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "agent/cluster/fetch/fetch_counters.h"
#include "agent/cluster/fetch/object_reader.h"
#include "agent/server/remote_request.h"

namespace mc::agent {

// Settles the item if this host has the object. Returns true if so.
bool serve_locally(OperationTable& operations, RemoteRequest& remote_request,
                   RemoteRequest::Item& item, const ClusterTenant& tenant);

class WaitingReaders {
 public:
  void add(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item) {
    waiters_.push_back({remote_request, item});
  }
  bool empty() const { return waiters_.empty(); }

  // When the first reader's own deadline passes; UINT64_MAX: there are no readers.
  std::uint64_t next_deadline_ns() const;

  // Pins the object for all readers, and serves the reservation unpublished.
  void serve(OperationTable& operations, FetchedObject& object, FetchCounters& counters);
  // Serves the readers with the object of this host, if the host has the object.
  void serve_own(OperationTable& operations, const ClusterTenant& tenant);
  // Takes out the readers whose objects were not looked for on this host's disks.
  std::vector<std::pair<std::shared_ptr<RemoteRequest>, std::size_t>> take_untried();
  // Ends all readers without the object.
  void fail(OperationTable& operations, mc_status status);
  // Ends the readers whose own deadline has passed.
  void expire(OperationTable& operations, FetchCounters& counters);

 private:
  struct Waiter {
    std::shared_ptr<RemoteRequest> remote_request;
    std::size_t item = 0;

    RemoteRequest::Item& its_item() const { return remote_request->items[item]; }
    void settle(OperationTable& operations, mc_status status) const {
      operations.settle(*remote_request, its_item(), status);
    }
  };
  std::vector<Waiter> waiters_;
};

}  // namespace mc::agent
