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

}  // namespace

bool Announcer::known(const ClusterTenant* tenant) const {
  return std::ranges::any_of(tenants_, [&](const auto& one) { return one.get() == tenant; });
}

bool Announcer::holds(const Sent& sent) const {
  if (!known(sent.tenant)) return false;
  ObjectIndex& index = sent.tenant->store().index();
  return shm::state_of(index.entry(sent.change.entry).version.load_relaxed()) ==
             shm::EntryState::kLive &&
         sent.tenant->book().row(sent.change.entry).version == sent.change.item.version;
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
  for (const Sent& sent : stream.reported) {
    if (holds(sent)) sent.tenant->told(sent.change.entry);
  }
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
    for (Sent& sent : stream.later) {
      if (holds(sent)) stream.queue.push_back(sent);
    }
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
          const bool dropped = again.change.item.what == PublishItem::What::kDropped;
          if (dropped || holds(again)) of->queue.push_back(again);
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
      if (holds(sent) && sent.tenant->unannounced(sent.change.entry)) {
        sent.tenant->told(sent.change.entry);
        sent.tenant->stripes().replaced(item.hash, item.version);
      }
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
        if (holds(sent)) sent.tenant->drop(sent.change.entry);
        settle(stream, item.version, MC_OK);
        return;
      }
      [[fallthrough]];
    case Verdict::kBehind:
    case Verdict::kUncertain:
      // The put is younger than the refusing version, but this host's clock is behind.
      if (holds(sent) && sent.tenant->unannounced(sent.change.entry) &&
          stream.retries[item.version] < kMaxRetries) {
        announce_anew(stream, sent);
        return;
      }
      [[fallthrough]];
    case Verdict::kRemoved:
    case Verdict::kHoldersFull:
    case Verdict::kInvalid:
      ++counters_.refused;
      if (holds(sent)) sent.tenant->drop(sent.change.entry);
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

void Announcer::announce_anew(MasterStream& stream, const Sent& sent) {
  const std::uint64_t old = sent.change.item.version;
  const unsigned tries = stream.retries[old];
  stream.retries.erase(old);
  // Take a version just above the refused limit. A larger leap would put the other hosts' clocks
  // behind, and each of these hosts would leap further.
  clock_.saw(port_of(stream).refused_up_to());
  const std::uint64_t version = clock_.next(0);
  ++counters_.retried;
  stream.retries[version] = tries + 1;
  if (!sent.tenant->set_version(sent.change.entry, version)) return;
  if (const auto waiter = stream.waiters.extract(old)) {
    stream.waiters[version] = waiter.mapped();
  }
  Sent again = sent;
  again.change.item.version = version;
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
  Change change{item, 0};
  change.item.what = PublishItem::What::kDropped;
  say(stream_of(item.hash), {nullptr, change});
}

// ---- Reports ------------------------------------------------------------------------------------

void Announcer::next_report(std::uint32_t partition, bool first, std::vector<PublishItem>& items) {
  MasterStream& stream = *streams_[partition];
  if (first) {
    // Changes of other partitions must still be announced.
    sort_changes();
    stream.report_tenant = 0;
    stream.report_cursor = 0;
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
  while (stream.report_tenant < tenants_.size() && items.empty()) {
    ClusterTenant& tenant = *tenants_[stream.report_tenant];
    name_entries(stream, tenant, items);
    if (stream.report_cursor >= tenant.store().index().entry_count()) {
      ++stream.report_tenant;
      stream.report_cursor = 0;
    }
  }
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
    const VersionBook::Unannounced unannounced = tenant.book().row(entry).unannounced;
    if (unannounced != VersionBook::Unannounced::kPut) {
      items.push_back(tenant.item_of(entry));
      if (unannounced == VersionBook::Unannounced::kUpsert) {
        stream.reported.push_back({&tenant, {items.back(), entry}});
      }
      continue;
    }
    // An unannounced put is no holder yet. If the report named the put, the put would replace other
    // hosts' objects. The announcement follows after the report.
    Change change{tenant.item_of(entry), entry};
    change.item.what = PublishItem::What::kCreated;
    tenant.changes().push_back(change);
  }
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
}

}  // namespace mc::agent
