// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/removals.h"

#include <algorithm>
#include <map>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint64_t kRemoveAgainNs = 20 * kMs;

}  // namespace

void Removals::begin(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant) {
  std::map<std::uint32_t, std::vector<Removal::Doomed>> parts;  // by partition
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    if (!remote_request->items[i].open) continue;
    Removal::Doomed what;
    what.item = i;
    what.name = tenant.name_of(remote_request->items[i].key);
    const std::uint32_t entry = tenant.find(what.name);
    if (entry != kNoEntry) {
      what.version = tenant.book().row(entry).version;
      what.generation = tenant.generation_of(entry);
    }
    if (const LocalDisks* const disks = tenant.disks()) {
      what.on_disk = disks->version_of(shared_name_of(what.name)) != 0;
      what.up_to_version = tenant.latest_version();
    }
    fetcher_.locations().forget(what.name);
    parts[masters_.partition_of(what.name)].push_back(what);
  }
  for (auto& [partition, doomed] : parts) {
    auto removal = std::make_unique<Removal>(*this, remote_request, partition);
    removal->doomed = std::move(doomed);
    operations_.begin(std::move(removal), &tenant);
  }
}

void Removal::step() { removals.step(*this); }
void Removal::cancel() { removals.end(*this, MC_TIMEOUT); }

void Removals::step(Removal& removal) {
  const RemoteRequest& remote_request = *removal.remote_request;
  const std::uint64_t now_ns = operations_.now_ns();
  if (remote_request.abandoned) return operations_.end(removal);
  if (removal.at == Step::kAsking) {
    if (removal.reply) take_reply(removal);
    return;  // the master's link answers by the deadline
  }
  if (now_ns >= remote_request.deadline_ns) return end(removal, MC_TIMEOUT);
  if (now_ns >= removal.not_before_ns) return ask(removal);
  operations_.wake_at(removal, std::min(removal.not_before_ns, remote_request.deadline_ns));
}

void Removals::ask(Removal& removal) {
  // Announce earlier puts before the removal.
  announcer_.flush(operations_.now_ns());
  removal.at = Step::kAsking;
  wire::Remove request;
  for (const Removal::Doomed& what : removal.doomed) {
    request.items.push_back({what.name, UINT64_MAX});
  }
  masters_.at(removal.partition)
      .remove(request, removal.remote_request->answer_by_ns,
              [this, id = removal.id()](const Result<wire::RemoveReply>& reply) {
                Removal* const asked = operations_.find<Removal>(id);
                if (asked == nullptr) return;
                asked->reply = reply;
                operations_.wake(*asked);
              });
}

void Removals::take_reply(Removal& removal) {
  const Result<wire::RemoveReply> reply = *std::exchange(removal.reply, std::nullopt);
  if (!reply) return end(removal, reply.error().code());
  if (reply->keys.size() != removal.doomed.size()) return end(removal, MC_INTERNAL);
  std::vector<Removal::Doomed> undecided;
  for (std::size_t i = 0; i < removal.doomed.size(); ++i) {
    if (!decide(removal, removal.doomed[i], reply->keys[i], *reply)) {
      undecided.push_back(removal.doomed[i]);
    }
  }
  removal.doomed = std::move(undecided);
  if (removal.doomed.empty()) return operations_.end(removal);
  removal.at = Step::kAsk;
  removal.not_before_ns = operations_.now_ns() + kRemoveAgainNs;
  operations_.wake_at(removal,
                      std::min(removal.not_before_ns, removal.remote_request->deadline_ns));
}

// False: the master is recovering.
bool Removals::decide(Removal& removal, const Removal::Doomed& what, metadata::Lookup said,
                      const wire::RemoveReply& reply) {
  if (said == metadata::Lookup::kRecovering) return false;
  ClusterTenant& tenant = *removal.tenant();
  // Keep objects that a later put brought since then. No other host would drop this host's copy.
  const std::uint32_t entry = tenant.find(what.name);
  if (entry != kNoEntry && (tenant.generation_of(entry) == what.generation ||
                            tenant.book().row(entry).version <= what.version)) {
    tenant.drop(entry);
  }
  const bool removed = said == metadata::Lookup::kFound || what.generation != 0 || what.on_disk;
  settle(removal, what,
         reply.unconfirmed != 0 ? MC_TIMEOUT
         : removed              ? MC_OK
         : reply.away != 0      ? MC_HOLDER_AWAY
                                : MC_NOT_FOUND);
  return true;
}

// As soon as no restart of this host brings the object back.
void Removals::settle(Removal& removal, const Removal::Doomed& what, mc_status status) {
  const auto end = [this, request = removal.remote_request, item = what.item](mc_status with) {
    operations_.settle(*request, request->items[item], with);
  };
  LocalDisks* const disks = removal.tenant()->disks();
  if (disks == nullptr) return end(status);
  // Later versions are of puts that came since then.
  disks->drop(shared_name_of(what.name), what.up_to_version,
              [end, status](bool durable) { end(durable ? status : MC_DISK_AWAY); });
}

void Removals::end(Removal& removal, mc_status status) {
  for (const Removal::Doomed& what : removal.doomed) {
    operations_.settle(*removal.remote_request, removal.remote_request->items[what.item], status);
  }
  operations_.end(removal);
}

}  // namespace mc::agent
