// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/copy_keeper.h"

#include <algorithm>

#include "agent/cluster/stripe/reservation.h"
#include "libmc/base/checksum.h"

namespace mc::agent {

using metadata::KeyHash;
using metadata::PublishItem;
using metadata::Verdict;

namespace {

constexpr std::uint64_t kVerdictNs = 5'000'000'000;
constexpr std::uint64_t kHotNs = 2'000'000;
constexpr std::size_t kMaxHot = 4096;

PublishItem item_of(const FetchedObject& object, bool creates) {
  const PlaceRow& row = object.from.row;
  PublishItem item;
  item.hash = object.name;
  item.version = row.version;
  item.bytes = row.length;
  item.attributes.pin = static_cast<metadata::Pin>(row.pin);
  item.attributes.replicas = row.replicas;
  if (creates) item.what = PublishItem::What::kCreates;
  return item;
}

// The answer for a put of another host's client that is not held here.
mc_status status_of_refused(const HoldJob& hold, std::optional<Verdict> verdict) {
  if (!verdict) return MC_AGENT_UNAVAILABLE;
  switch (*verdict) {
    case Verdict::kStale:
      // The key exists elsewhere: a create succeeds and changes nothing.
      return hold.order.upsert ? MC_CANCELLED : MC_OK;
    case Verdict::kRemoved:
    case Verdict::kBehind:
    case Verdict::kUncertain:
      return MC_CANCELLED;
    default:
      return MC_AGENT_UNAVAILABLE;
  }
}

// The store still holds the reservation after these failures only.
void forget_consumed(FetchedObject& object, ObjectStore::Put result) {
  if (result != ObjectStore::Put::kExisted && result != ObjectStore::Put::kNoSpace)
    object.entry = kNoEntry;
}

}  // namespace

// ---- The copies that are expected ---------------------------------------------------------------

void CopyKeeper::expect(std::uint64_t id, const KeyHash& name, std::optional<HoldJob> hold) {
  Copy& copy = copies_[id];
  copy.id = id;
  copy.name = name;
  copy.hold = std::move(hold);
}

void CopyKeeper::found(std::uint64_t id, const ClusterTenant* tenant, std::uint64_t version) {
  const auto at = copies_.find(id);
  if (at == copies_.end()) return;
  at->second.tenant = tenant;
  at->second.version = version;
}

bool CopyKeeper::will_keep(std::uint64_t id) const {
  const auto at = copies_.find(id);
  return at != copies_.end() && !at->second.dropped;
}

std::size_t CopyKeeper::hold_count() const {
  const auto held = [](const auto& each) { return each.second.hold.has_value(); };
  return static_cast<std::size_t>(std::ranges::count_if(copies_, held));
}

bool CopyKeeper::holds(MemberId writer, std::uint32_t request) const {
  return std::ranges::any_of(copies_, [&](const auto& each) {
    const std::optional<HoldJob>& hold = each.second.hold;
    return hold && hold->writer == writer && hold->request == request;
  });
}

void CopyKeeper::drop(const KeyHash& name, std::uint64_t up_to_version) {
  for (auto& [id, copy] : copies_) {
    if (copy.name == name && copy.version <= up_to_version) copy.dropped = true;
  }
}

void CopyKeeper::drop(const ClusterTenant& tenant) {
  for (auto& [id, copy] : copies_) {
    if (copy.tenant == nullptr || copy.tenant == &tenant) copy.dropped = true;
  }
}

void CopyKeeper::put_here(const PublishItem& put) {
  const bool creates = put.what == PublishItem::What::kCreates;
  for (auto& [id, copy] : copies_) {
    if (copy.name != put.hash) continue;
    // The master heard of a pending offer first. Only a later upsert replaces that offer.
    const bool first = copy.hold && copy.offer == Offer::kPending;
    if (!first || (!creates && put.version > copy.item.version)) copy.dropped = true;
  }
}

// ---- Keeping ------------------------------------------------------------------------------------

void CopyKeeper::keep(std::uint64_t id, FetchedObject object, std::uint64_t deadline_ns,
                      std::uint64_t now_ns) {
  Copy& copy = copies_.at(id);
  copy.object = std::move(object);
  const bool upsert = copy.hold && copy.hold->order.upsert;
  if (copy.dropped || (upsert && !publish_upsert(copy))) return finish(copy);
  make_offer(copy, copy.hold ? now_ns + kVerdictNs : deadline_ns);
}

// The offer comes after the read. The master counts an accepted copy as a replica, and may release
// the host that has the bytes.
void CopyKeeper::make_offer(Copy& copy, std::uint64_t deadline_ns) {
  copy.offer = Offer::kPending;
  copy.item = item_of(copy.object, copy.hold && !copy.hold->order.upsert);
  announcer_.offer(copy.item, deadline_ns,
                   [this, item = copy.item, id = copy.id,
                    alive = std::weak_ptr(alive_)](std::optional<Verdict> verdict) {
                     if (!alive.expired()) on_verdict(id, item, verdict);
                   });
}

void CopyKeeper::on_verdict(std::uint64_t id, const PublishItem& item,
                            std::optional<Verdict> verdict) {
  const auto at = copies_.find(id);
  if (at == copies_.end()) return withdraw(item, verdict);
  Copy& copy = at->second;
  copy.verdict = verdict;
  copy.offer = Offer::kAnswered;
  // For the master this node now holds this version. The master does not order drops
  // of older versions here, so no older copy under way may be kept.
  if (verdict == Verdict::kAccepted) supersede(copy, item.version);
  finish(copy);
}

void CopyKeeper::finish(Copy& copy) {
  Outcome outcome;
  outcome.entry = conclude(copy);
  const bool kept = outcome.entry != kNoEntry;
  if (copy.hold) {
    outcome.status = kept && copy.verdict ? MC_OK : status_of_refused(*copy.hold, copy.verdict);
  } else {
    outcome.status = kept ? MC_OK : MC_CANCELLED;
  }
  done_(copy.id, std::move(copy.object), outcome);
}

// The live entry that holds the object from now on, or kNoEntry.
std::uint32_t CopyKeeper::conclude(Copy& copy) {
  ClusterTenant& tenant = *copy.object.tenant;
  const std::uint64_t version = copy.object.from.row.version;
  const std::uint32_t there = tenant.find(copy.name);
  if (!copy.published) {
    if (copy.dropped || copy.verdict != Verdict::kAccepted) return kNoEntry;
    // A put here may have a later version by now. For the master that put replaces this copy.
    if (there != kNoEntry) {
      const VersionBook::Row row = tenant.book().row(there);
      const bool creates = row.unannounced == VersionBook::Unannounced::kPut;
      if (row.version > version && !creates) return kNoEntry;
    }
    return publish(copy);
  }
  if (there == kNoEntry || tenant.book().row(there).version != version) return kNoEntry;
  if (copy.verdict && *copy.verdict != Verdict::kAccepted) {
    tenant.drop(there);
    return kNoEntry;
  }
  // Without a verdict the master may have taken the offer. The next report says what is held.
  if (!copy.verdict) tenant.changes().push_back({tenant.item_of(there), there});
  return there;
}

// An upsert is published before the master hears of it, because the master then lets all other
// hosts drop the replaced object. If this agent dies in between, the next agent reports the upsert.
bool CopyKeeper::publish_upsert(Copy& copy) {
  ClusterTenant& tenant = *copy.object.tenant;
  const std::uint32_t there = tenant.find(copy.name);
  const bool newer =
      there != kNoEntry && tenant.book().row(there).version > copy.object.from.row.version;
  return !newer && publish(copy) != kNoEntry;
}

// Publishes the bytes in the reservation. Returns the live entry.
std::uint32_t CopyKeeper::publish(Copy& copy) {
  FetchedObject& object = copy.object;
  const PlaceRow& row = object.from.row;
  PutOrder order = copy.hold ? copy.hold->order : PutOrder();
  order.key = object.key;
  order.entry = object.entry;
  order.length = row.length;
  order.checksum = row.checksum;
  order.parent_hash = row.parent_hash;
  order.replicas = row.replicas;
  // The master has decided which put replaces which.
  if (copy.hold) order.upsert = true;
  object.tenant->expect_copy(row.version);
  const ObjectStore::Put result = object.tenant->store().publish(kClusterSession, order);
  object.tenant->expect_copy(0);
  if (result != ObjectStore::Put::kStored) {
    forget_consumed(object, result);
    return kNoEntry;
  }
  ++(copy.hold ? counters_.held_for_others : counters_.kept);
  copy.published = true;
  // A second copy is useless: the master takes the eviction of this copy for the eviction of all.
  supersede(copy, row.version + 1);
  return std::exchange(object.entry, kNoEntry);
}

mc_status CopyKeeper::shelve(std::uint64_t id, FetchedObject& object) {
  const HoldJob& hold = *copies_.at(id).hold;
  ObjectStore& store = object.tenant->store();
  const auto name = parse_stripe_key(object.key);
  // The set is gone or sealed if the put has failed or takes too long.
  const StripeSet* const set = name ? object.tenant->stripes().set_of(*name) : nullptr;
  if (set == nullptr || !set->open()) return MC_NOT_FOUND;
  const PlaceRow& row = object.from.row;
  store.write(object.entry, row.length, hold.label);
  PutOrder order = hold.order;
  order.key = object.key;
  order.entry = object.entry;
  order.length = row.length + hold.label.size();
  order.checksum = checksum(row.checksum, hold.label.data(), hold.label.size());
  const ObjectStore::Put result = store.publish(kClusterSession, order);
  if (result != ObjectStore::Put::kStored) {
    forget_consumed(object, result);
    return MC_NO_SPACE;
  }
  object.entry = kNoEntry;
  ++counters_.held_for_others;
  return MC_OK;
}

FetchedObject CopyKeeper::stop_waiting(std::uint64_t id) {
  return std::move(copies_.at(id).object);
}

void CopyKeeper::forget(std::uint64_t id) {
  const auto at = copies_.find(id);
  if (at == copies_.end()) return;
  Copy copy = std::move(at->second);
  copies_.erase(at);
  copy.object.give_back();
  // A pending offer is withdrawn when the verdict comes.
  if (copy.offer == Offer::kAnswered && !copy.published) withdraw(copy.item, copy.verdict);
}

void CopyKeeper::supersede(const Copy& by, std::uint64_t below_version) {
  for (auto& [id, other] : copies_) {
    if (id != by.id && other.name == by.name && other.version < below_version) other.dropped = true;
  }
  superseded_(by.name, below_version, by.id);
}

// This host does not keep an object that the master has accepted, or may have accepted if no
// verdict came. The master knows a single version per node and object. So the offer stands while
// another copy with the same version is offered.
void CopyKeeper::withdraw(const PublishItem& item, std::optional<Verdict> verdict) {
  if (verdict && *verdict != Verdict::kAccepted) return;
  // For the master, the offer has replaced an older object here.
  for (ClusterTenant* const tenant : announcer_.tenants_of(item)) {
    const std::uint32_t entry = tenant->find(item.hash);
    const bool older = tenant->book().row(entry).version < item.version;
    if (verdict && older && !tenant->unannounced(entry)) tenant->drop(entry);
  }
  const auto same = [&](const auto& each) {
    const Copy& other = each.second;
    return other.offer != Offer::kNone && other.name == item.hash &&
           other.item.version == item.version;
  };
  if (std::ranges::none_of(copies_, same)) announcer_.withdraw(item);
}

// ---- Hot objects --------------------------------------------------------------------------------

void CopyKeeper::add_hot(FetchedObject object, std::uint64_t now_ns) {
  if (hot_.size() < kMaxHot) hot_.push_back({std::move(object), now_ns + kHotNs});
}

std::optional<FetchedObject> CopyKeeper::take_hot(std::uint64_t now_ns) {
  if (hot_.empty() || now_ns < hot_.front().due_ns) return std::nullopt;
  FetchedObject object = std::move(hot_.front().object);
  hot_.pop_front();
  return object;
}

void CopyKeeper::forget_hot(const ClusterTenant& tenant) {
  std::erase_if(hot_, [&](const Hot& hot) { return hot.object.tenant == &tenant; });
}

}  // namespace mc::agent
