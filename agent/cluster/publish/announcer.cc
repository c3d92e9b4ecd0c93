// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/publish/announcer.h"

#include <algorithm>

#include "libmc/base/clock.h"

namespace mc::agent {

using metadata::PublishItem;
using metadata::Verdict;

namespace {

constexpr std::size_t kBatch = 1024;
constexpr std::size_t kMaxInFlight = 64;
constexpr std::size_t kMaxLater = 65536;
constexpr std::uint64_t kPublishNs = 5'000'000'000;
constexpr std::uint64_t kLaterNs = 1'000'000'000;
constexpr unsigned kMaxRetries = 6;
// Of kLaterNs each. The sealing of stripes takes no longer (striper.cc, kSealNs).
constexpr unsigned kMostWaits = 3;
constexpr std::uint32_t kReportScan = 65536;
constexpr unsigned kMostDiskSteps = 64;  // of a walk over the disks, at once

}  // namespace

bool Announcer::known(const ClusterTenant* tenant) const {
  return std::ranges::any_of(tenants_, [&](const auto& one) { return one.get() == tenant; });
}

// The entry of that very version in the pool, or kNoEntry.
std::uint32_t Announcer::entry_of(const Sent& sent) const {
  if (!known(sent.tenant)) return kNoEntry;
  const PublishItem& item = sent.change.item;
  ObjectIndex& index = sent.tenant->store().index();
  const auto has = [&](std::uint32_t entry) {
    return entry < index.entry_count() &&
           shm::state_of(index.entry(entry).version.load_relaxed()) == shm::EntryState::kLive &&
           sent.tenant->book().row(entry).version == item.version;
  };
  if (has(sent.change.entry)) return sent.change.entry;
  // The object may have left for a disk, and come back.
  if (sent.tenant->disks() == nullptr || item.attributes.striped) return kNoEntry;
  const std::uint32_t entry = sent.tenant->find(item.hash);
  return has(entry) ? entry : kNoEntry;
}

bool Announcer::on_disk(const PublishItem& item) const {
  const LocalDisks* const disks = disks_of(tenants_);
  return disks != nullptr && !item.attributes.striped &&
         disks->version_of(shared_name_of(item.hash)) == item.version;
}

void Announcer::drop(const Sent& sent) {
  const PublishItem& item = sent.change.item;
  if (const std::uint32_t entry = entry_of(sent); entry != kNoEntry) {
    sent.tenant->drop(entry);
  } else if (on_disk(item)) {
    disks_of(tenants_)->drop(shared_name_of(item.hash), item.version, {});
  }
}

// A master has accepted the object.
void Announcer::told(const Sent& sent) {
  const PublishItem& item = sent.change.item;
  const std::uint32_t entry = entry_of(sent);
  if (entry == kNoEntry) {
    if (on_disk(item)) disks_of(tenants_)->announced(shared_name_of(item.hash), item.version);
  } else if (sent.tenant->unannounced(entry)) {
    sent.tenant->told(entry);
    sent.tenant->stripes().replaced(item.hash, item.version);
  }
}

// The object may have moved between pool and disk meanwhile.
void Announcer::queue_again(MasterStream& stream, Sent sent) const {
  const bool pooled = entry_of(sent) != kNoEntry;
  if (!pooled && !on_disk(sent.change.item)) return;
  sent.change.item.on_disk = !pooled;
  stream.queue.push_back(sent);
}

void Announcer::begin_streams() {
  for (const auto& stream : streams_) settle_all(*stream);
  streams_.clear();
  for (std::uint32_t partition = 0; partition < masters_.count(); ++partition) {
    streams_.push_back(std::make_shared<MasterStream>());
    streams_.back()->partition = partition;
  }
}

// ---- Puts that wait -----------------------------------------------------------------------------

void Announcer::await(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant) {
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    RemoteRequest::Item& item = remote_request->items[i];
    const std::uint64_t version = tenant.book().row(item.entry).version;
    // The object was evicted already, or has no row. No verdict will come.
    MasterStream* const stream = version == 0 ? nullptr
                                 : streams_.size() == 1
                                     ? streams_.front().get()
                                     : &stream_of(tenant.item_of(item.entry).hash);
    if (stream == nullptr || !port_of(*stream).ready()) {
      ++counters_.unannounced_puts;
      operations_.settle(*remote_request, item, MC_OK);
      continue;
    }
    stream->waiters[version] = {remote_request, i};
  }
}

void Announcer::settle(MasterStream& stream, std::uint64_t version, mc_status status) {
  const auto at = stream.waiters.find(version);
  if (at == stream.waiters.end()) return;
  RemoteRequest& remote_request = *at->second.remote_request;
  operations_.settle(remote_request, remote_request.items[at->second.item], status);
  stream.waiters.erase(at);
}

void Announcer::settle_all(MasterStream& stream) {
  counters_.unannounced_puts += stream.waiters.size();
  for (auto& [version, waiter] : stream.waiters) {
    operations_.settle(*waiter.remote_request, waiter.remote_request->items[waiter.item], MC_OK);
  }
  stream.waiters.clear();
}

// ---- Changes ------------------------------------------------------------------------------------

void Announcer::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  for (const auto& stream : streams_) look(*stream);
  sort_changes();
  for (const auto& stream : streams_) flush(*stream);
}

void Announcer::look(MasterStream& stream) {
  const bool ready = port_of(stream).ready();
  if (stream.was_ready && !ready) stream.reporting = false;
  stream.acknowledges = !stream.was_ready || !ready;
  stream.was_ready = ready;
  if (!ready || stream.reported.empty()) return;
  // Refused puts have another version by now, or are gone.
  for (const Sent& sent : stream.reported) told(sent);
  stream.reported.clear();
}

void Announcer::sort_changes() {
  for (const auto& tenant : tenants_) {
    std::vector<Change>& changes = tenant->changes();
    for (Change& change : changes) {
      MasterStream& stream = stream_of(change.item.hash);
      if (keeps(stream)) say(stream, {tenant.get(), change, stream.acknowledges});
    }
    changes.clear();
  }
}

void Announcer::say(MasterStream& stream, const Sent& sent) {
  if (stream.queue.empty()) stream.removals_seen = port_of(stream).removals_seen();
  PublishItem::What& what = stream.queue.emplace_back(sent).change.item.what;
  if (sent.late && what == PublishItem::What::kCreates) what = PublishItem::What::kCreated;
}

void Announcer::flush(MasterStream& stream) {
  if (!keeps(stream)) {
    stream.queue.clear();
    stream.later.clear();
  }
  if (!port_of(stream).ready()) {
    if (!stream.waiters.empty()) settle_all(stream);
    return;
  }
  if (!stream.later.empty() && now_ns_ >= stream.next_later_ns) {
    for (const Sent& sent : stream.later) queue_again(stream, sent);
    stream.later.clear();
  }
  while (!stream.queue.empty() && stream.in_flight < kMaxInFlight) send(streams_[stream.partition]);
}

void Announcer::send(const std::shared_ptr<MasterStream>& stream) {
  std::deque<Sent>& queue = stream->queue;
  const std::size_t count = std::min(queue.size(), kBatch);
  auto batch = std::make_shared<std::vector<Sent>>(
      queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<PublishItem> items;
  items.reserve(count);
  for (const Sent& sent : *batch) items.push_back(sent.change.item);
  ++stream->in_flight;
  counters_.announced += count;
  port_of(*stream).publish(
      std::move(items), stream->removals_seen, now_ns_ + kPublishNs,
      [this, batch, weak = std::weak_ptr(stream)](Result<std::vector<Verdict>> answer) {
        const auto of = weak.lock();
        if (of == nullptr) return;
        --of->in_flight;
        for (std::size_t i = 0; i < batch->size(); ++i) {
          if (answer) {
            judge(*of, (*batch)[i], (*answer)[i]);
            continue;
          }
          // The batch may or may not have arrived. Send the batch again, unless a report will name
          // these objects. A put completes without a master, but a master that is there and does not
          // answer may wait for a holder of the replaced object.
          const bool waits = answer.error().code() == MC_TIMEOUT && port_of(*of).ready();
          settle(*of, (*batch)[i].change.item.version, waits ? MC_TIMEOUT : MC_OK);
          if (!port_of(*of).ready()) continue;
          Sent& again = (*batch)[i];
          again.late = true;
          if (again.change.item.what == PublishItem::What::kDropped) {
            of->queue.push_back(again);
          } else {
            queue_again(*of, again);
          }
        }
      });
}

void Announcer::judge(MasterStream& stream, const Sent& sent, Verdict verdict) {
  const PublishItem& item = sent.change.item;
  if (item.what == PublishItem::What::kDropped) return;
  switch (verdict) {
    case Verdict::kAccepted:
    case Verdict::kNotHeld:
      stream.retries.erase(item.version);
      told(sent);
      settle(stream, item.version, MC_OK);
      return;
    case Verdict::kFull:
      ++counters_.full;
      settle(stream, item.version, MC_OK);
      if (stream.later.size() < kMaxLater) {
        stream.later.push_back(sent);
        stream.later.back().late = true;
        if (item.what == PublishItem::What::kCreated) wait_once(stream, stream.later.back());
      }
      stream.next_later_ns = now_ns() + kLaterNs;
      return;
    case Verdict::kStale:
      if (item.yields() || sent.late) {
        // The put succeeds and changes nothing: another host has the key, or a later version.
        drop(sent);
        settle(stream, item.version, MC_OK);
        return;
      }
      [[fallthrough]];
    case Verdict::kBehind:
    case Verdict::kUncertain:
      // The put is younger than the refusing version, but this host's clock is behind.
      // The record on a disk would keep the refused version, and its mark may be older than the verdict.
      if (const std::uint32_t entry = entry_of(sent);
          entry != kNoEntry && sent.tenant->unannounced(entry) && !on_disk(item) &&
          stream.retries[item.version] < kMaxRetries) {
        announce_anew(stream, sent, entry);
        return;
      }
      [[fallthrough]];
    case Verdict::kRemoved:
    case Verdict::kHoldersFull:
    case Verdict::kInvalid:
      ++counters_.refused;
      drop(sent);
      settle(stream, item.version, MC_NOT_FOUND);
      return;
  }
}

// Nobody is putting the incomplete version any more when the waits are over.
void Announcer::wait_once(MasterStream& stream, Sent& sent) {
  unsigned& waits = stream.retries[sent.change.item.version];
  if (++waits < kMostWaits) return;
  stream.retries.erase(sent.change.item.version);
  sent.change.item.what = PublishItem::What::kCreates;
}

void Announcer::announce_anew(MasterStream& stream, const Sent& sent, std::uint32_t entry) {
  const std::uint64_t old = sent.change.item.version;
  const unsigned tries = stream.retries[old];
  stream.retries.erase(old);
  // Take a version just above the refused limit. A larger leap would put the other hosts' clocks
  // behind, and each of these hosts would leap further.
  clock_.saw(port_of(stream).refused_up_to());
  const std::uint64_t version = clock_.next(0);
  ++counters_.retried;
  stream.retries[version] = tries + 1;
  if (!sent.tenant->set_version(entry, version)) return;
  if (const auto waiter = stream.waiters.extract(old)) {
    stream.waiters[version] = waiter.mapped();
  }
  Sent again = sent;
  again.change.item.version = version;
  again.change.item.on_disk = false;
  again.change.entry = entry;
  say(stream, again);
}

// ---- Copies -------------------------------------------------------------------------------------

void Announcer::offer(const PublishItem& item, std::uint64_t deadline_ns, Verdicts done) {
  // Flush first: the queue may hold the drop of an earlier copy of the same version.
  MasterPort& port = masters_.of(item.hash);
  if (port.ready()) flush(now_ns_);
  if (!port.ready() || !stream_of(item.hash).queue.empty()) {
    done(std::nullopt);
    return;
  }
  port.publish(
      {item}, port.removals_seen(), deadline_ns,
      [done = std::move(done)](const Result<std::vector<Verdict>>& answer) {
        done(answer && answer->size() == 1 ? std::optional(answer->front()) : std::nullopt);
      });
}

std::vector<ClusterTenant*> Announcer::tenants_of(const PublishItem& item) const {
  std::vector<ClusterTenant*> holding;
  for (const auto& tenant : tenants_) {
    if (tenant->find(item.hash) != kNoEntry) holding.push_back(tenant.get());
  }
  return holding;
}

void Announcer::withdraw(const PublishItem& item) {
  for (ClusterTenant* const tenant : tenants_of(item)) {
    if (tenant->book().row(tenant->find(item.hash)).version == item.version) return;
  }
  if (on_disk(item)) return;
  Change change{item, 0};
  change.item.what = PublishItem::What::kDropped;
  say(stream_of(item.hash), {nullptr, change});
}

// ---- Reports ------------------------------------------------------------------------------------

bool Announcer::next_report(std::uint32_t partition, bool first, std::vector<PublishItem>& items) {
  MasterStream& stream = *streams_[partition];
  if (first) {
    // Changes of other partitions must still be announced.
    sort_changes();
    stream.report_tenant = 0;
    stream.report_cursor = 0;
    stream.report_disks = false;
    stream.reporting = true;
    // The old link was lost before this report. flush() must not read that loss as the loss of this
    // link.
    stream.was_ready = false;
    // The report names everything that was queued.
    settle_all(stream);
    stream.queue.clear();
    stream.reported.clear();
  }
  items.clear();
  unsigned steps = 0;
  while (stream.report_tenant < tenants_.size() && items.empty()) {
    ClusterTenant& tenant = *tenants_[stream.report_tenant];
    if (!stream.report_disks) {
      name_entries(stream, tenant, items);
      if (stream.report_cursor < tenant.store().index().entry_count()) continue;
      stream.report_disks = true;
    } else {
      const LocalDisks* const disks = tenant.disks();
      // After a start, the report waits for the disks' objects. Refused objects leave the disks in between.
      const bool ready = disks == nullptr || (!disks->recovering() && disks->may_forget(1));
      if (!ready || ++steps > kMostDiskSteps) return false;
      if (name_disk_objects(stream, tenant, items)) continue;
      stream.report_disks = false;
      ++stream.report_tenant;
    }
    stream.report_cursor = 0;
  }
  return true;
}

bool Announcer::is_of(const MasterStream& stream, const ClusterTenant& tenant,
                      std::uint32_t entry) const {
  if (streams_.size() == 1) return true;
  return masters_.partition_of(tenant.name_of(tenant.store().index().key_of(entry))) ==
         stream.partition;
}

// Names a bounded part of a namespace's entries.
void Announcer::name_entries(MasterStream& stream, ClusterTenant& tenant,
                             std::vector<PublishItem>& items) {
  ObjectIndex& index = tenant.store().index();
  const std::uint64_t end = std::min(index.entry_count(), stream.report_cursor + kReportScan);
  for (; stream.report_cursor < end && items.size() < kBatch; ++stream.report_cursor) {
    const auto entry = static_cast<std::uint32_t>(stream.report_cursor);
    const std::uint64_t version = index.entry(entry).version.load_relaxed();
    if (shm::state_of(version) != shm::EntryState::kLive) continue;
    if (tenant.is_stripe(entry)) {
      const StripeSet* const set = tenant.speaks_for(entry);
      if (set != nullptr && masters_.partition_of(set->name) == stream.partition) {
        items.push_back(ClusterTenant::item_of(*set));
      }
      continue;
    }
    if (!is_of(stream, tenant, entry)) continue;
    // The object was put before this agent joined a cluster, or there was no memory for the row.
    if (tenant.book().row(entry).version == 0 && !tenant.set_version(entry, clock_.next(0))) {
      continue;
    }
    name(stream, tenant, {tenant.item_of(entry), entry}, tenant.book().row(entry).unannounced,
         items);
  }
}

void Announcer::name(MasterStream& stream, ClusterTenant& tenant, const Change& change,
                     VersionBook::Unannounced unannounced, std::vector<PublishItem>& items) {
  if (unannounced != VersionBook::Unannounced::kPut) {
    items.push_back(change.item);
    if (unannounced == VersionBook::Unannounced::kUpsert) {
      stream.reported.push_back({&tenant, change});
    }
    return;
  }
  // An unannounced put is no holder yet. If the report named the put, the put would replace other
  // hosts' objects. The announcement follows after the report.
  Change later = change;
  later.item.what = PublishItem::What::kCreated;
  tenant.changes().push_back(later);
}

// The mark of a record may be older than the verdict. So the report names the put, with the removals that this host
// has heard, and the put yields.
void Announcer::name_disk_object(MasterStream& stream, ClusterTenant& tenant, PublishItem item,
                                 VersionBook::Unannounced unannounced,
                                 std::vector<PublishItem>& items) {
  if (unannounced == VersionBook::Unannounced::kPut) item.what = PublishItem::What::kCreated;
  items.push_back(item);
  if (unannounced != VersionBook::Unannounced::kNo) {
    stream.reported.push_back({&tenant, {item, kNoEntry}});
  }
}

// Names a bounded part of a namespace's objects that are on disks only. Returns false at the end.
bool Announcer::name_disk_objects(MasterStream& stream, ClusterTenant& tenant,
                                  std::vector<PublishItem>& items) {
  if (tenant.disks() == nullptr) return false;
  const auto next =
      tenant.disks()->walk(*tenant.tenant(), stream.report_cursor, [&](const SharedObject& object) {
        clock_.saw(object.version);
        const PublishItem item = tenant.item_of(object);
        if (masters_.partition_of(item.hash) != stream.partition) return;
        const std::uint32_t entry = tenant.find(item.hash);
        if (entry == kNoEntry) {
          name_disk_object(stream, tenant, item, object.unannounced, items);
        } else if (const auto row = tenant.book().row(entry); row.version == object.version) {
          // The object may have come into the pool since the walk over the pool.
          name(stream, tenant, {tenant.item_of(entry), entry}, row.unannounced, items);
        }
      });
  stream.report_cursor = next.value_or(0);
  return next.has_value();
}

void Announcer::on_verdict(const PublishItem& item, Verdict verdict) {
  if (verdict == Verdict::kAccepted || verdict == Verdict::kFull) return;
  for (const auto& tenant : tenants_) {
    if (item.attributes.striped) {
      for (const StripeSet* const set : tenant->stripes().sealed(item.hash, item.version)) {
        if (set->id.part != item.attributes.part) continue;
        ++counters_.refused;
        tenant->drop_stripes(set->id, false);
        return;
      }
      continue;
    }
    const std::uint32_t entry = tenant->find(item.hash);
    if (entry == kNoEntry || tenant->book().row(entry).version != item.version) continue;
    // kStale: another host has a later version, which stays. This also covers a put that came
    // first.
    if (tenant->unannounced(entry) && verdict != Verdict::kStale) {
      judge(stream_of(item.hash), {tenant.get(), {item, entry}, true}, verdict);
      return;
    }
    ++counters_.refused;
    tenant->drop(entry);
    return;
  }
  if (!on_disk(item)) return;
  ++counters_.refused;
  disks_of(tenants_)->drop(shared_name_of(item.hash), item.version, {});
}

}  // namespace mc::agent
