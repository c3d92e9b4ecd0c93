// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/copy_keeper.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "agent/cluster/fetch/reservation.h"
#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"

namespace mc::agent {

using metadata::KeyHash;
using metadata::PublishItem;
using metadata::Verdict;

namespace {

constexpr std::uint64_t kVerdictNs = 5'000 * kMs;
constexpr std::uint64_t kHotNs = 2 * kMs;
constexpr std::size_t kMaxHot = 4096;
constexpr std::uint64_t kHotCopyNs = 5'000 * kMs;
constexpr std::size_t kMaxFetchesForCopies = 16;  // with more fetches under way, no copy begins
constexpr std::size_t kMaxHeld = 64;              // under way for clients of other hosts
constexpr std::uint64_t kLongestHoldMs = 60'000;
// How long the source may be missing from the list of members, and how often to look.
constexpr std::uint64_t kUnknownSourceNs = 500 * kMs;
constexpr std::uint64_t kSourceCheckNs = kMs;

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

// ---- Beginning ----------------------------------------------------------------------------------

Copy& CopyKeeper::begin(Purpose purpose, FetchedObject object, std::uint64_t deadline_ns,
                        OperationId parent) {
  ++counters_.fetches;
  ClusterTenant* const tenant = object.tenant;
  Copy& copy = operations_.begin(std::make_unique<Copy>(*this, purpose), tenant, parent);
  copy.name = object.name;
  copy.version = object.from.row.version;
  copy.object = std::move(object);
  copy.deadline_ns = deadline_ns;
  copies_.emplace(copy.name, &copy);
  return copy;
}

void CopyKeeper::copy(const KeyHash& name, MemberId source, std::uint64_t deadline_ns,
                      Ended ended) {
  for (const auto& tenant : tenants_) {
    if (tenant->find(name) != kNoEntry) return ended(MC_OK);
  }
  Copy& copy = begin(Purpose::kOrdered, {nullptr, name}, deadline_ns);
  copy.source = source;
  copy.ended = std::move(ended);
  copy.at = Step::kAsk;
}

void CopyKeeper::hold(ClusterTenant& tenant, const HoldRequest& message, MemberId writer,
                      Ended ended) {
  if (holds(writer, message.request)) return;  // the message is repeated
  const PlaceRow& row = message.row;
  const KeyHash name = tenant.name_of(row.key);
  const bool upsert = message.upsert;
  const std::uint32_t there = tenant.find(name);
  if (there != kNoEntry && !upsert) return ended(MC_OK);
  if (there != kNoEntry && tenant.book().row(there).version == row.version) {
    if (tenant.disks() == nullptr) return ended(MC_OK);
    return tenant.disks()->drop(shared_name_of(name), row.version - 1,
                                [ended](bool durable) { ended(durable ? MC_OK : MC_DISK_AWAY); });
  }
  if (!locator_.master_ready(name)) return ended(MC_BUSY);
  HoldJob hold;
  hold.order.upsert = upsert;
  const auto copy =
      begin_hold(Purpose::kHold, {&tenant, name, row.key}, std::move(hold), message, writer);
  if (!copy) return ended(copy.error().code());
  (*copy)->ended = std::move(ended);
}

void CopyKeeper::hold_stripe(ClusterTenant& tenant, const HoldRequest& message, MemberId writer,
                             Ended ended) {
  const KeyHash name = tenant.name_of(stripe_key({message.stripe->put, message.stripe->number}));
  // The message is repeated.
  if (tenant.find(name) != kNoEntry) return ended(MC_OK);
  if (copies_.contains(name)) return;
  const auto copy = begin_stripe(tenant, message, writer, {});
  if (!copy) return ended(copy.error().code());
  (*copy)->ended = std::move(ended);
}

Result<OperationId> CopyKeeper::pull_stripe(ClusterTenant& tenant, const HoldRequest& message,
                                            MemberId source, OperationId parent) {
  const auto copy = begin_stripe(tenant, message, source, parent);
  if (!copy) return mc::fail(copy.error());
  return (*copy)->id();
}

Result<Copy*> CopyKeeper::begin_stripe(ClusterTenant& tenant, const HoldRequest& message,
                                       MemberId writer, OperationId parent) {
  const PlaceRow& row = message.row;
  const std::string key = stripe_key({message.stripe->put, message.stripe->number});
  const KeyHash name = tenant.name_of(key);
  if (tenant.find(name) != kNoEntry || copies_.contains(name)) {
    return mc::fail(MC_BUSY, "the stripe is here, or on its way");
  }
  HoldJob hold;
  hold.label = encode_label({*message.stripe, row.checksum, row.key});
  return begin_hold(Purpose::kStripe, {&tenant, name, key}, std::move(hold), message, writer,
                    parent);
}

Result<Copy*> CopyKeeper::begin_hold(Purpose purpose, FetchedObject object, HoldJob hold,
                                     const HoldRequest& message, MemberId writer,
                                     OperationId parent) {
  const auto region = peers_.region_of(writer, message.region);
  if (!region) return mc::fail(MC_BUSY, "the writer is not known yet");
  if (hold_count() >= kMaxHeld) return mc::fail(MC_BUSY, "too much is being held");
  const PlaceRow& row = message.row;
  if (row.length > object.tenant->store().capacity_bytes()) {
    return mc::fail(MC_NO_SPACE, "the object is larger than this host's capacity");
  }
  object.from = {writer, *region, row, 0};
  object.from.row.key.clear();
  hold.writer = writer;
  hold.request = message.request;
  hold.order.pin = static_cast<mc_pin>(row.pin);
  hold.order.pin_ttl_s = message.pin_ttl_s;
  const std::uint64_t share_ms = std::min<std::uint64_t>(message.share_ms, kLongestHoldMs);
  Copy& copy = begin(purpose, std::move(object), operations_.now_ns() + share_ms * kMs, parent);
  copy.hold = std::move(hold);
  return &copy;
}

bool CopyKeeper::holds(MemberId writer, std::uint32_t request) const {
  return std::ranges::any_of(copies_, [&](const auto& each) {
    const std::optional<HoldJob>& hold = each.second->hold;
    return hold && hold->writer == writer && hold->request == request;
  });
}

std::size_t CopyKeeper::hold_count() const {
  const auto held = [](const auto& each) { return each.second->hold.has_value(); };
  return static_cast<std::size_t>(std::ranges::count_if(copies_, held));
}

// ---- Hot objects --------------------------------------------------------------------------------

void CopyKeeper::add_hot(FetchedObject object) {
  if (hot_.size() < kMaxHot) hot_.push_back({std::move(object), operations_.now_ns() + kHotNs});
}

// Reads hot objects once more, to keep the objects. The readers did not wait for the master's
// verdict.
void CopyKeeper::begin_hot_copies() {
  while (!hot_.empty() && operations_.now_ns() >= hot_.front().due_ns && may_begin_hot_copy()) {
    FetchedObject object = std::move(hot_.front().object);
    hot_.pop_front();
    if (joinable_.find(object.name) != nullptr || copies_.contains(object.name)) continue;
    if (object.tenant->find(object.name) != kNoEntry) continue;
    if (object.from.row.length > object.tenant->store().capacity_bytes()) continue;
    begin(Purpose::kHot, std::move(object), operations_.now_ns() + kHotCopyNs);
  }
}

bool CopyKeeper::may_begin_hot_copy() const {
  return operations_.count(OperationKind::kFetch) + operations_.count(OperationKind::kCopy) <
         kMaxFetchesForCopies;
}

// The end of a fetch or copy turns the loop.
std::uint64_t CopyKeeper::next_hot_ns() const {
  return hot_.empty() || !may_begin_hot_copy() ? UINT64_MAX : hot_.front().due_ns;
}

void CopyKeeper::forget_hot(const ClusterTenant& tenant) {
  std::erase_if(hot_, [&](const Hot& hot) { return hot.object.tenant == &tenant; });
}

// ---- Drops while a copy is under way ------------------------------------------------------------

void CopyKeeper::drop(const KeyHash& name, std::uint64_t up_to_version) {
  const auto [begin, end] = copies_.equal_range(name);
  for (auto at = begin; at != end; ++at) {
    if (at->second->version <= up_to_version) at->second->dropped = true;
  }
}

void CopyKeeper::drop(const ClusterTenant& tenant) {
  for (const auto& [name, copy] : copies_) {
    if (copy->tenant() == nullptr || copy->tenant() == &tenant) copy->dropped = true;
  }
}

void CopyKeeper::put_here(const PublishItem& put) {
  const bool creates = put.what == PublishItem::What::kCreates;
  const auto [begin, end] = copies_.equal_range(put.hash);
  for (auto at = begin; at != end; ++at) {
    Copy& copy = *at->second;
    // The master heard of a pending offer first. Only a later upsert replaces that offer.
    const bool first = copy.hold && copy.offer == Copy::Offer::kPending;
    if (!first || (!creates && put.version > copy.item.version)) copy.dropped = true;
  }
}

void CopyKeeper::supersede(const Copy& by, std::uint64_t below_version) {
  const auto [begin, end] = copies_.equal_range(by.name);
  for (auto at = begin; at != end; ++at) {
    if (at->second != &by && at->second->version < below_version) at->second->dropped = true;
  }
  joinable_.remove_if(by.name, [&](const Fetch& fetch) { return fetch.version < below_version; });
}

// ---- Steps --------------------------------------------------------------------------------------

void Copy::step() { keeper.step(*this); }
void Copy::cancel() { keeper.fail(*this, MC_NOT_FOUND, keeper.counters_.holders_failed); }

void CopyKeeper::step(Copy& copy) {
  Step before;
  do {
    before = copy.at;
    go_on(copy);
    if (copy.over()) return;
  } while (copy.at != before);
  const std::uint64_t now_ns = operations_.now_ns();
  std::uint64_t next_ns = copy.deadline_ns > now_ns ? copy.deadline_ns : Operation::kNever;
  if (copy.at == Step::kAsk) next_ns = std::min(next_ns, now_ns + kSourceCheckNs);
  operations_.wake_at(copy, next_ns);
}

void CopyKeeper::go_on(Copy& copy) {
  const bool late = operations_.now_ns() >= copy.deadline_ns;
  switch (copy.at) {
    case Step::kAsk:
      if (late) return fail(copy, MC_NOT_FOUND, counters_.late);
      return ask(copy);
    case Step::kAsking:
      if (copy.answer) return take_answer(copy);
      if (late) fail(copy, MC_NOT_FOUND, counters_.late);
      return;
    case Step::kRead:
      return read(copy);
    case Step::kReading:
      if (const std::unique_ptr<Read> read = operations_.take<Read>(copy.read)) {
        copy.object = std::move(read->object);
        return take_read(copy, read->end);
      }
      if (late) {
        fail(copy, MC_NOT_FOUND,
             reader_.waits_for_room(copy.read) ? counters_.no_room : counters_.late);
      }
      return;
    case Step::kOffered:
      if (copy.offer == Copy::Offer::kAnswered) return finish(copy);
      // An object that another node ordered is kept however late the verdict comes.
      if (late && copy.purpose == Purpose::kHot) end(copy, MC_TIMEOUT);
      return;
    case Step::kClearing:
      if (copy.cleared) end(copy, *copy.cleared ? MC_OK : MC_DISK_AWAY);
      return;
  }
}

void CopyKeeper::ask(Copy& copy) {
  const std::uint64_t now_ns = operations_.now_ns();
  if (now_ns < copy.not_before_ns) return;
  if (!peers_.id_of(copy.source)) {
    // The source may have joined a moment ago.
    peers_.missed();
    if (copy.patience_ns == 0) copy.patience_ns = now_ns + kUnknownSourceNs;
    if (now_ns >= copy.patience_ns) fail(copy, MC_NOT_FOUND, counters_.holders_failed);
    return;
  }
  copy.asked = copy.source;
  copy.answer.reset();
  questions_.ask({copy.id(), copy.source, 0, copy.name, copy.deadline_ns});
  copy.at = Step::kAsking;
}

void CopyKeeper::take_answer(Copy& copy) {
  HolderAnswer answer = *std::exchange(copy.answer, std::nullopt);
  if (answer.failed()) return fail(copy, MC_NOT_FOUND, counters_.holders_failed);
  if (answer.again()) {
    copy.not_before_ns = operations_.now_ns() + HolderQuestions::kAskAgainNs;
    copy.at = Step::kAsk;
    return;
  }
  ClusterTenant* const tenant = find_tenant(tenants_, answer.name_space);
  if (tenant == nullptr || answer.row.key.empty() || tenant->name_of(answer.row.key) != copy.name) {
    return fail(copy, MC_NOT_FOUND, counters_.holders_failed);
  }
  operations_.set_tenant(copy, *tenant);
  copy.object.tenant = tenant;
  copy.object.key = std::exchange(answer.row.key, {});
  copy.object.bytes = std::exchange(answer.row.bytes, {});
  copy.version = answer.row.version;
  copy.object.from = {answer.from, answer.region, std::move(answer.row), 0};
  copy.at = Step::kRead;
}

void CopyKeeper::read(Copy& copy) {
  ReadTerms terms;
  terms.deadline_ns = terms.try_until_ns = copy.deadline_ns;
  terms.label_bytes = copy.hold ? copy.hold->label.size() : 0;
  terms.room_must_come = copy.hold.has_value();
  copy.read = reader_.begin(std::exchange(copy.object, {}), terms, copy.id());
  copy.at = Step::kReading;
}

void CopyKeeper::take_read(Copy& copy, Read::End result) {
  switch (result) {
    case Read::End::kNoRoom:
      return fail(copy, MC_NO_SPACE, counters_.no_room);
    case Read::End::kFailed:
      locator_.locations().forget(copy.name);
      return fail(copy, MC_NOT_FOUND, counters_.holders_failed);
    case Read::End::kRead:
      break;
  }
  if (copy.purpose != Purpose::kStripe) return keep(copy);
  const mc_status status = shelve(copy);
  if (status == MC_OK) return end(copy, MC_OK);
  fail(copy, status, status == MC_NO_SPACE ? counters_.no_room : counters_.late);
}

// ---- Keeping ------------------------------------------------------------------------------------

void CopyKeeper::keep(Copy& copy) {
  const bool upsert = copy.hold && copy.hold->order.upsert;
  if (copy.dropped || (upsert && !publish_upsert(copy))) {
    copy.kept = conclude(copy);
    return finish(copy);
  }
  make_offer(copy);
  copy.at = Step::kOffered;
}

// The offer comes after the read. The master counts an accepted copy as a replica, and may release
// the host that has the bytes.
void CopyKeeper::make_offer(Copy& copy) {
  copy.offer = Copy::Offer::kPending;
  copy.item = item_of(copy.object, copy.hold && !copy.hold->order.upsert);
  announcer_.offer(copy.item, copy.hold ? operations_.now_ns() + kVerdictNs : copy.deadline_ns,
                   [this, item = copy.item, id = copy.id()](std::optional<Verdict> verdict) {
                     on_verdict(id, item, verdict);
                   });
}

// An accepted copy is published at once: the next report to the master must name the object.
void CopyKeeper::on_verdict(OperationId id, const PublishItem& item,
                            std::optional<Verdict> verdict) {
  Copy* const copy = operations_.find<Copy>(id);
  if (copy == nullptr) return withdraw(item, verdict);
  copy->verdict = verdict;
  copy->offer = Copy::Offer::kAnswered;
  // For the master this node now holds this version. The master does not order drops
  // of older versions here, so no older copy under way may be kept.
  if (verdict == Verdict::kAccepted) supersede(*copy, item.version);
  copy->kept = conclude(*copy);
  operations_.wake(*copy);
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

// Publishes a stripe. After a failure the object may still have a reservation.
mc_status CopyKeeper::shelve(Copy& copy) {
  FetchedObject& object = copy.object;
  const HoldJob& hold = *copy.hold;
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

// ---- Ends ---------------------------------------------------------------------------------------

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
  if (LocalDisks* const disks = disks_of(tenants_); verdict && disks != nullptr) {
    disks->drop(shared_name_of(item.hash), item.version - 1, {});
  }
  const auto [begin, end] = copies_.equal_range(item.hash);
  const bool offered = std::any_of(begin, end, [&](const auto& each) {
    const Copy& other = *each.second;
    // The object of a copy that clears the disks may have left already.
    return other.offer != Copy::Offer::kNone && other.at != Step::kClearing &&
           other.item.version == item.version;
  });
  if (!offered) announcer_.withdraw(item);
}

void CopyKeeper::finish(Copy& copy) {
  const bool is_kept = copy.kept != kNoEntry;
  if (is_kept && copy.verdict) return clear_disks(copy);
  if (copy.hold) return end(copy, status_of_refused(*copy.hold, copy.verdict));
  end(copy, is_kept ? MC_OK : MC_CANCELLED);
}

void CopyKeeper::clear_disks(Copy& copy) {
  copy.at = Step::kClearing;
  LocalDisks* const disks = copy.object.tenant->disks();
  if (disks == nullptr) {
    copy.cleared = true;
    return;
  }
  disks->drop(shared_name_of(copy.name), copy.object.from.row.version - 1,
              [this, id = copy.id()](bool durable) {
                Copy* const clearing = operations_.find<Copy>(id);
                if (clearing == nullptr) return;
                clearing->cleared = durable;
                operations_.wake(*clearing);
              });
}

void CopyKeeper::fail(Copy& copy, mc_status status, std::uint64_t& reason) {
  ++reason;
  end(copy, status);
}

void CopyKeeper::end(Copy& copy, mc_status status) {
  const auto [first, last] = copies_.equal_range(copy.name);
  copies_.erase(std::find_if(first, last, [&](const auto& each) { return each.second == &copy; }));
  operations_.cancel(copy.read);
  copy.object.give_back();
  // A pending offer is withdrawn when the verdict comes.
  if (copy.offer == Copy::Offer::kAnswered && !copy.published) withdraw(copy.item, copy.verdict);
  copy.result = status;
  operations_.end(copy);
  if (copy.ended) copy.ended(status);
}

}  // namespace mc::agent
