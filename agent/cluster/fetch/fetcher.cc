// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/fetcher.h"

#include <algorithm>
#include <map>

#include "libmc/base/clock.h"
#include "shm/pins.h"

namespace mc::agent {

using metadata::KeyHash;

namespace {

constexpr std::uint64_t kCheckNs = kMs;
// The most a holder is given for its answer while there is another one.
constexpr std::uint64_t kMostAskNs = 200 * kMs;
constexpr std::uint64_t kRecoveryShare = 2;
constexpr std::uint64_t kPatienceNs = 500 * kMs;
constexpr std::size_t kLocateBatch = 512;
constexpr std::size_t kMaxCachedExtents = 4;
// A location that has been read from so often is worth a copy.
constexpr std::uint32_t kHotUses = 2;
constexpr std::uint64_t kHotNs = 2 * kMs;
constexpr std::size_t kMaxHot = 4096;

}  // namespace

Fetcher::Fetch* Fetcher::find(std::uint64_t id) {
  const auto at = fetches_.find(id);
  return at == fetches_.end() ? nullptr : at->second.get();
}

// ---- Beginning ----------------------------------------------------------------------------------

bool Fetcher::serve_locally(RemoteRequest& remote_request, RemoteRequest::Item& item,
                            ClusterTenant& tenant) {
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
  ended_ = true;
  return true;
}

Fetcher::Fetch& Fetcher::start(ClusterTenant* tenant, const KeyHash& name,
                               std::uint64_t deadline_ns) {
  auto made = std::make_unique<Fetch>();
  Fetch& fetch = *made;
  fetch.id = next_id_++;
  fetch.tenant = tenant;
  fetch.name = name;
  fetch.deadline_ns = deadline_ns;
  fetches_.emplace(fetch.id, std::move(made));
  by_name_[name] = fetch.id;
  ++counters_.fetches;
  return fetch;
}

void Fetcher::fetch(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
                    std::uint64_t now_ns) {
  now_ns_ = now_ns;
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    RemoteRequest::Item& item = remote_request->items[i];
    // It may have come since the client looked.
    if (!item.open || serve_locally(*remote_request, item, tenant)) continue;
    const KeyHash name = tenant.name_of(item.key);
    if (const auto same = by_name_.find(name); same != by_name_.end()) {
      Fetch& fetch = *find(same->second);
      if (fetch.tenant == &tenant && may_join(fetch)) {
        ++counters_.shared;
        fetch.waiters.push_back({remote_request, i});
        fetch.joined = true;
        fetch.deadline_ns = std::max(fetch.deadline_ns, remote_request->deadline_ns);
        continue;
      }
    }
    Fetch& fetch = start(&tenant, name, remote_request->deadline_ns);
    fetch.key = item.key;
    fetch.waiters.push_back({remote_request, i});
    Location* const known = locations_.find(name);
    if (known == nullptr || !peers_.id_of(known->node)) {
      if (!ask_known_holders(fetch)) to_locate_.push_back(fetch.id);
      continue;
    }
    ++counters_.location_hits;
    fetch.from_cache = true;
    fetch.hot = ++known->uses >= kHotUses;
    fetch.at = *known;
    fetch.try_until_ns = std::min(fetch.deadline_ns, now_ns + kMostLocateNs);
    fetch.step = Step::kRoom;
    seek_room(fetch);
  }
}

bool Fetcher::forget(const ClusterTenant& tenant) {
  std::vector<std::uint64_t> gone;
  bool reads_open = false;
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->tenant != &tenant && fetch->tenant != nullptr) continue;
    reads_open |= fetch->reads_open > 0;
    if (!fetch->missed) gone.push_back(id);
  }
  for (const std::uint64_t id : gone) {
    Fetch& fetch = *find(id);
    if (fetch.gather != 0) gatherer_.cancel(std::exchange(fetch.gather, 0));
    if (fetch.reads_open > 0) {
      for (const Fetch::Part& part : fetch.parts) transport_.cancel(part.id);
    }
    miss(fetch, MC_NOT_FOUND, counters_.holders_failed);
  }
  std::erase_if(hot_, [&](const Hot& hot) { return hot.tenant == &tenant; });
  return !reads_open && !gatherer_.reads_into(tenant);
}

// What has been read may have been removed since, before whoever wants to join asked. The master
// tells this node of that only where it is known as a holder. A copy has time that a reader has
// not.
bool Fetcher::may_join(const Fetch& fetch) {
  const bool is_holder = fetch.verdict_in && fetch.verdict == metadata::Verdict::kAccepted;
  const bool unread = fetch.step != Step::kReading && fetch.step != Step::kOffered &&
                      fetch.step != Step::kGathering && !fetch.bytes_asked;
  return (unread || is_holder) && !fetch.dropped && fetch.ended == nullptr;
}

// ---- Locating and asking ------------------------------------------------------------------------

void Fetcher::send_locates(std::uint64_t now_ns) {
  std::vector<std::uint64_t> later;
  std::erase_if(to_locate_, [&](std::uint64_t id) {
    const Fetch* const fetch = find(id);
    const bool early = fetch != nullptr && now_ns < fetch->not_before_ns;
    if (early) later.push_back(id);
    return early;
  });
  send_due_locates(now_ns);
  to_locate_.insert(to_locate_.end(), later.begin(), later.end());
}

// One question to each master, or more if it were too long.
void Fetcher::send_due_locates(std::uint64_t now_ns) {
  std::vector<std::vector<std::uint64_t>> due(masters_.count());
  while (!to_locate_.empty()) {
    Fetch* const fetch = find(to_locate_.back());
    to_locate_.pop_back();
    if (fetch == nullptr) continue;
    const std::uint32_t partition = masters_.partition_of(fetch->name);
    if (!masters_.at(partition).ready()) {
      miss(*fetch, MC_NOT_FOUND, counters_.master_away);
      continue;
    }
    fetch->step = Step::kLocating;
    fetch->try_until_ns = std::min(fetch->deadline_ns, now_ns + kMostLocateNs);
    due[partition].push_back(fetch->id);
    if (due[partition].size() == kLocateBatch)
      send_locate(partition, std::exchange(due[partition], {}), now_ns);
  }
  for (std::uint32_t partition = 0; partition < masters_.count(); ++partition) {
    if (!due[partition].empty()) send_locate(partition, std::move(due[partition]), now_ns);
  }
}

void Fetcher::send_locate(std::uint32_t partition, std::vector<std::uint64_t> ids,
                          std::uint64_t now_ns) {
  // One that missed meanwhile may have ended others.
  std::erase_if(ids, [this](std::uint64_t id) { return find(id) == nullptr; });
  if (ids.empty()) return;
  metadata::wire::Locate request;
  request.host = reader_.host;
  request.zone = reader_.zone;
  std::uint64_t deadline_ns = 0;
  for (const std::uint64_t id : ids) {
    const Fetch& fetch = *find(id);
    request.keys.push_back(fetch.name);
    deadline_ns = std::max(deadline_ns, fetch.try_until_ns);
  }
  counters_.located += ids.size();
  const std::uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  request.wait_ms = static_cast<std::uint32_t>(left_ns / kRecoveryShare / kMs);
  masters_.at(partition).locate(request, deadline_ns,
                                [this, ids = std::move(ids), alive = std::weak_ptr(alive_)](
                                    const Result<metadata::LocateAnswer>& answer) {
                                  if (!alive.expired()) on_located(ids, answer);
                                });
}

void Fetcher::on_located(const std::vector<std::uint64_t>& ids,
                         const Result<metadata::LocateAnswer>& answer) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Fetch* const fetch = find(ids[i]);
    if (fetch == nullptr || fetch->step != Step::kLocating) continue;
    if (!answer || i >= answer->keys.size()) {
      miss(*fetch, MC_NOT_FOUND, counters_.master_away);
      continue;
    }
    const metadata::Located& located = answer->keys[i];
    if (located.state != metadata::Lookup::kFound) {
      const bool recovering = located.state == metadata::Lookup::kRecovering;
      miss(*fetch, MC_NOT_FOUND, recovering ? counters_.recovering : counters_.nobody);
      continue;
    }
    if (located.attributes.striped) {
      gather(*fetch, located, answer->holders_of(located));
      continue;
    }
    fetch->holders = peers_.reading_order(fetch->name, answer->holders_of(located));
    fetch->next_holder = 0;
    fetch->step = Step::kAsk;
    to_ask_.push_back(fetch->id);
  }
}

// Asks the next holder of each, those of one holder and namespace together.
void Fetcher::send_asks(std::uint64_t now_ns) {
  struct To {
    MemberId node;
    std::uint64_t name_space;
    bool keys;
    auto operator<=>(const To&) const = default;
  };
  std::map<To, std::vector<std::uint64_t>> groups;
  for (const std::uint64_t id : std::exchange(to_ask_, {})) {
    Fetch* const fetch = find(id);
    if (fetch == nullptr || fetch->step != Step::kAsk) continue;
    while (fetch->next_holder < fetch->holders.size() &&
           !peers_.id_of(fetch->holders[fetch->next_holder])) {
      ++fetch->next_holder;
    }
    if (fetch->next_holder >= fetch->holders.size() && !fetch->holders.empty()) {
      // It may have joined a moment ago.
      peers_.missed();
      if (fetch->patience_ns == 0) fetch->patience_ns = now_ns + kPatienceNs;
      if (now_ns < std::min(fetch->patience_ns, fetch->deadline_ns)) {
        fetch->next_holder = 0;
        to_ask_.push_back(id);
        continue;
      }
    }
    if (fetch->next_holder >= fetch->holders.size()) {
      miss(*fetch, MC_NOT_FOUND, counters_.holders_failed);
      continue;
    }
    const std::size_t left = fetch->holders.size() - fetch->next_holder;
    const std::uint64_t left_ns = fetch->deadline_ns > now_ns ? fetch->deadline_ns - now_ns : 0;
    const std::uint64_t share_ns = std::clamp(left_ns / left, kLeastTryNs, kMostAskNs);
    // The last one may take what there is.
    fetch->try_until_ns = left > 1 ? now_ns + share_ns : fetch->deadline_ns;
    fetch->step = Step::kAsking;
    const bool copy = fetch->tenant == nullptr;
    groups[{fetch->holders[fetch->next_holder], copy ? 0 : fetch->tenant->id(), copy}].push_back(
        id);
  }
  for (auto& [to, ids] : groups) {
    for (std::size_t first = 0; first < ids.size(); first += kMaxAskKeys) {
      const std::size_t count = std::min(kMaxAskKeys, ids.size() - first);
      PeerMessage ask;
      ask.kind = PeerMessageKind::kAsk;
      ask.flags = to.keys ? kAskForKeys : std::uint8_t{0};
      if (count == 1) ask.flags |= kAskForBytes;
      ask.request = next_ask_++;
      ask.name_space = to.name_space;
      AskBatch batch;
      batch.node = to.node;
      batch.open = count;
      std::uint64_t until_ns = now_ns;
      for (std::size_t i = 0; i < count; ++i) {
        Fetch& fetch = *find(ids[first + i]);
        fetch.bytes_asked = count == 1;
        ask.keys.push_back(fetch.name);
        batch.fetches.push_back(fetch.id);
        until_ns = std::max(until_ns, fetch.try_until_ns);
      }
      counters_.asked += count;
      batch.until_ns = until_ns;
      if (peers_.notify(to.node, ask, kAskCookie | ask.request, until_ns, now_ns)) {
        asks_.emplace(ask.request, std::move(batch));
        continue;
      }
      // Too much is in flight: with the next round.
      for (const std::uint64_t id : batch.fetches) {
        find(id)->step = Step::kAsk;
        to_ask_.push_back(id);
      }
    }
  }
}

void Fetcher::on_answer(MemberId from, const PeerMessage& message,
                        const std::vector<std::unique_ptr<ClusterTenant>>& tenants) {
  const auto at = asks_.find(message.request);
  if (at == asks_.end() || at->second.node != from) return;
  const auto region = peers_.region_of(from, message.region);
  for (const PlaceRow& row : message.rows) {
    if (row.number >= at->second.fetches.size()) continue;
    Fetch* const fetch = find(at->second.fetches[row.number]);
    if (fetch == nullptr || fetch->step != Step::kAsking) continue;
    if (fetch->tenant == nullptr && row.held) {
      for (const auto& tenant : tenants) {
        if (tenant->id() == message.name_space) fetch->tenant = tenant.get();
      }
      fetch->key = row.key;
      const bool mine = fetch->tenant != nullptr && !row.key.empty() &&
                        fetch->tenant->name_of(row.key) == fetch->name;
      if (!mine) {
        fetch->tenant = nullptr;
        miss(*fetch, MC_NOT_FOUND, counters_.holders_failed);
        continue;
      }
    }
    if (at->second.open > 0) --at->second.open;
    if (!row.held || !region) {
      try_next(*fetch, now_ns_);
      continue;
    }
    on_row(*fetch, from, *region, row);
  }
  if (at->second.open == 0) asks_.erase(at);
}

void Fetcher::on_row(Fetch& fetch, MemberId from, transport::RemoteRegionId region,
                     const PlaceRow& row) {
  fetch.at.node = from;
  fetch.at.region = region;
  fetch.at.row = row;
  fetch.at.row.key.clear();
  fetch.bytes = std::exchange(fetch.at.row.bytes, {});
  fetch.bytes_asked = !fetch.bytes.empty();
  if (fetch.ended == nullptr && row.extents.size() <= kMaxCachedExtents) {
    fetch.at.uses = 1;
    locations_.put(fetch.name, fetch.at);
  }
  fetch.step = Step::kRoom;
  seek_room(fetch);
}

// ---- Ends ---------------------------------------------------------------------------------------

void Fetcher::deliver(Fetch& fetch) {
  const std::uint32_t kept = fetch.keep ? keep_copy(fetch) : kNoEntry;
  ObjectStore& store = fetch.tenant->store();
  std::vector<shm::Word64*> pins;
  for (const Waiter& waiter : fetch.waiters) {
    RemoteRequest::Item& item = waiter.remote_request->items[waiter.item];
    if (!waiter.remote_request->abandoned && item.pin != nullptr) pins.push_back(item.pin);
  }
  std::uint32_t entry = kept;
  if (kept != kNoEntry) {
    const std::uint64_t version = store.index().entry(kept).version.load_relaxed();
    for (shm::Word64* const pin : pins) pin->store_release(shm::pin_value(kept, version));
  } else if (!pins.empty() &&
             store.serve_unpublished(kClusterSession, fetch.entry, fetch.at.row.length,
                                     fetch.at.row.checksum, pins)) {
    entry = std::exchange(fetch.entry, kNoEntry);
    ++counters_.lent;
  }
  for (const Waiter& waiter : fetch.waiters) {
    RemoteRequest& remote_request = *waiter.remote_request;
    remote_request.items[waiter.item].entry = entry;
    counters_.delivered += entry != kNoEntry ? 1 : 0;
    remote_request.settle(remote_request.items[waiter.item],
                          entry == kNoEntry ? MC_NOT_FOUND : MC_OK);
    ended_ |= remote_request.over();
  }
  fetch.waiters.clear();
  if (fetch.ended && fetch.held) {
    fetch.ended(kept != kNoEntry && fetch.verdict_in ? MC_OK : held_status(fetch));
  } else if (fetch.ended) {
    fetch.ended(kept != kNoEntry ? MC_OK : MC_CANCELLED);
  }
  if (fetch.hot && hot_.size() < kMaxHot) {
    hot_.push_back({fetch.tenant, fetch.name, std::move(fetch.key), fetch.at, now_ns_ + kHotNs});
  }
  end(fetch);
}

void Fetcher::try_next(Fetch& fetch, std::uint64_t now_ns) {
  give_back(fetch);
  fetch.bytes_asked = false;
  if (now_ns >= fetch.deadline_ns) {
    miss(fetch, MC_NOT_FOUND, counters_.late);
    return;
  }
  if (fetch.from_cache || (fetch.next_holder + 1 >= fetch.holders.size() && !fetch.relocated &&
                           fetch.ended == nullptr)) {
    // Where it was it is no more: the master knows where it is, if anywhere.
    fetch.relocated = !fetch.from_cache;
    fetch.from_cache = false;
    fetch.step = Step::kLocate;
    locations_.forget(fetch.name);
    to_locate_.push_back(fetch.id);
    return;
  }
  if (fetch.next_holder + 1 >= fetch.holders.size() && std::exchange(fetch.joined, false)) {
    // What failed was begun before somebody joined: his is another try.
    fetch.step = Step::kLocate;
    locations_.forget(fetch.name);
    to_locate_.push_back(fetch.id);
    return;
  }
  if (++fetch.next_holder >= fetch.holders.size()) {
    miss(fetch, MC_NOT_FOUND, counters_.holders_failed);
    return;
  }
  ++counters_.next_holders;
  fetch.step = Step::kAsk;
  to_ask_.push_back(fetch.id);
}

void Fetcher::give_back(Fetch& fetch) {
  if (fetch.entry == kNoEntry) return;
  fetch.tenant->store().abandon(kClusterSession, std::exchange(fetch.entry, kNoEntry));
}

void Fetcher::miss(Fetch& fetch, mc_status status, std::uint64_t& reason) {
  ++reason;
  for (const Waiter& waiter : fetch.waiters) {
    RemoteRequest& remote_request = *waiter.remote_request;
    remote_request.settle(remote_request.items[waiter.item], status);
    ended_ |= remote_request.over();
  }
  fetch.waiters.clear();
  if (fetch.gather != 0) gatherer_.cancel(std::exchange(fetch.gather, 0));
  if (fetch.ended) fetch.ended(status);
  fetch.ended = nullptr;
  fetch.missed = true;
  // Reads may still land in the reservation; it goes back with the last of them.
  end(fetch);
}

void Fetcher::end(Fetch& fetch) {
  const auto same = by_name_.find(fetch.name);
  if (same != by_name_.end() && same->second == fetch.id) by_name_.erase(same);
  if (fetch.reads_open > 0) return;
  give_back(fetch);
  if (fetch.offered && !fetch.verdict_due && !fetch.kept) {
    take_back(fetch.offer, fetch.id,
              fetch.verdict_in ? std::optional(fetch.verdict) : std::nullopt);
  }
  fetches_.erase(fetch.id);
}

// ---- Time ---------------------------------------------------------------------------------------

// Who has the question and does not answer. The first answer counts, to whichever of the questions.
void Fetcher::ask_again(std::uint64_t now_ns) {
  for (auto at = asks_.begin(); at != asks_.end();) {
    AskBatch& batch = at->second;
    if (now_ns >= batch.again_ns) {
      batch.again_ns = UINT64_MAX;
      for (const std::uint64_t id : batch.fetches) {
        Fetch* const fetch = find(id);
        const bool waits = fetch != nullptr && fetch->step == Step::kAsking &&
                           fetch->holders[fetch->next_holder] == batch.node;
        if (!waits) continue;
        fetch->step = Step::kAsk;
        to_ask_.push_back(id);
      }
    }
    at = now_ns >= batch.until_ns + kMostLocateNs ? asks_.erase(at) : std::next(at);
  }
}

void Fetcher::check_times(std::uint64_t now_ns) {
  if (now_ns < next_check_ns_) return;
  next_check_ns_ = now_ns + kCheckNs;
  ask_again(now_ns);
  std::vector<std::uint64_t> late;
  for (const auto& [id, fetch] : fetches_) {
    // Whoever joined has a deadline of its own.
    std::erase_if(fetch->waiters, [&](const Waiter& waiter) {
      RemoteRequest& remote_request = *waiter.remote_request;
      if (now_ns < remote_request.deadline_ns) return false;
      ++counters_.late;
      remote_request.settle(remote_request.items[waiter.item], MC_NOT_FOUND);
      ended_ |= remote_request.over();
      return true;
    });
    if (!fetch->missed && fetch->try_until_ns != 0 && now_ns >= fetch->try_until_ns) {
      late.push_back(id);
    }
  }
  for (const std::uint64_t id : late) {
    Fetch& fetch = *find(id);
    switch (fetch.step) {
      case Step::kAsking:
        try_next(fetch, now_ns);
        break;
      case Step::kRoom:
        if (now_ns >= fetch.deadline_ns) miss(fetch, MC_NOT_FOUND, counters_.no_room);
        break;
      case Step::kOffered:
        // What has been offered for another host's client, or on a master's order, is kept if it is
        // taken, however late.
        if (now_ns >= fetch.deadline_ns && !fetch.held && !fetch.ended) deliver(fetch);
        break;
      case Step::kLocate:
      case Step::kLocating:
      case Step::kAsk:
      case Step::kGathering:
        if (now_ns >= fetch.deadline_ns) miss(fetch, MC_NOT_FOUND, counters_.late);
        break;
      case Step::kReading:  // its operations have deadlines
        break;
    }
  }
}

void Fetcher::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (!hot_.empty()) begin_copies(now_ns);
  if (fetches_.empty()) return;
  for (const std::uint64_t id : std::exchange(want_room_, {})) {
    if (Fetch* const fetch = find(id); fetch != nullptr && fetch->step == Step::kRoom) {
      seek_room(*fetch);
    }
  }
  if (!to_read_.empty()) submit_reads(now_ns);
  if (!to_sum_.empty()) sum_parts();
  if (!to_locate_.empty()) send_locates(now_ns);
  if (!to_ask_.empty()) send_asks(now_ns);
  check_times(now_ns);
}

std::uint64_t Fetcher::next_ns() const {
  if (!to_sum_.empty()) return 0;
  const std::uint64_t hot_ns = hot_.empty() ? UINT64_MAX : hot_.front().due_ns;
  return std::min(hot_ns, fetches_.empty() ? UINT64_MAX : next_check_ns_);
}

}  // namespace mc::agent
