// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/fetcher.h"

#include <algorithm>

#include "libmc/base/clock.h"

namespace mc::agent {

using metadata::KeyHash;

namespace {

constexpr std::uint64_t kFetcherCheckNs = kMs;
// The longest time that a holder has for the answer while another holder is left.
constexpr std::uint64_t kMostAskNs = 200 * kMs;
// How long a named holder may be missing from the list of members.
constexpr std::uint64_t kUnknownHolderNs = 500 * kMs;
// How long an object may lack some stripes, during a Seal or a replacement.
constexpr std::uint64_t kIncompleteNs = 500 * kMs;
constexpr std::uint64_t kLocateAgainNs = 5 * kMs;
constexpr std::size_t kMaxCachedExtents = 4;
// A location that has been used this often is worth a copy.
constexpr std::uint32_t kHotUses = 2;
constexpr std::uint64_t kHotCopyNs = 5'000 * kMs;
constexpr std::size_t kMaxFetchesForCopies = 16;  // with more fetches under way, no copy begins
constexpr std::size_t kMaxHeld = 64;              // under way for clients of other hosts
constexpr std::uint64_t kLongestHoldMs = 60'000;

}  // namespace

Fetcher::Fetcher(const Masters& masters, Peers& peers, transport::Transport& transport,
                 Announcer& announcer, Gatherer& gatherer, const metadata::Reader& reader)
    : peers_(peers),
      gatherer_(gatherer),
      locator_(masters, peers, reader, counters_,
               [this](std::uint64_t id, const metadata::Located* located,
                      std::span<const MemberId> holders) { on_located(id, located, holders); }),
      questions_(peers, counters_),
      reader_(peers, transport, counters_,
              [this](std::uint64_t id, ObjectReader::End result, FetchedObject object) {
                on_read(*find(id), result, std::move(object));
              }),
      keeper_(
          announcer, counters_,
          [this](std::uint64_t id, FetchedObject object, const CopyKeeper::Outcome& outcome) {
            Fetch& fetch = *find(id);
            fetch.object = std::move(object);
            deliver(fetch, outcome.entry, outcome.status);
          },
          [this](const KeyHash& name, std::uint64_t below_version, std::uint64_t by) {
            unjoin_if(name, [&](const Fetch& fetch) {
              return fetch.id != by && fetch.version < below_version;
            });
          }) {}

Fetcher::Fetch* Fetcher::find(std::uint64_t id) {
  const auto at = fetches_.find(id);
  return at == fetches_.end() ? nullptr : at->second.get();
}

// ---- Beginning ----------------------------------------------------------------------------------

Fetcher::Fetch& Fetcher::start(Purpose purpose, FetchedObject object, std::uint64_t deadline_ns) {
  auto made = std::make_unique<Fetch>();
  Fetch& fetch = *made;
  fetch.id = next_id_++;
  fetch.purpose = purpose;
  fetch.tenant = object.tenant;
  fetch.name = object.name;
  fetch.object = std::move(object);
  fetch.deadline_ns = deadline_ns;
  fetches_.emplace(fetch.id, std::move(made));
  by_name_[fetch.name] = fetch.id;
  ++counters_.fetches;
  return fetch;
}

void Fetcher::fetch(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
                    std::uint64_t now_ns) {
  now_ns_ = now_ns;
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    RemoteRequest::Item& item = remote_request->items[i];
    if (!item.open) continue;
    // The object may have arrived since the client looked.
    if (serve_locally(*remote_request, item, tenant)) {
      ended_ = true;
      continue;
    }
    const KeyHash name = tenant.name_of(item.key);
    if (const auto same = by_name_.find(name); same != by_name_.end()) {
      Fetch& fetch = *find(same->second);
      if (fetch.tenant == &tenant && may_join(fetch)) {
        ++counters_.joined;
        fetch.readers.add(remote_request, i);
        fetch.joined = true;
        fetch.deadline_ns = std::max(fetch.deadline_ns, remote_request->deadline_ns);
        reader_.update(fetch.id, fetch.deadline_ns, true);
        continue;
      }
    }
    Fetch& fetch = start(Purpose::kRead, {&tenant, name, item.key}, remote_request->deadline_ns);
    fetch.readers.add(remote_request, i);
    if (Location* const known = locator_.cached(name)) {
      fetch.known = Known::kFromCache;
      fetch.hot = ++known->uses >= kHotUses;
      fetch.object.from = *known;
      fetch.try_until_ns = std::min(fetch.deadline_ns, now_ns + Locator::kMostLocateNs);
      go_read(fetch);
      continue;
    }
    std::vector<MemberId> holders = locator_.known_holders(name);
    if (holders.empty()) {
      go_locate(fetch);
    } else {
      go_ask(fetch, std::move(holders));
    }
  }
}

void Fetcher::exists(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
                     std::uint64_t now_ns) {
  for (RemoteRequest::Item& item : remote_request->items) {
    if (item.open) ended_ |= serve_locally(*remote_request, item, tenant);
  }
  locator_.exists(remote_request, tenant, now_ns);
}

// A read under way may have begun before the object was removed, while the reader that wants to
// join asked after that. The master tells only known holders about the removal.
bool Fetcher::may_join(const Fetch& fetch) const {
  if (fetch.is_ordered() || fetch.bytes_may_come) return false;
  if (fetch.step == Step::kReading) return reader_.waits_for_room(fetch.id);
  return fetch.step != Step::kOffered && fetch.step != Step::kGathering;
}

template <typename Predicate>
void Fetcher::unjoin_if(const KeyHash& name, Predicate predicate) {
  const auto at = by_name_.find(name);
  if (at != by_name_.end() && predicate(*find(at->second))) by_name_.erase(at);
}

void Fetcher::copy(const std::vector<ClusterTenant*>& tenants, const KeyHash& name, MemberId source,
                   std::uint64_t deadline_ns, Ended ended) {
  for (ClusterTenant* const tenant : tenants) {
    if (tenant->find(name) != kNoEntry) return ended(MC_OK);
  }
  Fetch& fetch = start(Purpose::kOrderedCopy, {nullptr, name}, deadline_ns);
  keeper_.expect(fetch.id, name, std::nullopt);
  fetch.ended = std::move(ended);
  go_ask(fetch, {source});
}

void Fetcher::hold(ClusterTenant& tenant, const HoldRequest& message, MemberId writer,
                   std::uint64_t now_ns, Ended ended) {
  if (keeper_.holds(writer, message.request)) return;  // the message is repeated
  const PlaceRow& row = message.row;
  const KeyHash name = tenant.name_of(row.key);
  const bool upsert = message.upsert;
  const std::uint32_t there = tenant.find(name);
  if (there != kNoEntry && (!upsert || tenant.book().row(there).version == row.version)) {
    return ended(MC_OK);
  }
  if (!locator_.master_ready(name)) return ended(MC_BUSY);
  now_ns_ = now_ns;
  HoldJob hold;
  hold.order.upsert = upsert;
  begin_hold(Purpose::kHold, {&tenant, name, row.key}, std::move(hold), message, writer,
             std::move(ended));
}

void Fetcher::hold_stripe(ClusterTenant& tenant, const HoldRequest& message, MemberId writer,
                          std::uint64_t now_ns, Ended ended) {
  const PlaceRow& row = message.row;
  const std::string key = stripe_key({message.stripe->put, message.stripe->number});
  const KeyHash name = tenant.name_of(key);
  if (tenant.find(name) != kNoEntry) return ended(MC_OK);  // the message is repeated
  if (by_name_.contains(name)) return;
  now_ns_ = now_ns;
  HoldJob hold;
  hold.label = encode_label({*message.stripe, row.checksum, row.key});
  begin_hold(Purpose::kStripe, {&tenant, name, key}, std::move(hold), message, writer,
             std::move(ended));
}

void Fetcher::begin_hold(Purpose purpose, FetchedObject object, HoldJob hold,
                         const HoldRequest& message, MemberId writer, Ended ended) {
  const auto region = peers_.region_of(writer, message.region);
  if (!region || keeper_.hold_count() >= kMaxHeld) return ended(MC_BUSY);
  const PlaceRow& row = message.row;
  object.from = {writer, *region, row, 0};
  object.from.row.key.clear();
  hold.writer = writer;
  hold.request = message.request;
  hold.order.pin = static_cast<mc_pin>(row.pin);
  hold.order.pin_ttl_s = message.pin_ttl_s;
  const std::uint64_t label_bytes = hold.label.size();
  const std::uint64_t share_ms = std::min<std::uint64_t>(message.share_ms, kLongestHoldMs);
  Fetch& fetch = start(purpose, std::move(object), now_ns_ + share_ms * kMs);
  keeper_.expect(fetch.id, fetch.name, std::move(hold));
  fetch.ended = std::move(ended);
  fetch.try_until_ns = fetch.deadline_ns;
  go_read(fetch, label_bytes);
}

// Reads hot objects once more, to keep the objects. The readers did not wait for the master's
// verdict.
void Fetcher::begin_hot_copies(std::uint64_t now_ns) {
  while (fetches_.size() < kMaxFetchesForCopies) {
    std::optional<FetchedObject> hot = keeper_.take_hot(now_ns);
    if (!hot) return;
    if (by_name_.contains(hot->name) || hot->tenant->find(hot->name) != kNoEntry) continue;
    Fetch& fetch = start(Purpose::kHotCopy, std::move(*hot), now_ns + kHotCopyNs);
    keeper_.expect(fetch.id, fetch.name, std::nullopt);
    fetch.known = Known::kFromCache;
    fetch.try_until_ns = fetch.deadline_ns;
    go_read(fetch);
  }
}

bool Fetcher::forget(const ClusterTenant& tenant) {
  std::vector<std::uint64_t> gone;
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->tenant == &tenant || fetch->tenant == nullptr) gone.push_back(id);
  }
  for (const std::uint64_t id : gone) {
    Fetch* const fetch = find(id);
    if (fetch == nullptr) continue;
    reader_.cancel(id, true);
    miss(*fetch, MC_NOT_FOUND, counters_.holders_failed);
  }
  keeper_.forget_hot(tenant);
  return !reader_.reads_into(tenant) && !gatherer_.reads_into(tenant);
}

void Fetcher::dropped(const KeyHash& name, std::uint64_t up_to_version) {
  keeper_.drop(name, up_to_version);
  unjoin_if(name, [&](const Fetch& fetch) { return fetch.version <= up_to_version; });
}

void Fetcher::dropped(const ClusterTenant& tenant) {
  keeper_.drop(tenant);
  std::erase_if(by_name_, [&](const auto& each) {
    const ClusterTenant* const of = find(each.second)->tenant;
    return of == nullptr || of == &tenant;
  });
}

void Fetcher::put_here(const metadata::PublishItem& put) {
  keeper_.put_here(put);
  unjoin_if(put.hash, [&](const Fetch& fetch) { return !keeper_.will_keep(fetch.id); });
}

// ---- Steps --------------------------------------------------------------------------------------

void Fetcher::go_locate(Fetch& fetch) {
  fetch.step = Step::kLocate;
  to_locate_.push_back(fetch.id);
}

void Fetcher::go_ask(Fetch& fetch, std::vector<MemberId> holders) {
  fetch.holders = std::move(holders);
  fetch.next_holder = 0;
  fetch.step = Step::kAsk;
  to_ask_.push_back(fetch.id);
}

// The fetch may have ended on return.
void Fetcher::go_read(Fetch& fetch, std::uint64_t label_bytes) {
  fetch.step = Step::kReading;
  fetch.version = fetch.object.from.row.version;
  keeper_.found(fetch.id, fetch.tenant, fetch.version);
  ReadTerms terms;
  terms.deadline_ns = fetch.deadline_ns;
  terms.try_until_ns = fetch.try_until_ns;
  terms.label_bytes = label_bytes;
  terms.waited_for = !fetch.readers.empty();
  terms.room_must_come = fetch.purpose >= Purpose::kHold;
  reader_.read(fetch.id, std::move(fetch.object), terms);
}

void Fetcher::send_locates(std::uint64_t now_ns) {
  std::vector<std::uint64_t> due = std::exchange(to_locate_, {});
  std::erase_if(due, [&](std::uint64_t id) {
    const Fetch* const fetch = find(id);
    const bool early = fetch != nullptr && now_ns < fetch->not_before_ns;
    if (early) to_locate_.push_back(id);
    return early;
  });
  std::vector<Locator::Question> questions;
  std::ranges::reverse(due);
  for (const std::uint64_t id : due) {
    Fetch* const fetch = find(id);
    if (fetch == nullptr) continue;
    if (!locator_.master_ready(fetch->name)) {
      miss(*fetch, MC_NOT_FOUND, counters_.master_away);
      continue;
    }
    fetch->step = Step::kLocating;
    fetch->try_until_ns = std::min(fetch->deadline_ns, now_ns + Locator::kMostLocateNs);
    questions.push_back({id, fetch->name, fetch->try_until_ns});
  }
  // A miss may have ended other fetches.
  std::erase_if(questions, [this](const auto& each) { return find(each.id) == nullptr; });
  locator_.locate(questions, now_ns);
}

void Fetcher::on_located(std::uint64_t id, const metadata::Located* located,
                         std::span<const MemberId> holders) {
  Fetch* const fetch = find(id);
  if (fetch == nullptr || fetch->step != Step::kLocating) return;
  if (located == nullptr) return miss(*fetch, MC_NOT_FOUND, counters_.master_away);
  if (located->state != metadata::Lookup::kFound) {
    const bool recovering = located->state == metadata::Lookup::kRecovering;
    return miss(*fetch, MC_NOT_FOUND, recovering ? counters_.recovering : counters_.nobody);
  }
  if (located->attributes.striped) return gather(*fetch, *located, holders);
  go_ask(*fetch, peers_.reading_order(fetch->name, holders));
}

// Asks the next holder of each object.
void Fetcher::send_asks(std::uint64_t now_ns) {
  std::vector<HolderQuestions::Question> questions;
  for (const std::uint64_t id : std::exchange(to_ask_, {})) {
    Fetch* const fetch = find(id);
    if (fetch == nullptr || fetch->step != Step::kAsk) continue;
    const std::vector<MemberId>& holders = fetch->holders;
    while (fetch->next_holder < holders.size() && !peers_.id_of(holders[fetch->next_holder])) {
      ++fetch->next_holder;
    }
    if (fetch->next_holder >= holders.size() && !holders.empty()) {
      // A holder may have joined a moment ago.
      peers_.missed();
      if (fetch->patience_ns == 0) fetch->patience_ns = now_ns + kUnknownHolderNs;
      if (now_ns < std::min(fetch->patience_ns, fetch->deadline_ns)) {
        fetch->next_holder = 0;
        to_ask_.push_back(id);
        continue;
      }
    }
    if (fetch->next_holder >= holders.size()) {
      miss(*fetch, MC_NOT_FOUND, counters_.holders_failed);
      continue;
    }
    const std::size_t left = holders.size() - fetch->next_holder;
    const std::uint64_t left_ns = fetch->deadline_ns > now_ns ? fetch->deadline_ns - now_ns : 0;
    const std::uint64_t share_ns =
        std::clamp(left_ns / left, ObjectReader::kLeastTryNs, kMostAskNs);
    // The last holder may take all the time that is left.
    fetch->try_until_ns = left > 1 ? now_ns + share_ns : fetch->deadline_ns;
    fetch->step = Step::kAsking;
    questions.push_back({id, holders[fetch->next_holder],
                         fetch->tenant == nullptr ? 0 : fetch->tenant->id(), fetch->name,
                         fetch->try_until_ns});
  }
  std::erase_if(questions, [this](const auto& each) { return find(each.id) == nullptr; });
  const std::vector<std::uint64_t> unsent = questions_.ask(questions, now_ns);
  for (const auto& each : questions) find(each.id)->bytes_may_come = each.for_bytes;
  for (const std::uint64_t id : unsent) {
    find(id)->step = Step::kAsk;
    to_ask_.push_back(id);
  }
}

void Fetcher::on_answer(MemberId from, const AskAnswer& message,
                        const std::vector<std::unique_ptr<ClusterTenant>>& tenants) {
  questions_.on_answer(
      from, message,
      [&](std::uint64_t id, std::optional<transport::RemoteRegionId> region, const PlaceRow& row) {
        Fetch* const fetch = find(id);
        if (fetch == nullptr || fetch->step != Step::kAsking) return false;
        if (fetch->tenant == nullptr && row.held) {
          const auto of = std::ranges::find(tenants, message.name_space,
                                            [](const auto& tenant) { return tenant->id(); });
          if (of == tenants.end() || row.key.empty() || (*of)->name_of(row.key) != fetch->name) {
            miss(*fetch, MC_NOT_FOUND, counters_.holders_failed);
            return false;
          }
          fetch->tenant = fetch->object.tenant = of->get();
          fetch->object.key = row.key;
        }
        if (row.held && region) {
          take_place(*fetch, from, *region, row);
        } else {
          try_next(*fetch, now_ns_);
        }
        return true;
      });
}

void Fetcher::take_place(Fetch& fetch, MemberId from, transport::RemoteRegionId region,
                         const PlaceRow& row) {
  Location& location = fetch.object.from;
  location.node = from;
  location.region = region;
  location.row = row;
  location.row.key.clear();
  fetch.object.bytes = std::exchange(location.row.bytes, {});
  fetch.bytes_may_come = !fetch.object.bytes.empty();
  if (!fetch.is_ordered() && row.extents.size() <= kMaxCachedExtents) {
    location.uses = 1;
    locator_.locations().put(fetch.name, location);
  }
  go_read(fetch);
}

void Fetcher::on_event(const transport::Event& event) {
  if ((event.cookie & HolderQuestions::kAskCookie) == 0) return reader_.on_event(event);
  for (const std::uint64_t id : questions_.on_event(event, now_ns_)) {
    Fetch* const fetch = find(id);
    if (fetch != nullptr && fetch->step == Step::kAsking) try_next(*fetch, now_ns_);
  }
}

void Fetcher::on_read(Fetch& fetch, ObjectReader::End result, FetchedObject object) {
  fetch.object = std::move(object);
  if (result == ObjectReader::End::kNoRoom) return miss(fetch, MC_NO_SPACE, counters_.no_room);
  if (result == ObjectReader::End::kFailed) {
    locator_.locations().forget(fetch.name);
    return try_next(fetch, now_ns_);
  }
  if (fetch.purpose == Purpose::kRead) return deliver(fetch);
  if (fetch.purpose != Purpose::kStripe) {
    fetch.step = Step::kOffered;
    return keeper_.keep(fetch.id, std::move(fetch.object), fetch.deadline_ns, now_ns_);
  }
  const mc_status status = keeper_.shelve(fetch.id, fetch.object);
  if (status != MC_OK) {
    return miss(fetch, status, status == MC_NO_SPACE ? counters_.no_room : counters_.late);
  }
  fetch.ended(MC_OK);
  end(fetch);
}

// ---- Objects in stripes -------------------------------------------------------------------------

// False: the fetch has waited long enough for the missing stripes.
bool Fetcher::locate_again(Fetch& fetch) {
  if (fetch.patience_ns == 0) fetch.patience_ns = now_ns_ + kIncompleteNs;
  if (now_ns_ >= std::min(fetch.patience_ns, fetch.deadline_ns)) return false;
  fetch.not_before_ns = now_ns_ + kLocateAgainNs;
  go_locate(fetch);
  return true;
}

void Fetcher::gather(Fetch& fetch, const metadata::Located& located,
                     std::span<const MemberId> holders) {
  if (fetch.purpose != Purpose::kRead) {
    return miss(fetch, MC_UNSUPPORTED, counters_.holders_failed);
  }
  if (!located.whole()) {
    if (!locate_again(fetch)) miss(fetch, MC_NOT_FOUND, counters_.incomplete);
    return;
  }
  fetch.step = Step::kGathering;
  fetch.try_until_ns = fetch.deadline_ns;
  fetch.hot = false;
  fetch.object.from = {};
  fetch.version = located.version;
  Gatherer::Wanted wanted;
  wanted.name = fetch.name;
  wanted.version = located.version;
  wanted.bytes = located.bytes;
  wanted.holders.assign(holders.begin(), holders.end());
  wanted.deadline_ns = fetch.deadline_ns;
  fetch.gather =
      gatherer_.gather(*fetch.tenant, std::move(wanted),
                       [this, id = fetch.id, alive = std::weak_ptr(alive_)](
                           mc_status status, std::uint32_t entry, const StripeFacts& facts) {
                         Fetch* const gathered = alive.expired() ? nullptr : find(id);
                         if (gathered != nullptr) on_gathered(*gathered, status, entry, facts);
                       });
}

void Fetcher::on_gathered(Fetch& fetch, mc_status status, std::uint32_t entry,
                          const StripeFacts& facts) {
  fetch.gather = 0;
  if (status != MC_OK) {
    const bool lacks = status != MC_NO_SPACE;
    if (lacks && locate_again(fetch)) return;
    return miss(fetch, MC_NOT_FOUND, lacks ? counters_.incomplete : counters_.no_room);
  }
  fetch.object.entry = entry;
  fetch.object.from.row.length = facts.whole_bytes;
  fetch.object.from.row.checksum = facts.whole_sum;
  ++counters_.read_objects;
  counters_.read_bytes += facts.whole_bytes;
  deliver(fetch);
}

// ---- Ends ---------------------------------------------------------------------------------------

// kept: the live entry if the object is kept. status: for the node that ordered the fetch.
void Fetcher::deliver(Fetch& fetch, std::uint32_t kept, mc_status status) {
  ended_ |= fetch.readers.serve(fetch.object, kept, counters_);
  if (fetch.ended) fetch.ended(status);
  fetch.object.give_back();
  if (fetch.hot) keeper_.add_hot(std::move(fetch.object), now_ns_);
  end(fetch);
}

// Goes to the next holder, or back to the master if the known holders are stale.
void Fetcher::try_next(Fetch& fetch, std::uint64_t now_ns) {
  fetch.bytes_may_come = false;
  if (now_ns >= fetch.deadline_ns) return miss(fetch, MC_NOT_FOUND, counters_.late);
  const bool cached = fetch.known == Known::kFromCache;
  const bool last = fetch.next_holder + 1 >= fetch.holders.size();
  const bool relocate = last && fetch.known == Known::kFirst && !fetch.is_ordered();
  // A reader that joined after the last question gets another question.
  if (cached || relocate || (last && std::exchange(fetch.joined, false))) {
    fetch.known = cached ? Known::kFirst : Known::kRelocated;
    locator_.locations().forget(fetch.name);
    return go_locate(fetch);
  }
  if (++fetch.next_holder >= fetch.holders.size()) {
    return miss(fetch, MC_NOT_FOUND, counters_.holders_failed);
  }
  ++counters_.next_holders;
  fetch.step = Step::kAsk;
  to_ask_.push_back(fetch.id);
}

void Fetcher::miss(Fetch& fetch, mc_status status, std::uint64_t& reason) {
  ++reason;
  ended_ |= fetch.readers.fail(status);
  if (fetch.gather != 0) gatherer_.cancel(std::exchange(fetch.gather, 0));
  if (fetch.ended) fetch.ended(status);
  end(fetch);
}

void Fetcher::end(Fetch& fetch) {
  unjoin_if(fetch.name, [&](const Fetch& each) { return &each == &fetch; });
  reader_.cancel(fetch.id);
  fetch.object.give_back();
  keeper_.forget(fetch.id);
  fetches_.erase(fetch.id);
}

// ---- Time ---------------------------------------------------------------------------------------

void Fetcher::check_times(std::uint64_t now_ns) {
  if (now_ns < next_check_ns_) return;
  next_check_ns_ = now_ns + kFetcherCheckNs;
  for (const HolderQuestions::Overdue& overdue : questions_.take_overdue(now_ns)) {
    Fetch* const fetch = find(overdue.id);
    if (fetch == nullptr || fetch->step != Step::kAsking) continue;
    if (fetch->holders[fetch->next_holder] != overdue.holder) continue;
    fetch->step = Step::kAsk;
    to_ask_.push_back(overdue.id);
  }
  std::vector<std::uint64_t> late;
  for (const auto& [id, fetch] : fetches_) {
    if (!fetch->readers.empty()) {
      ended_ |= fetch->readers.expire(now_ns, counters_);
      if (fetch->readers.empty()) reader_.update(id, fetch->deadline_ns, false);
    }
    if (fetch->try_until_ns != 0 && now_ns >= fetch->try_until_ns) late.push_back(id);
  }
  for (const std::uint64_t id : late) {
    if (Fetch* const fetch = find(id)) on_late(*fetch, now_ns);
  }
}

void Fetcher::on_late(Fetch& fetch, std::uint64_t now_ns) {
  if (fetch.step == Step::kAsking) return try_next(fetch, now_ns);
  if (now_ns < fetch.deadline_ns) return;
  if (fetch.step == Step::kReading) {
    // The transport's operations have deadlines.
    if (reader_.waits_for_room(fetch.id)) miss(fetch, MC_NOT_FOUND, counters_.no_room);
  } else if (fetch.step != Step::kOffered) {
    miss(fetch, MC_NOT_FOUND, counters_.late);
  } else if (!fetch.is_ordered()) {
    // An object that another node ordered is kept however late the verdict comes.
    fetch.object = keeper_.stop_waiting(fetch.id);
    deliver(fetch);
  }
}

void Fetcher::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  begin_hot_copies(now_ns);
  reader_.flush(now_ns);
  if (fetches_.empty()) return;
  if (!to_locate_.empty()) send_locates(now_ns);
  if (!to_ask_.empty()) send_asks(now_ns);
  check_times(now_ns);
}

std::uint64_t Fetcher::next_ns() const {
  if (reader_.has_sums()) return 0;
  return std::min(keeper_.next_hot_ns(), fetches_.empty() ? UINT64_MAX : next_check_ns_);
}

bool Fetcher::take_ended() {
  const bool located = locator_.take_ended();
  return std::exchange(ended_, false) || located;
}

}  // namespace mc::agent
