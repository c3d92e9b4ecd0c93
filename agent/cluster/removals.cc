// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/removals.h"

#include <algorithm>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint64_t kRemoveAgainNs = 20 * kMs;

}  // namespace

void Removals::remove(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
                      std::optional<std::uint32_t> partition) {
  std::vector<metadata::KeyHash> names;
  std::vector<Doomed> doomed;
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    if (!remote_request->items[i].open) continue;
    const metadata::KeyHash name = tenant.name_of(remote_request->items[i].key);
    if (partition && masters_.partition_of(name) != *partition) continue;
    fetcher_.locations().forget(name);
    names.push_back(name);
    const std::uint32_t entry = tenant.find(name);
    const bool here = entry != kNoEntry;
    doomed.push_back(
        {i, here ? tenant.book().row(entry).version : 0, here ? tenant.generation_of(entry) : 0});
  }
  // Announce earlier puts before the removal.
  announcer_.flush(operations_.now_ns());
  for (const Masters::Part& part : masters_.split(names)) {
    wire::Remove request;
    std::vector<Doomed> asked;
    for (const std::size_t place : part.places) {
      request.items.push_back({names[place], UINT64_MAX});
      asked.push_back(doomed[place]);
    }
    ask(part.partition, remote_request, std::move(asked), request);
  }
}

void Removals::ask(std::uint32_t partition, const std::shared_ptr<RemoteRequest>& remote_request,
                   std::vector<Doomed> doomed, const wire::Remove& request) {
  masters_.at(partition).remove(
      request, remote_request->deadline_ns,
      [this, partition, remote_request,
       doomed = std::move(doomed)](const Result<wire::RemoveReply>& reply) {
        end(*remote_request, doomed, reply);
        const bool undecided = std::ranges::any_of(
            doomed, [&](const Doomed& one) { return remote_request->items[one.item].open; });
        if (undecided) {
          undecided_.push_back({remote_request, partition, operations_.now_ns() + kRemoveAgainNs});
        }
      });
}

void Removals::end(RemoteRequest& remote_request, const std::vector<Doomed>& doomed,
                   const Result<wire::RemoveReply>& reply) {
  ClusterTenant* const owner = find_tenant(tenants_, *remote_request.tenant);
  for (std::size_t i = 0; i < doomed.size(); ++i) {
    const Doomed& what = doomed[i];
    RemoteRequest::Item& item = remote_request.items[what.item];
    if (!item.open) continue;
    if (!reply || i >= reply->keys.size()) {
      operations_.settle(remote_request, item, reply ? MC_INTERNAL : reply.error().code());
      continue;
    }
    if (reply->keys[i] == metadata::Lookup::kRecovering) continue;
    const bool removed = reply->keys[i] == metadata::Lookup::kFound || what.generation != 0;
    // Keep objects that a later put brought since then. No other host would drop this host's copy.
    const std::uint32_t entry = owner == nullptr ? kNoEntry : owner->find(owner->name_of(item.key));
    if (entry != kNoEntry && (owner->generation_of(entry) == what.generation ||
                              owner->book().row(entry).version <= what.version)) {
      owner->drop(entry);
    }
    const bool unsure = reply->unconfirmed != 0;
    operations_.settle(remote_request, item, unsure ? MC_TIMEOUT : removed ? MC_OK : MC_NOT_FOUND);
  }
}

void Removals::poll() {
  const std::uint64_t now_ns = operations_.now_ns();
  while (!undecided_.empty() && now_ns >= undecided_.front().due_ns) {
    const std::shared_ptr<RemoteRequest> remote_request =
        std::move(undecided_.front().remote_request);
    const std::uint32_t partition = undecided_.front().partition;
    undecided_.pop_front();
    ClusterTenant* const tenant = find_tenant(tenants_, *remote_request->tenant);
    if (remote_request->abandoned || remote_request->over()) continue;
    if (tenant != nullptr && now_ns < remote_request->deadline_ns) {
      remove(remote_request, *tenant, partition);
      continue;
    }
    for (RemoteRequest::Item& item : remote_request->items)
      operations_.settle(*remote_request, item, MC_TIMEOUT);
  }
}

}  // namespace mc::agent
