// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/fetcher.h"

#include <algorithm>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::agent {

using metadata::KeyHash;

namespace {

// The longest time that a holder has for the answer while another holder is left.
constexpr std::uint64_t kMostAskNs = 200 * kMs;
// How long a named holder may be missing from the list of members, and how often to look.
constexpr std::uint64_t kUnknownHolderNs = 500 * kMs;
constexpr std::uint64_t kHolderLookNs = kMs;
// How long an object may lack some stripes, during a Seal or a replacement.
constexpr std::uint64_t kIncompleteNs = 500 * kMs;
constexpr std::uint64_t kLocateAgainNs = 5 * kMs;
constexpr std::size_t kMaxCachedExtents = 4;
// A location that has been used this often is worth a copy.
constexpr std::uint32_t kHotUses = 2;

}  // namespace

Fetcher::Fetcher(OperationTable& operations, const ClusterTenants& tenants, const Masters& masters,
                 Peers& peers, transport::Transport& transport, Announcer& announcer,
                 const metadata::Reader& reader, MemberId self)
    : operations_(operations),
      peers_(peers),
      most_message_bytes_(transport.capabilities().max_notification_bytes),
      locator_(operations, masters, peers, reader, counters_),
      questions_(operations, peers, counters_),
      reader_(operations, peers, transport, counters_),
      gatherer_(operations, peers, reader_, self),
      joinable_(operations),
      keeper_(operations, tenants, peers, announcer, locator_, questions_, reader_, joinable_,
              counters_) {}

// ---- Beginning ----------------------------------------------------------------------------------

void Fetcher::fetch(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant) {
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    RemoteRequest::Item& item = remote_request->items[i];
    if (!item.open) continue;
    // The object may have arrived since the client looked.
    const bool own = may_serve_own(tenant, item.key) &&
                     (serve_locally(operations_, *remote_request, item, tenant) ||
                      read_own_disks(remote_request, i, tenant));
    if (!own) fetch(remote_request, i, tenant);
  }
}

void Fetcher::fetch(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t number,
                    ClusterTenant& tenant) {
  const RemoteRequest::Item& item = remote_request->items[number];
  const KeyHash name = tenant.name_of(item.key);
  if (Fetch* const same = joinable_.find(name);
      same != nullptr && same->tenant() == &tenant && may_join(*same)) {
    ++counters_.joined;
    same->readers.add(remote_request, number);
    same->joined = true;
    same->deadline_ns = std::max(same->deadline_ns, remote_request->deadline_ns);
    reader_.update(same->read, same->deadline_ns, true);
    operations_.wake(*same);
    return;
  }
  ++counters_.fetches;
  Fetch& fetch = operations_.begin(std::make_unique<Fetch>(*this, name), &tenant);
  fetch.object.tenant = &tenant;
  fetch.object.name = name;
  fetch.object.key = item.key;
  fetch.begun_ns = operations_.now_ns();
  fetch.deadline_ns = remote_request->deadline_ns;
  fetch.readers.add(remote_request, number);
  joinable_.add(fetch);
  if (Location* const known = locator_.cached(name)) {
    fetch.known = Known::kFromCache;
    fetch.hot = ++known->uses >= kHotUses;
    if (bytes_fit_answer(known->row, most_message_bytes_)) return go_ask(fetch, {known->node});
    fetch.object.from = *known;
    fetch.try_until_ns = std::min(fetch.deadline_ns, operations_.now_ns() + Locator::kMostLocateNs);
    fetch.at = Step::kRead;
  } else if (std::vector<MemberId> holders = locator_.known_holders(name); !holders.empty()) {
    go_ask(fetch, std::move(holders));
  }
}

void Fetcher::exists(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant) {
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    RemoteRequest::Item& item = remote_request->items[i];
    if (!item.open || !may_serve_own(tenant, item.key)) continue;
    if (serve_locally(operations_, *remote_request, item, tenant)) continue;
    read_own_disks(remote_request, i, tenant);
  }
  locator_.exists(remote_request, tenant);
}

// The disks settle the item, or call look_elsewhere(). Returns false if no disk has the object.
bool Fetcher::read_own_disks(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item,
                             const ClusterTenant& tenant) {
  LocalDisks* const disks = tenant.disks();
  const std::string& key = remote_request->items[item].key;
  if (disks == nullptr || disks->version_of(tenant.shared_name(key)) == 0) return false;
  disks->begin_item(remote_request, item, operations_.now_ns());
  return true;
}

// A master was asked already about each item of a kExists that the disks have not settled at once.
void Fetcher::look_elsewhere(const std::shared_ptr<RemoteRequest>& remote_request, std::size_t item,
                             ClusterTenant& tenant) {
  if (remote_request->kind == RemoteRequest::Kind::kFetch) fetch(remote_request, item, tenant);
}

bool Fetcher::may_serve_own(const ClusterTenant& tenant, std::string_view key) const {
  return !tenant.tenant()->reads_need_lease ||
         locator_.readable(tenant.name_of(key), peers_.self());
}

// A read under way may have begun before the object was removed, while the reader that wants to
// join asked after that. The master tells only known holders about the removal.
bool Fetcher::may_join(const Fetch& fetch) const {
  if (fetch.bytes_may_come) return false;
  if (fetch.at == Step::kReading) return reader_.waits_for_room(fetch.read);
  return fetch.at != Step::kGathering;
}

bool Fetcher::forget(const ClusterTenant& tenant) {
  keeper_.forget_hot(tenant);
  operations_.cancel_all(tenant);
  return !operations_.uses(tenant);
}

void Fetcher::dropped(const KeyHash& name, std::uint64_t up_to_version) {
  keeper_.drop(name, up_to_version);
  joinable_.remove_if(name, [&](const Fetch& fetch) { return fetch.version <= up_to_version; });
}

void Fetcher::dropped(const ClusterTenant& tenant) {
  keeper_.drop(tenant);
  joinable_.remove(tenant);
}

void Fetcher::replaced(const KeyHash& name, std::uint64_t up_to_version) {
  locations().forget(name);
  dropped(name, up_to_version);
}

void Fetcher::put_elsewhere(const KeyHash& name, std::uint64_t version, bool upsert) {
  locations().forget(name);
  joinable_.remove_if(name, [&](const Fetch& fetch) { return fetch.version < version; });
  // A create replaces no object, and the master may have ordered a copy of the new object here.
  if (upsert) keeper_.drop(name, version - 1);
}

void Fetcher::put_here(const metadata::PublishItem& put) {
  keeper_.put_here(put);
  joinable_.remove_if(put.hash, [](const Fetch&) { return true; });
}

void Fetcher::prepare() {
  keeper_.begin_hot_copies();
  reader_.prepare();
}

void Fetcher::send() {
  locator_.send();
  questions_.send();
  reader_.submit();
}

std::uint64_t Fetcher::next_ns() const { return reader_.has_sums() ? 0 : keeper_.next_hot_ns(); }

// ---- Steps --------------------------------------------------------------------------------------

void Fetch::step() { fetcher.step(*this); }
void Fetch::cancel() { fetcher.fail(*this, fetcher.counters_.holders_failed, MC_NOT_FOUND); }

void Fetcher::step(Fetch& fetch) {
  const std::uint64_t now_ns = operations_.now_ns();
  if (!fetch.readers.empty()) {
    fetch.readers.expire(operations_, counters_);
    if (fetch.readers.empty()) reader_.update(fetch.read, fetch.deadline_ns, false);
  }
  Step before;
  do {
    before = fetch.at;
    go_on(fetch);
    if (fetch.over()) return;
  } while (fetch.at != before);
  std::uint64_t next_ns = fetch.readers.next_deadline_ns();
  for (const std::uint64_t time_ns : {fetch.deadline_ns, fetch.try_until_ns, fetch.not_before_ns}) {
    if (time_ns > now_ns) next_ns = std::min(next_ns, time_ns);
  }
  if (fetch.at == Step::kAsk) next_ns = std::min(next_ns, now_ns + kHolderLookNs);
  operations_.wake_at(fetch, next_ns);
}

void Fetcher::go_on(Fetch& fetch) {
  switch (fetch.at) {
    case Step::kLocate:
      if (is_late(fetch)) return late(fetch);
      return ask_master(fetch);
    case Step::kLocating:
      if (fetch.found) return take_found(fetch);
      if (is_late(fetch)) late(fetch);
      return;
    case Step::kAsk:
      if (is_late(fetch)) return late(fetch);
      return ask_holder(fetch);
    case Step::kAsking:
      if (fetch.answer) return take_answer(fetch);
      if (operations_.now_ns() >= fetch.try_until_ns) try_next(fetch);
      return;
    case Step::kRead:
      return read(fetch);
    case Step::kReading:
      return take_read(fetch);
    case Step::kGathering:
      return take_gathered(fetch);
  }
}

void Fetcher::go_ask(Fetch& fetch, std::vector<MemberId> holders) {
  fetch.holders = std::move(holders);
  fetch.next_holder = 0;
  fetch.holder_away = false;
  fetch.at = Step::kAsk;
}

void Fetcher::ask_master(Fetch& fetch) {
  const std::uint64_t now_ns = operations_.now_ns();
  if (now_ns < fetch.not_before_ns) return;
  if (!locator_.master_ready(fetch.name)) return fail_without_master(fetch, counters_.master_away);
  fetch.try_until_ns = std::min(fetch.deadline_ns, now_ns + Locator::kMostLocateNs);
  fetch.stage_ns = now_ns;
  fetch.found.reset();
  locator_.ask({fetch.id(), fetch.name, fetch.try_until_ns});
  ask_guess(fetch);
  fetch.at = Step::kLocating;
}

void Fetcher::ask_guess(Fetch& fetch) {
  const MemberId guess = guess_.node();
  const bool tried = fetch.ignored != metadata::kNoNode || fetch.located_version != 0;
  if (guess == metadata::kNoNode || tried || !peers_.id_of(guess)) return;
  ++counters_.guesses;
  fetch.guessed = fetch.asked = guess;
  questions_.ask({fetch.id(), guess, fetch.tenant()->id(), fetch.name, fetch.try_until_ns});
}

void Fetcher::take_found(Fetch& fetch) {
  const FoundObject found = *std::exchange(fetch.found, std::nullopt);
  if (!found.answered) return fail_without_master(fetch, counters_.master_away);
  if (found.object.state != metadata::Lookup::kFound) {
    guess_.learn({});
    if (found.object.state == metadata::Lookup::kRecovering) {
      return fail_without_master(fetch, counters_.recovering);
    }
    return fail(fetch, counters_.nobody, MC_NOT_FOUND);
  }
  counters_.locate.add(operations_.now_ns() - fetch.stage_ns);
  const bool striped = found.object.attributes.striped;
  if (found.object.bytes > most_message_bytes_) fetch.bytes_may_come = false;
  if (!striped && serve_own(fetch, found)) return;
  const std::uint64_t before =
      std::exchange(fetch.located_version, striped ? 0 : found.object.version);
  // The object was replaced meanwhile, so the holders that failed say nothing about these holders.
  if (fetch.located_version > before) fetch.known = Known::kFirst;
  if (!striped) {
    go_ask(fetch, peers_.reading_order(fetch.name, found.holders, found.object.on_disk));
    guess_.learn(fetch.holders);
    if (!fetch.holders.empty() && fetch.holders.front() == fetch.guessed) {
      // The answer has come or is under way.
      ++counters_.right_guesses;
      fetch.try_until_ns = end_of_try(fetch);
      fetch.at = Step::kAsking;
      return;
    }
  }
  fetch.ignored = std::exchange(fetch.guessed, metadata::kNoNode);
  fetch.asked = metadata::kNoNode;
  fetch.answer.reset();
  if (striped) gather(fetch, found);
}

// The object has arrived here meanwhile, or the host may read the object only by the master's word.
bool Fetcher::serve_own(Fetch& fetch, const FoundObject& found) {
  if (std::ranges::find(found.holders, peers_.self()) == found.holders.end()) return false;
  // The master's answer is older than the request of a reader that has joined.
  if (std::exchange(fetch.joined, false) && !may_serve_own(*fetch.tenant(), fetch.object.key)) {
    fetch.at = Step::kLocate;
    return true;
  }
  ClusterTenant& tenant = *fetch.tenant();
  fetch.readers.serve_own(operations_, tenant);
  if (tenant.disks() != nullptr && tenant.disks()->version_of(shared_name_of(fetch.name)) != 0) {
    for (const auto& [request, item] : fetch.readers.take_untried()) {
      // A reader that the disks cannot serve may join this fetch again.
      if (request->items[item].open) read_own_disks(request, item, tenant);
    }
  }
  if (!fetch.readers.empty()) return false;
  end(fetch);
  return true;
}

// When the next holder should be asked. The last holder that a master has named may take all the time that is left.
std::uint64_t Fetcher::end_of_try(const Fetch& fetch) const {
  const std::size_t left = fetch.holders.size() - fetch.next_holder;
  if (left == 1 && fetch.known != Known::kFromCache) return fetch.deadline_ns;
  const std::uint64_t now_ns = operations_.now_ns();
  return now_ns +
         std::clamp((fetch.deadline_ns - now_ns) / left, ObjectReader::kLeastTryNs, kMostAskNs);
}

void Fetcher::ask_holder(Fetch& fetch) {
  const std::uint64_t now_ns = operations_.now_ns();
  if (now_ns < fetch.not_before_ns) return;
  const std::vector<MemberId>& holders = fetch.holders;
  while (fetch.next_holder < holders.size() && !peers_.id_of(holders[fetch.next_holder])) {
    ++fetch.next_holder;
  }
  if (fetch.next_holder >= holders.size()) {
    if (holders.empty()) return fail(fetch, counters_.holders_failed, MC_NOT_FOUND);
    // A holder may have joined a moment ago.
    peers_.missed();
    if (fetch.patience_ns == 0) fetch.patience_ns = now_ns + kUnknownHolderNs;
    if (now_ns >= fetch.patience_ns) {
      return fail(fetch, counters_.holders_failed, MC_HOLDER_AWAY);
    }
    fetch.next_holder = 0;
    return;
  }
  fetch.stage_ns = now_ns;
  fetch.try_until_ns = end_of_try(fetch);
  fetch.asked = holders[fetch.next_holder];
  if (fetch.asked == fetch.ignored) fetch.ignored = metadata::kNoNode;
  fetch.answer.reset();
  questions_.ask({fetch.id(), fetch.asked, fetch.tenant()->id(), fetch.name, fetch.try_until_ns});
  fetch.at = Step::kAsking;
}

void Fetcher::take_answer(Fetch& fetch) {
  HolderAnswer answer = *std::exchange(fetch.answer, std::nullopt);
  const bool place = answer.what == HolderAnswer::What::kPlace;
  // The guessed host may have answered before the master, about the state of that time.
  const bool early = std::exchange(fetch.guessed, metadata::kNoNode) == answer.from;
  if (early && !(place && answer.row.version == fetch.located_version)) {
    fetch.at = Step::kAsk;
    return;
  }
  const bool stale = place && answer.row.version < fetch.located_version;
  if (answer.what == HolderAnswer::What::kUnreached) fetch.holder_away = true;
  // A known holder is not asked twice: the master may name another holder.
  const bool relocate = answer.again() && fetch.known == Known::kFromCache;
  if (answer.failed() || stale || relocate) return try_next(fetch);
  if (answer.again()) {
    fetch.not_before_ns = operations_.now_ns() + HolderQuestions::kAskAgainNs;
    fetch.at = Step::kAsk;
    return;
  }
  // After a failed read, the holder behind this one is next, also if others were asked meanwhile.
  const auto holder = std::ranges::find(fetch.holders, answer.from);
  if (holder != fetch.holders.end()) {
    fetch.next_holder = static_cast<std::size_t>(holder - fetch.holders.begin());
  }
  counters_.ask.add(operations_.now_ns() - fetch.stage_ns);
  Location& location = fetch.object.from;
  location.node = answer.from;
  location.region = answer.region;
  location.row = std::move(answer.row);
  location.row.key.clear();
  fetch.object.bytes = std::exchange(location.row.bytes, {});
  fetch.bytes_may_come = !fetch.object.bytes.empty();
  if (location.row.extents.size() <= kMaxCachedExtents) {
    location.uses = 1;
    locator_.locations().put(fetch.name, location);
  }
  fetch.at = Step::kRead;
}

void Fetcher::read(Fetch& fetch) {
  // The master's answer is older than the request of a reader that has joined.
  if (fetch.joined && !locator_.readable(fetch.name, fetch.object.from.node)) {
    fetch.joined = false;
    fetch.at = Step::kLocate;
    return;
  }
  fetch.stage_ns = operations_.now_ns();
  fetch.version = fetch.object.from.row.version;
  if (!fetch.object.bytes.empty()) {
    if (const auto end = reader_.read_now(fetch.object)) return take_end(fetch, *end);
  }
  ReadTerms terms;
  terms.deadline_ns = fetch.deadline_ns;
  terms.try_until_ns = fetch.try_until_ns;
  terms.waited_for = !fetch.readers.empty();
  fetch.read = reader_.begin(std::exchange(fetch.object, {}), terms, fetch.id());
  fetch.at = Step::kReading;
}

void Fetcher::take_read(Fetch& fetch) {
  const std::unique_ptr<Read> read = operations_.take<Read>(fetch.read);
  if (read == nullptr) {
    if (!is_late(fetch)) return;
    if (!reader_.waits_for_room(fetch.read)) return late(fetch);
    return fail(fetch, counters_.no_room, MC_NO_SPACE);
  }
  fetch.object = std::move(read->object);
  if (read->holder_away()) fetch.holder_away = true;
  take_end(fetch, read->end);
}

void Fetcher::take_end(Fetch& fetch, Read::End end) {
  switch (end) {
    case Read::End::kRead:
      return deliver(fetch);
    case Read::End::kNoRoom:
      return fail(fetch, counters_.no_room, MC_NO_SPACE);
    case Read::End::kFailed:
      locator_.locations().forget(fetch.name);
      return try_next(fetch);
  }
}

// Goes to the next holder, or back to the master if the known holders are stale.
void Fetcher::try_next(Fetch& fetch) {
  fetch.asked = metadata::kNoNode;
  fetch.bytes_may_come = false;
  if (is_late(fetch)) return late(fetch);
  const bool cached = fetch.known == Known::kFromCache;
  const bool last = fetch.next_holder + 1 >= fetch.holders.size();
  const bool relocate = last && fetch.known == Known::kFirst;
  // A reader that joined after the last question gets another question.
  if (cached || relocate || (last && std::exchange(fetch.joined, false))) {
    fetch.known = cached ? Known::kFirst : Known::kRelocated;
    locator_.locations().forget(fetch.name);
    fetch.at = Step::kLocate;
    return;
  }
  if (++fetch.next_holder >= fetch.holders.size()) {
    return fail(fetch, counters_.holders_failed, fetch.holder_away ? MC_HOLDER_AWAY : MC_NOT_FOUND);
  }
  ++counters_.next_holders;
  fetch.at = Step::kAsk;
}

// ---- Objects in stripes -------------------------------------------------------------------------

// False: the fetch has waited long enough for the missing stripes.
bool Fetcher::locate_again(Fetch& fetch) {
  const std::uint64_t now_ns = operations_.now_ns();
  if (fetch.patience_ns == 0) fetch.patience_ns = now_ns + kIncompleteNs;
  if (now_ns >= std::min(fetch.patience_ns, fetch.deadline_ns)) return false;
  fetch.not_before_ns = now_ns + kLocateAgainNs;
  fetch.at = Step::kLocate;
  return true;
}

void Fetcher::gather(Fetch& fetch, const FoundObject& found) {
  if (!found.object.whole()) {
    if (!locate_again(fetch)) fail(fetch, counters_.incomplete, MC_NOT_FOUND);
    return;
  }
  fetch.stage_ns = operations_.now_ns();
  fetch.try_until_ns = fetch.deadline_ns;
  fetch.hot = false;
  fetch.object.from = {};
  fetch.version = found.object.version;
  Gather::Wanted wanted;
  wanted.name = fetch.name;
  wanted.version = found.object.version;
  wanted.bytes = found.object.bytes;
  wanted.holders = found.holders;
  wanted.deadline_ns = fetch.deadline_ns;
  fetch.gather = gatherer_.begin(*fetch.tenant(), std::move(wanted), fetch.id());
  fetch.at = Step::kGathering;
}

void Fetcher::take_gathered(Fetch& fetch) {
  const std::unique_ptr<Gather> gather = operations_.take<Gather>(fetch.gather);
  if (gather == nullptr) return;
  if (gather->status != MC_OK) {
    const bool lacks = gather->status != MC_NO_SPACE;
    if (lacks && locate_again(fetch)) return;
    return fail(fetch, lacks ? counters_.incomplete : counters_.no_room, gather->status);
  }
  fetch.object.entry = std::exchange(gather->object.entry, kNoEntry);
  fetch.object.from.row.length = gather->facts.whole_bytes;
  fetch.object.from.row.checksum = gather->facts.whole_sum;
  ++counters_.read_objects;
  counters_.read_bytes += gather->facts.whole_bytes;
  deliver(fetch);
}

// ---- Ends ---------------------------------------------------------------------------------------

void Fetcher::deliver(Fetch& fetch) {
  counters_.read.add(operations_.now_ns() - fetch.stage_ns);
  counters_.whole.add(operations_.now_ns() - fetch.begun_ns);
  fetch.readers.serve(operations_, fetch.object, counters_);
  fetch.object.give_back();
  if (fetch.hot) keeper_.add_hot(std::move(fetch.object));
  end(fetch);
}

void Fetcher::fail_without_master(Fetch& fetch, std::uint64_t& reason) {
  fail(fetch, reason, locator_.master_away(fetch.name));
}

void Fetcher::fail(Fetch& fetch, std::uint64_t& reason, mc_status status) {
  // A reader whose time was over has been counted.
  if (!fetch.readers.empty()) ++reason;
  fetch.readers.fail(operations_, status);
  fetch.object.give_back();
  end(fetch);
}

void Fetcher::end(Fetch& fetch) {
  joinable_.remove_if(fetch.name, [&](const Fetch& each) { return &each == &fetch; });
  operations_.cancel(fetch.read);
  operations_.cancel(fetch.gather);
  operations_.end(fetch);
}

}  // namespace mc::agent
