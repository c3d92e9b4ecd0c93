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

// ---- Puts that wait -----------------------------------------------------------------------------

void Announcer::await(const std::shared_ptr<Errand>& errand, ClusterTenant& tenant) {
  for (std::size_t i = 0; i < errand->items.size(); ++i) {
    Errand::Item& item = errand->items[i];
    const std::uint64_t version = tenant.book().row(item.entry).version;
    // Evicted already, or without a row: nothing will be said of it.
    if (version == 0 || !port_.ready()) {
      ++counters_.unannounced_puts;
      errand->settle(item, MC_OK);
      ended_ = true;
      continue;
    }
    waiters_[version] = {errand, i};
  }
}

void Announcer::settle(std::uint64_t version, mc_status status) {
  const auto at = waiters_.find(version);
  if (at == waiters_.end()) return;
  Errand& errand = *at->second.errand;
  errand.settle(errand.items[at->second.item], status);
  ended_ |= errand.over();
  waiters_.erase(at);
}

void Announcer::settle_all() {
  counters_.unannounced_puts += waiters_.size();
  for (auto& [version, waiter] : waiters_) {
    waiter.errand->settle(waiter.errand->items[waiter.item], MC_OK);
    ended_ = true;
  }
  waiters_.clear();
}

// ---- Changes ------------------------------------------------------------------------------------

void Announcer::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  const bool ready = port_.ready();
  if (was_ready_ && !ready) reporting_ = false;
  was_ready_ = ready;
  if (ready && !reported_.empty()) {
    // Those that were refused have another version by now, or are gone.
    for (const Sent& sent : reported_) {
      if (holds(sent)) sent.tenant->told(sent.change.entry);
    }
    reported_.clear();
  }
  const bool keep = ready || reporting_;
  for (const auto& tenant : tenants_) {
    std::vector<Change>& changes = tenant->changes();
    if (changes.empty()) continue;
    if (queue_.empty()) removals_seen_ = port_.removals_seen();
    if (keep) {
      for (Change& change : changes) queue_.push_back({tenant.get(), change});
    }
    changes.clear();
  }
  if (!keep) {
    queue_.clear();
    later_.clear();
  }
  if (!ready) {
    if (!waiters_.empty()) settle_all();
    return;
  }
  if (!later_.empty() && now_ns >= next_later_ns_) {
    for (Sent& sent : later_) {
      if (holds(sent)) queue_.push_back(sent);
    }
    later_.clear();
  }
  while (!queue_.empty() && in_flight_ < kMaxInFlight) send(now_ns);
}

void Announcer::send(std::uint64_t now_ns) {
  const std::size_t count = std::min(queue_.size(), kBatch);
  auto batch = std::make_shared<std::vector<Sent>>(
      queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count));
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<PublishItem> items;
  items.reserve(count);
  for (const Sent& sent : *batch) items.push_back(sent.change.item);
  ++in_flight_;
  counters_.announced += count;
  port_.publish(std::move(items), removals_seen_, now_ns + kPublishNs,
                [this, batch, alive = std::weak_ptr(alive_)](Result<std::vector<Verdict>> answer) {
                  if (alive.expired()) return;
                  --in_flight_;
                  for (std::size_t i = 0; i < batch->size(); ++i) {
                    if (answer) {
                      judge((*batch)[i], (*answer)[i]);
                      continue;
                    }
                    // It may have arrived or not: said again, unless a report will say it.
                    settle((*batch)[i].change.item.version, MC_OK);
                    if (!port_.ready()) continue;
                    const Sent& again = (*batch)[i];
                    const bool dropped = again.change.item.what == PublishItem::What::kDropped;
                    if (dropped || holds(again)) queue_.push_back(again);
                  }
                });
}

void Announcer::judge(const Sent& sent, Verdict verdict) {
  const PublishItem& item = sent.change.item;
  if (item.what == PublishItem::What::kDropped) return;
  switch (verdict) {
    case Verdict::kAccepted:
    case Verdict::kNotHeld:
      retries_.erase(item.version);
      if (holds(sent) && sent.tenant->untold(sent.change.entry)) {
        sent.tenant->told(sent.change.entry);
        sent.tenant->stripes().replaced(item.hash, item.version);
      }
      settle(item.version, MC_OK);
      return;
    case Verdict::kFull:
      ++counters_.full;
      settle(item.version, MC_OK);
      if (later_.size() < kMaxLater) later_.push_back(sent);
      next_later_ns_ = now_ns() + kLaterNs;
      return;
    case Verdict::kStale:
      if (item.what == PublishItem::What::kCreates) {
        // The key exists elsewhere: the put succeeds and changes nothing.
        if (holds(sent)) sent.tenant->drop(sent.change.entry);
        settle(item.version, MC_OK);
        return;
      }
      [[fallthrough]];
    case Verdict::kBehind:
    case Verdict::kUncertain:
      // A put that is younger than what it met, but whose clock is behind.
      if (holds(sent) && sent.tenant->untold(sent.change.entry) &&
          retries_[item.version] < kMaxRetries) {
        announce_anew(sent);
        return;
      }
      [[fallthrough]];
    case Verdict::kRemoved:
    case Verdict::kHoldersFull:
    case Verdict::kInvalid:
      ++counters_.refused;
      if (holds(sent)) sent.tenant->drop(sent.change.entry);
      settle(item.version, MC_NOT_FOUND);
      return;
  }
}

void Announcer::announce_anew(const Sent& sent) {
  const std::uint64_t old = sent.change.item.version;
  const unsigned tries = retries_[old];
  retries_.erase(old);
  // Just above what it was too old for: were it more, others would be behind this clock, and leap
  // further still.
  clock_.saw(port_.refused_up_to());
  const std::uint64_t version = clock_.next(0);
  ++counters_.retried;
  retries_[version] = tries + 1;
  if (!sent.tenant->set_version(sent.change.entry, version)) return;
  if (const auto waiter = waiters_.extract(old)) {
    waiters_[version] = waiter.mapped();
  }
  Sent again = sent;
  again.change.item.version = version;
  if (queue_.empty()) removals_seen_ = port_.removals_seen();
  queue_.push_back(again);
}

// ---- Copies -------------------------------------------------------------------------------------

void Announcer::offer(const PublishItem& item, std::uint64_t deadline_ns, Verdicts done) {
  // In order: what is queued may say that an earlier copy of the same version has gone.
  if (port_.ready()) flush(now_ns_);
  if (!port_.ready() || !queue_.empty()) {
    done(std::nullopt);
    return;
  }
  port_.publish(
      {item}, port_.removals_seen(), deadline_ns,
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
  if (queue_.empty()) removals_seen_ = port_.removals_seen();
  queue_.push_back({nullptr, change});
}

// ---- Reports ------------------------------------------------------------------------------------

void Announcer::next_report(bool first, std::vector<PublishItem>& items) {
  if (first) {
    report_tenant_ = 0;
    report_cursor_ = 0;
    reporting_ = true;
    // Whatever was lost was lost before: flush() must not take it for the loss of this one.
    was_ready_ = false;
    // All that was to be said is in the report.
    settle_all();
    queue_.clear();
    reported_.clear();
    for (const auto& tenant : tenants_) tenant->changes().clear();
  }
  items.clear();
  while (report_tenant_ < tenants_.size() && items.empty()) {
    ClusterTenant& tenant = *tenants_[report_tenant_];
    ObjectIndex& index = tenant.store().index();
    const std::uint64_t end = std::min(index.entry_count(), report_cursor_ + kReportScan);
    for (; report_cursor_ < end && items.size() < kBatch; ++report_cursor_) {
      const auto entry = static_cast<std::uint32_t>(report_cursor_);
      const std::uint64_t version = index.entry(entry).version.load_relaxed();
      if (shm::state_of(version) != shm::EntryState::kLive) continue;
      if (tenant.is_stripe(entry)) {
        if (const StripeSet* const set = tenant.speaks_for(entry)) {
          items.push_back(ClusterTenant::item_of(*set));
        }
        continue;
      }
      // Put before this agent was in a cluster, or without memory for its row.
      if (tenant.book().row(entry).version == 0 && !tenant.set_version(entry, clock_.next(0))) {
        continue;
      }
      const VersionBook::Untold untold = tenant.book().row(entry).untold;
      if (untold != VersionBook::Untold::kPut) {
        items.push_back(tenant.item_of(entry));
        if (untold == VersionBook::Untold::kUpsert)
          reported_.push_back({&tenant, {items.back(), entry}});
        continue;
      }
      // Not a holder yet: named as one it would replace what others hold. Said again behind the
      // report.
      Change change{tenant.item_of(entry), entry};
      change.item.what = PublishItem::What::kCreates;
      tenant.changes().push_back(change);
    }
    if (report_cursor_ >= index.entry_count()) {
      ++report_tenant_;
      report_cursor_ = 0;
    }
  }
}

void Announcer::on_verdict(const PublishItem& item, Verdict verdict) {
  if (verdict == Verdict::kAccepted || verdict == Verdict::kFull) return;
  for (const auto& tenant : tenants_) {
    const StripeSet* const set = tenant->stripes().sealed(item.hash);
    if (set != nullptr && set->version == item.version) {
      ++counters_.refused;
      tenant->drop_stripes(set->facts.put, false);
      return;
    }
    const std::uint32_t entry = tenant->find(item.hash);
    if (entry == kNoEntry || tenant->book().row(entry).version != item.version) continue;
    // Another host has a later one: that stays, whoever came first.
    if (tenant->untold(entry) && verdict != Verdict::kStale) {
      judge({tenant.get(), {item, entry}}, verdict);
      return;
    }
    ++counters_.refused;
    tenant->drop(entry);
    return;
  }
}

}  // namespace mc::agent
