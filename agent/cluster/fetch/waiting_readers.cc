// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/waiting_readers.h"

#include <utility>

#include "agent/cluster/stripe/reservation.h"
#include "shm/pins.h"

namespace mc::agent {

bool serve_locally(RemoteRequest& remote_request, RemoteRequest::Item& item,
                   const ClusterTenant& tenant) {
  ObjectStore& store = tenant.store();
  const auto found = store.index().find(item.key, store.index().hash(item.key));
  if (!found) return false;
  if (item.pin != nullptr) {
    item.pin->store_release(
        shm::pin_value(*found, store.index().entry(*found).version.load_relaxed()));
  }
  item.entry = *found;
  item.length = store.index().entry(*found).length.load_relaxed();
  remote_request.settle(item, MC_OK);
  return true;
}

bool WaitingReaders::serve(FetchedObject& object, std::uint32_t kept, FetchCounters& counters) {
  ObjectStore& store = object.tenant->store();
  std::vector<shm::Word64*> pins;
  for (const Waiter& waiter : waiters_) {
    const RemoteRequest::Item& item = waiter.its_item();
    if (!waiter.remote_request->abandoned && item.pin != nullptr) pins.push_back(item.pin);
  }
  std::uint32_t entry = kept;
  if (kept != kNoEntry) {
    const std::uint64_t version = store.index().entry(kept).version.load_relaxed();
    for (shm::Word64* const pin : pins) pin->store_release(shm::pin_value(kept, version));
  } else if (!pins.empty() &&
             store.serve_unpublished(kClusterSession, object.entry, object.from.row.length,
                                     object.from.row.checksum, pins)) {
    entry = std::exchange(object.entry, kNoEntry);
    ++counters.served_unpublished;
  }
  if (entry == kNoEntry) return fail(MC_NOT_FOUND);
  bool ended = false;
  for (const Waiter& waiter : std::exchange(waiters_, {})) {
    waiter.its_item().entry = entry;
    ++counters.delivered;
    ended |= waiter.settle(MC_OK);
  }
  return ended;
}

bool WaitingReaders::fail(mc_status status) {
  bool ended = false;
  for (const Waiter& waiter : std::exchange(waiters_, {})) ended |= waiter.settle(status);
  return ended;
}

bool WaitingReaders::expire(std::uint64_t now_ns, FetchCounters& counters) {
  bool ended = false;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (now_ns < waiter.remote_request->deadline_ns) return false;
    ++counters.late;
    ended |= waiter.settle(MC_NOT_FOUND);
    return true;
  });
  return ended;
}

}  // namespace mc::agent
