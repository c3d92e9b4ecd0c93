// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/announcer.h"

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

void Announcer::begin_talks() {
  for (const auto& talk : talks_) settle_all(*talk);
  talks_.clear();
  for (std::uint32_t share = 0; share < masters_.count(); ++share) {
    talks_.push_back(std::make_shared<Talk>());
    talks_.back()->share = share;
  }
}

// ---- Puts that wait -----------------------------------------------------------------------------

void Announcer::await(const std::shared_ptr<Errand>& errand, ClusterTenant& tenant) {
  for (std::size_t i = 0; i < errand->items.size(); ++i) {
    Errand::Item& item = errand->items[i];
    const std::uint64_t version = tenant.book().row(item.entry).version;
    // Evicted already, or without a row: nothing will be said of it.
    Talk* const talk = version == 0         ? nullptr
                       : talks_.size() == 1 ? talks_.front().get()
                                            : &talk_of(tenant.item_of(item.entry).hash);
    if (talk == nullptr || !port_of(*talk).ready()) {
      ++counters_.unannounced_puts;
      errand->settle(item, MC_OK);
      ended_ = true;
      continue;
    }
    talk->waiters[version] = {errand, i};
  }
}

void Announcer::settle(Talk& talk, std::uint64_t version, mc_status status) {
  const auto at = talk.waiters.find(version);
  if (at == talk.waiters.end()) return;
  Errand& errand = *at->second.errand;
  errand.settle(errand.items[at->second.item], status);
  ended_ |= errand.over();
  talk.waiters.erase(at);
}

void Announcer::settle_all(Talk& talk) {
  counters_.unannounced_puts += talk.waiters.size();
  for (auto& [version, waiter] : talk.waiters) {
    waiter.errand->settle(waiter.errand->items[waiter.item], MC_OK);
    ended_ = true;
  }
  talk.waiters.clear();
}

// ---- Changes ------------------------------------------------------------------------------------

void Announcer::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  for (const auto& talk : talks_) look(*talk);
  sort_changes();
  for (const auto& talk : talks_) flush(*talk);
}

void Announcer::look(Talk& talk) {
  const bool ready = port_of(talk).ready();
  if (talk.was_ready && !ready) talk.reporting = false;
  talk.was_ready = ready;
  if (!ready || talk.reported.empty()) return;
  // Those that were refused have another version by now, or are gone.
  for (const Sent& sent : talk.reported) {
    if (holds(sent)) sent.tenant->told(sent.change.entry);
  }
  talk.reported.clear();
}

void Announcer::sort_changes() {
  for (const auto& tenant : tenants_) {
    std::vector<Change>& changes = tenant->changes();
    for (Change& change : changes) {
      Talk& talk = talk_of(change.item.hash);
      if (keeps(talk)) say(talk, {tenant.get(), change});
    }
    changes.clear();
  }
}

void Announcer::say(Talk& talk, const Sent& sent) {
  if (talk.queue.empty()) talk.removals_seen = port_of(talk).removals_seen();
  talk.queue.push_back(sent);
}

void Announcer::flush(Talk& talk) {
  if (!keeps(talk)) {
    talk.queue.clear();
    talk.later.clear();
  }
  if (!port_of(talk).ready()) {
    if (!talk.waiters.empty()) settle_all(talk);
    return;
  }
  if (!talk.later.empty() && now_ns_ >= talk.next_later_ns) {
    for (Sent& sent : talk.later) {
      if (holds(sent)) talk.queue.push_back(sent);
    }
    talk.later.clear();
  }
  while (!talk.queue.empty() && talk.in_flight < kMaxInFlight) send(talks_[talk.share]);
}

void Announcer::send(const std::shared_ptr<Talk>& talk) {
  std::deque<Sent>& queue = talk->queue;
  const std::size_t count = std::min(queue.size(), kBatch);
  auto batch = std::make_shared<std::vector<Sent>>(
      queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<PublishItem> items;
  items.reserve(count);
  for (const Sent& sent : *batch) items.push_back(sent.change.item);
  ++talk->in_flight;
  counters_.announced += count;
  port_of(*talk).publish(
      std::move(items), talk->removals_seen, now_ns_ + kPublishNs,
      [this, batch, weak = std::weak_ptr(talk)](Result<std::vector<Verdict>> answer) {
        const auto of = weak.lock();
        if (of == nullptr) return;
        --of->in_flight;
        for (std::size_t i = 0; i < batch->size(); ++i) {
          if (answer) {
            judge(*of, (*batch)[i], (*answer)[i]);
            continue;
          }
          // It may have arrived or not: said again, unless a report will say it.
          settle(*of, (*batch)[i].change.item.version, MC_OK);
          if (!port_of(*of).ready()) continue;
          const Sent& again = (*batch)[i];
          const bool dropped = again.change.item.what == PublishItem::What::kDropped;
          if (dropped || holds(again)) of->queue.push_back(again);
        }
      });
}

void Announcer::judge(Talk& talk, const Sent& sent, Verdict verdict) {
  const PublishItem& item = sent.change.item;
  if (item.what == PublishItem::What::kDropped) return;
  switch (verdict) {
    case Verdict::kAccepted:
    case Verdict::kNotHeld:
      talk.retries.erase(item.version);
      if (holds(sent) && sent.tenant->untold(sent.change.entry)) {
        sent.tenant->told(sent.change.entry);
        sent.tenant->stripes().replaced(item.hash, item.version);
      }
      settle(talk, item.version, MC_OK);
      return;
    case Verdict::kFull:
      ++counters_.full;
      settle(talk, item.version, MC_OK);
      if (talk.later.size() < kMaxLater) talk.later.push_back(sent);
      talk.next_later_ns = now_ns() + kLaterNs;
      return;
    case Verdict::kStale:
      if (item.what == PublishItem::What::kCreates) {
        // The key exists elsewhere: the put succeeds and changes nothing.
        if (holds(sent)) sent.tenant->drop(sent.change.entry);
        settle(talk, item.version, MC_OK);
        return;
      }
      [[fallthrough]];
    case Verdict::kBehind:
    case Verdict::kUncertain:
      // A put that is younger than what it met, but whose clock is behind.
      if (holds(sent) && sent.tenant->untold(sent.change.entry) &&
          talk.retries[item.version] < kMaxRetries) {
        announce_anew(talk, sent);
        return;
      }
      [[fallthrough]];
    case Verdict::kRemoved:
    case Verdict::kHoldersFull:
    case Verdict::kInvalid:
      ++counters_.refused;
      if (holds(sent)) sent.tenant->drop(sent.change.entry);
      settle(talk, item.version, MC_NOT_FOUND);
      return;
  }
}

void Announcer::announce_anew(Talk& talk, const Sent& sent) {
  const std::uint64_t old = sent.change.item.version;
  const unsigned tries = talk.retries[old];
  talk.retries.erase(old);
  // Just above what it was too old for: were it more, others would be behind this clock, and leap
  // further still.
  clock_.saw(port_of(talk).refused_up_to());
  const std::uint64_t version = clock_.next(0);
  ++counters_.retried;
  talk.retries[version] = tries + 1;
  if (!sent.tenant->set_version(sent.change.entry, version)) return;
  if (const auto waiter = talk.waiters.extract(old)) {
    talk.waiters[version] = waiter.mapped();
  }
  Sent again = sent;
  again.change.item.version = version;
  say(talk, again);
}

// ---- Copies -------------------------------------------------------------------------------------

void Announcer::offer(const PublishItem& item, std::uint64_t deadline_ns, Verdicts done) {
  // In order: what is queued may say that an earlier copy of the same version has gone.
  MasterPort& port = masters_.of(item.hash);
  if (port.ready()) flush(now_ns_);
  if (!port.ready() || !talk_of(item.hash).queue.empty()) {
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
  say(talk_of(item.hash), {nullptr, change});
}

// ---- Reports ------------------------------------------------------------------------------------

void Announcer::next_report(std::uint32_t share, bool first, std::vector<PublishItem>& items) {
  Talk& talk = *talks_[share];
  if (first) {
    // What concerns other shares is still to be said.
    sort_changes();
    talk.report_tenant = 0;
    talk.report_cursor = 0;
    talk.reporting = true;
    // Whatever was lost was lost before: flush() must not take it for the loss of this one.
    talk.was_ready = false;
    // All that was to be said is in the report.
    settle_all(talk);
    talk.queue.clear();
    talk.reported.clear();
  }
  items.clear();
  while (talk.report_tenant < tenants_.size() && items.empty()) {
    ClusterTenant& tenant = *tenants_[talk.report_tenant];
    name_entries(talk, tenant, items);
    if (talk.report_cursor >= tenant.store().index().entry_count()) {
      ++talk.report_tenant;
      talk.report_cursor = 0;
    }
  }
}

bool Announcer::is_of(const Talk& talk, const ClusterTenant& tenant, std::uint32_t entry) const {
  if (talks_.size() == 1) return true;
  return masters_.share_of(tenant.name_of(tenant.store().index().key_of(entry))) == talk.share;
}

// A part of a namespace's entries.
void Announcer::name_entries(Talk& talk, ClusterTenant& tenant, std::vector<PublishItem>& items) {
  ObjectIndex& index = tenant.store().index();
  const std::uint64_t end = std::min(index.entry_count(), talk.report_cursor + kReportScan);
  for (; talk.report_cursor < end && items.size() < kBatch; ++talk.report_cursor) {
    const auto entry = static_cast<std::uint32_t>(talk.report_cursor);
    const std::uint64_t version = index.entry(entry).version.load_relaxed();
    if (shm::state_of(version) != shm::EntryState::kLive) continue;
    if (tenant.is_stripe(entry)) {
      const StripeSet* const set = tenant.speaks_for(entry);
      if (set != nullptr && masters_.share_of(set->name) == talk.share) {
        items.push_back(ClusterTenant::item_of(*set));
      }
      continue;
    }
    if (!is_of(talk, tenant, entry)) continue;
    // Put before this agent was in a cluster, or without memory for its row.
    if (tenant.book().row(entry).version == 0 && !tenant.set_version(entry, clock_.next(0))) {
      continue;
    }
    const VersionBook::Untold untold = tenant.book().row(entry).untold;
    if (untold != VersionBook::Untold::kPut) {
      items.push_back(tenant.item_of(entry));
      if (untold == VersionBook::Untold::kUpsert) {
        talk.reported.push_back({&tenant, {items.back(), entry}});
      }
      continue;
    }
    // Not a holder yet: named as one it would replace what others hold. Said again behind the
    // report.
    Change change{tenant.item_of(entry), entry};
    change.item.what = PublishItem::What::kCreates;
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
    // Another host has a later one: that stays, whoever came first.
    if (tenant->untold(entry) && verdict != Verdict::kStale) {
      judge(talk_of(item.hash), {tenant.get(), {item, entry}}, verdict);
      return;
    }
    ++counters_.refused;
    tenant->drop(entry);
    return;
  }
}

}  // namespace mc::agent
