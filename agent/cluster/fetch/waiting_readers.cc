// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/waiting_readers.h"

#include <algorithm>
#include <utility>

#include "agent/cluster/fetch/reservation.h"
#include "shm/pins.h"

namespace mc::agent {

bool serve_locally(OperationTable& operations, RemoteRequest& remote_request,
                   RemoteRequest::Item& item, const ClusterTenant& tenant) {
  ObjectStore& store = tenant.store();
  const auto found = store.index().find(item.key, store.index().hash(item.key));
  if (!found) return false;
  if (item.pin != nullptr) {
    item.pin->store_release(
        shm::pin_value(*found, store.index().entry(*found).version.load_relaxed()));
  }
  item.entry = *found;
  item.length = store.index().entry(*found).length.load_relaxed();
  operations.settle(remote_request, item, MC_OK);
  return true;
}

std::uint64_t WaitingReaders::next_deadline_ns() const {
  std::uint64_t next_ns = UINT64_MAX;
  for (const Waiter& waiter : waiters_) {
    next_ns = std::min(next_ns, waiter.remote_request->deadline_ns);
  }
  return next_ns;
}

void WaitingReaders::serve(OperationTable& operations, FetchedObject& object,
                           FetchCounters& counters) {
  std::vector<shm::Word64*> pins;
  for (const Waiter& waiter : waiters_) {
    const RemoteRequest::Item& item = waiter.its_item();
    if (!waiter.remote_request->abandoned && item.pin != nullptr) pins.push_back(item.pin);
  }
  if (pins.empty() ||
      !object.tenant->store().serve_unpublished(
          kClusterSession, object.entry, object.from.row.length, object.from.row.checksum, pins)) {
    return fail(operations, MC_NOT_FOUND);
  }
  ++counters.served_unpublished;
  const std::uint32_t entry = std::exchange(object.entry, kNoEntry);
  for (const Waiter& waiter : std::exchange(waiters_, {})) {
    waiter.its_item().entry = entry;
    ++counters.delivered;
    waiter.settle(operations, MC_OK);
  }
}

void WaitingReaders::serve_own(OperationTable& operations, const ClusterTenant& tenant) {
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    return !waiter.remote_request->abandoned &&
           serve_locally(operations, *waiter.remote_request, waiter.its_item(), tenant);
  });
}

std::vector<std::pair<std::shared_ptr<RemoteRequest>, std::size_t>> WaitingReaders::take_untried() {
  std::vector<std::pair<std::shared_ptr<RemoteRequest>, std::size_t>> untried;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    const bool is_untried = waiter.its_item().otherwise == MC_NOT_FOUND;
    if (is_untried) untried.emplace_back(waiter.remote_request, waiter.item);
    return is_untried;
  });
  return untried;
}

void WaitingReaders::fail(OperationTable& operations, mc_status status) {
  for (const Waiter& waiter : std::exchange(waiters_, {})) {
    waiter.settle(operations, status == MC_NOT_FOUND ? waiter.its_item().otherwise : status);
  }
}

void WaitingReaders::expire(OperationTable& operations, FetchCounters& counters) {
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (operations.now_ns() < waiter.remote_request->deadline_ns) return false;
    ++counters.late;
    waiter.settle(operations, MC_TIMEOUT);
    return true;
  });
}

}  // namespace mc::agent
