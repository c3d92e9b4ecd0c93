// SPDX-License-Identifier: Apache-2.0
//
// Copies: objects of other hosts that this one keeps, because they were asked for again or a master
// ordered it; and what must not be kept, because it was dropped meanwhile.
#include "agent/cluster/fetch/fetcher.h"
#include "libmc/base/checksum.h"

namespace mc::agent {

using metadata::KeyHash;

namespace {

constexpr std::uint64_t kCopyNs = 5'000'000'000;
constexpr std::uint64_t kVerdictNs = 5'000'000'000;
constexpr std::size_t kMaxCopies = 16;  // fetches under way, readers' own included
constexpr std::size_t kMaxHeld = 64;    // under way for other hosts' clients
constexpr std::uint64_t kLongestHoldMs = 60'000;

}  // namespace

void Fetcher::copy(const std::vector<ClusterTenant*>& tenants, const KeyHash& name, MemberId source,
                   std::uint64_t deadline_ns, Ended ended) {
  for (ClusterTenant* const tenant : tenants) {
    if (tenant->find(name) == kNoEntry) continue;
    ended(MC_OK);
    return;
  }
  Fetch& fetch = start(nullptr, name, deadline_ns);
  fetch.candidates = tenants;
  fetch.ended = std::move(ended);
  fetch.keep = true;
  fetch.holders = {source};
  fetch.step = Step::kAsk;
  to_ask_.push_back(fetch.id);
}

void Fetcher::hold(ClusterTenant& tenant, const PeerMessage& message, MemberId writer,
                   std::uint64_t now_ns, Ended ended) {
  const PlaceRow& row = message.rows.front();
  const KeyHash name = tenant.name_of(row.key);
  const auto same = [&](const auto& each) {
    const std::optional<Held>& held = each.second->held;
    return held && held->writer == writer && held->request == message.request;
  };
  if (std::ranges::any_of(fetches_, same)) return;  // said twice
  const std::uint32_t there = tenant.find(name);
  const bool exists = there != kNoEntry && ((message.flags & kHoldUpsert) == 0 ||
                                            tenant.book().row(there).version == row.version);
  const auto region = peers_.region_of(writer, message.region);
  const auto under_way = std::ranges::count_if(
      fetches_, [](const auto& each) { return each.second->held.has_value(); });
  if (exists || !region || !masters_.of(name).ready() ||
      static_cast<std::size_t>(under_way) >= kMaxHeld) {
    ended(exists ? MC_OK : MC_BUSY);
    return;
  }
  now_ns_ = now_ns;
  const std::uint64_t share_ms = std::min<std::uint64_t>(message.share_ms, kLongestHoldMs);
  Fetch& fetch = start(&tenant, name, now_ns + share_ms * 1'000'000);
  fetch.key = row.key;
  fetch.ended = std::move(ended);
  fetch.keep = true;
  fetch.at = {writer, *region, row, 0};
  fetch.at.row.key.clear();
  fetch.held = Held{writer, message.request, {}};
  fetch.held->order.pin = static_cast<mc_pin>(row.pin);
  fetch.held->order.pin_ttl_s = message.pin_ttl_s;
  fetch.held->order.upsert = (message.flags & kHoldUpsert) != 0;
  fetch.try_until_ns = fetch.deadline_ns;
  fetch.step = Step::kRoom;
  seek_room(fetch);
}

void Fetcher::hold_stripe(ClusterTenant& tenant, const PeerMessage& message, MemberId writer,
                          std::uint64_t now_ns, Ended ended) {
  const PlaceRow& row = message.rows.front();
  const std::string key = stripe_key({message.stripe.put, message.stripe.number});
  const KeyHash name = tenant.name_of(key);
  if (tenant.find(name) != kNoEntry) return ended(MC_OK);  // said twice
  const auto region = peers_.region_of(writer, message.region);
  const auto under_way = std::ranges::count_if(
      fetches_, [](const auto& each) { return each.second->held.has_value(); });
  if (by_name_.contains(name)) return;
  if (!region || static_cast<std::size_t>(under_way) >= kMaxHeld) {
    return ended(MC_BUSY);
  }
  now_ns_ = now_ns;
  const std::uint64_t share_ms = std::min<std::uint64_t>(message.share_ms, kLongestHoldMs);
  Fetch& fetch = start(&tenant, name, now_ns + share_ms * 1'000'000);
  fetch.key = key;
  fetch.ended = std::move(ended);
  fetch.at = {writer, *region, row, 0};
  fetch.at.row.key.clear();
  fetch.held = Held{writer, message.request, {}};
  fetch.held->order.pin = static_cast<mc_pin>(row.pin);
  fetch.held->order.pin_ttl_s = message.pin_ttl_s;
  fetch.held->label = encode_label({message.stripe, row.checksum, row.key});
  fetch.try_until_ns = fetch.deadline_ns;
  fetch.step = Step::kRoom;
  seek_room(fetch);
}

// A stripe has been read: it lies here from now on, with its label, and waits to be sealed.
void Fetcher::shelve(Fetch& fetch) {
  ObjectStore& store = fetch.tenant->store();
  const auto name = parse_stripe_key(fetch.key);
  const std::vector<std::byte>& label = fetch.held->label;
  // Dropped meanwhile: its put has failed, or takes too long.
  const StripeSet* const set = name ? fetch.tenant->stripes().set_of(*name) : nullptr;
  if (set == nullptr || !set->open()) {
    return miss(fetch, MC_NOT_FOUND, counters_.late);
  }
  store.write(fetch.entry, fetch.at.row.length, label);
  PutOrder order = fetch.held->order;
  order.key = fetch.key;
  order.entry = fetch.entry;
  order.length = fetch.at.row.length + label.size();
  order.checksum = checksum(fetch.at.row.checksum, label.data(), label.size());
  const ObjectStore::Put result = store.publish(kClusterSession, order);
  if (result != ObjectStore::Put::kStored) {
    if (result != ObjectStore::Put::kExisted && result != ObjectStore::Put::kNoSpace)
      fetch.entry = kNoEntry;
    return miss(fetch, MC_NO_SPACE, counters_.no_room);
  }
  fetch.entry = kNoEntry;
  ++counters_.held_for_others;
  if (fetch.ended) std::exchange(fetch.ended, nullptr)(MC_OK);
  end(fetch);
}

// What became of a put that is not held here.
mc_status Fetcher::held_status(const Fetch& fetch) {
  if (!fetch.verdict_in) return MC_AGENT_UNAVAILABLE;
  switch (fetch.verdict) {
    case metadata::Verdict::kStale:
      // The key exists elsewhere: the put succeeds and changes nothing.
      return fetch.held->order.upsert ? MC_CANCELLED : MC_OK;
    case metadata::Verdict::kRemoved:
    case metadata::Verdict::kBehind:
    case metadata::Verdict::kUncertain:
      return MC_CANCELLED;
    default:
      return MC_AGENT_UNAVAILABLE;
  }
}

void Fetcher::mark_dropped(Fetch& fetch) {
  fetch.dropped = true;
  const auto same = by_name_.find(fetch.name);
  if (same != by_name_.end() && same->second == fetch.id) by_name_.erase(same);
}

void Fetcher::dropped(const KeyHash& name, std::uint64_t up_to_version) {
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->name == name && fetch->at.row.version <= up_to_version) mark_dropped(*fetch);
  }
}

void Fetcher::put_here(const metadata::PublishItem& put) {
  const bool creates = put.what == metadata::PublishItem::What::kCreates;
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->name != put.hash) continue;
    // What the master has been told first is replaced by a later upsert alone.
    const bool first = fetch->held && fetch->verdict_due;
    if (!first || (!creates && put.version > fetch->offer.version)) mark_dropped(*fetch);
  }
}

void Fetcher::dropped(const ClusterTenant& tenant) {
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->tenant == nullptr || fetch->tenant == &tenant) mark_dropped(*fetch);
  }
}

void Fetcher::report_begun(std::uint32_t partition) {
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->verdict_in && masters_.partition_of(fetch->name) == partition) mark_dropped(*fetch);
  }
}

metadata::PublishItem Fetcher::item_of(const Fetch& fetch) {
  metadata::PublishItem item;
  item.hash = fetch.name;
  item.version = fetch.at.row.version;
  item.bytes = fetch.at.row.length;
  item.attributes.pin = static_cast<metadata::Pin>(fetch.at.row.pin);
  item.attributes.replicas = fetch.at.row.replicas;
  if (fetch.held && !fetch.held->order.upsert) item.what = metadata::PublishItem::What::kCreates;
  return item;
}

// A copy is known to the master before anybody here can find it: what is removed or replaced
// meanwhile will be removed here too.
void Fetcher::offer(Fetch& fetch) {
  fetch.offered = true;
  fetch.verdict_due = true;
  fetch.offer = item_of(fetch);
  const metadata::PublishItem item = fetch.offer;
  announcer_.offer(item, fetch.held ? now_ns_ + kVerdictNs : fetch.deadline_ns,
                   [this, item, id = fetch.id,
                    alive = std::weak_ptr(alive_)](std::optional<metadata::Verdict> verdict) {
                     if (alive.expired()) return;
                     Fetch* const offered = find(id);
                     if (offered == nullptr || offered->missed) {
                       return take_back(item, id, verdict);
                     }
                     offered->verdict = verdict.value_or(metadata::Verdict::kStale);
                     offered->verdict_in = verdict.has_value();
                     offered->verdict_due = false;
                     if (verdict == metadata::Verdict::kAccepted) supersede(*offered);
                     deliver(*offered);
                   });
}

// The master knows this version as the one that this node holds, and says nothing here of older
// ones: of those that are under way none is to be kept.
void Fetcher::supersede(const Fetch& fetch) {
  for (const auto& [id, other] : fetches_) {
    if (other->name == fetch.name && other->at.row.version < fetch.offer.version) {
      mark_dropped(*other);
    }
  }
}

// What has been offered is not kept here. The master has taken it; or may have, if no verdict came.
// It has one word of this node about an object, whoever gave it: not taken back while another fetch
// has brought the same version, or still may.
void Fetcher::take_back(const metadata::PublishItem& item, std::uint64_t of,
                        std::optional<metadata::Verdict> verdict) {
  if (verdict && *verdict != metadata::Verdict::kAccepted) return;
  // What it was to replace here has gone for the master.
  for (ClusterTenant* const tenant : announcer_.tenants_of(item)) {
    const std::uint32_t entry = tenant->find(item.hash);
    const bool older = tenant->book().row(entry).version < item.version;
    if (verdict && older && !tenant->unannounced(entry)) tenant->drop(entry);
  }
  for (const auto& [id, other] : fetches_) {
    if (id != of && other->offered && !other->missed && other->name == item.hash &&
        other->offer.version == item.version) {
      return;
    }
  }
  announcer_.withdraw(item);
}

// Reads what was lent a moment ago once more, to keep it: its readers did not wait for the master.
void Fetcher::begin_copies(std::uint64_t now_ns) {
  while (!hot_.empty() && now_ns >= hot_.front().due_ns && fetches_.size() < kMaxCopies) {
    Hot hot = std::move(hot_.front());
    hot_.pop_front();
    if (by_name_.contains(hot.name) || hot.tenant->find(hot.name) != kNoEntry) continue;
    Fetch& copy = start(hot.tenant, hot.name, now_ns + kCopyNs);
    copy.key = std::move(hot.key);
    copy.keep = true;
    copy.from_cache = true;
    copy.at = std::move(hot.at);
    copy.try_until_ns = copy.deadline_ns;
    copy.step = Step::kRoom;
    seek_room(copy);
  }
}

// The live entry that holds the object from now on, or kNoEntry if it must not be kept.
std::uint32_t Fetcher::keep_copy(Fetch& fetch) {
  if (fetch.kept) return held_entry(fetch);
  if (fetch.dropped || fetch.verdict != metadata::Verdict::kAccepted) return kNoEntry;
  // A put here may have been given a later version since: it replaces this one for the master.
  const std::uint32_t there = fetch.tenant->find(fetch.name);
  if (there != kNoEntry) {
    const VersionBook::Row row = fetch.tenant->book().row(there);
    const bool creates = row.unannounced == VersionBook::Unannounced::kPut;
    if (row.version > fetch.at.row.version && !creates) return kNoEntry;
  }
  return publish_copy(fetch);
}

// An upsert for another host's client is held before the master hears of it, and lets all others
// drop what it replaces: should this agent die in between, the next one reports it.
bool Fetcher::hold_upsert(Fetch& fetch) {
  const std::uint32_t there = fetch.tenant->find(fetch.name);
  const bool newer =
      there != kNoEntry && fetch.tenant->book().row(there).version > fetch.at.row.version;
  return !fetch.dropped && !newer && publish_copy(fetch) != kNoEntry;
}

// What is left of it when the verdict is in; one that was refused goes.
std::uint32_t Fetcher::held_entry(const Fetch& fetch) {
  const std::uint32_t there = fetch.tenant->find(fetch.name);
  const bool same =
      there != kNoEntry && fetch.tenant->book().row(there).version == fetch.at.row.version;
  if (!same) return kNoEntry;
  if (fetch.verdict_in && fetch.verdict != metadata::Verdict::kAccepted) {
    fetch.tenant->drop(there);
    return kNoEntry;
  }
  // Unheard: it may have been taken, and the next report will tell.
  if (!fetch.verdict_in) fetch.tenant->changes().push_back({fetch.tenant->item_of(there), there});
  return there;
}

// The live entry of the bytes in the reservation.
std::uint32_t Fetcher::publish_copy(Fetch& fetch) {
  ObjectStore& store = fetch.tenant->store();
  PutOrder order = fetch.held ? fetch.held->order : PutOrder();
  order.key = fetch.key;
  order.entry = fetch.entry;
  order.length = fetch.at.row.length;
  order.checksum = fetch.at.row.checksum;
  order.parent_hash = fetch.at.row.parent_hash;
  order.replicas = fetch.at.row.replicas;
  // The master has said what replaces what.
  if (fetch.held) order.upsert = true;
  fetch.tenant->expect_copy(fetch.at.row.version);
  const ObjectStore::Put result = store.publish(kClusterSession, order);
  fetch.tenant->expect_copy(0);
  if (result == ObjectStore::Put::kStored) {
    ++(fetch.held ? counters_.held_for_others : counters_.kept);
    fetch.kept = true;
    // One copy is enough: should it be evicted soon, that is told of all of them.
    for (const auto& [id, other] : fetches_) {
      const bool older = other->at.row.version <= fetch.at.row.version;
      if (id != fetch.id && other->name == fetch.name && older) mark_dropped(*other);
    }
    return std::exchange(fetch.entry, kNoEntry);
  }
  if (result != ObjectStore::Put::kExisted && result != ObjectStore::Put::kNoSpace)
    fetch.entry = kNoEntry;
  return kNoEntry;
}

}  // namespace mc::agent
