// SPDX-License-Identifier: Apache-2.0
#include "agent/server/server.h"

#include <algorithm>
#include <bit>

#include "agent/server/local_disks.h"
#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"
#include "libmc/base/copy.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr int kTurn = 8;  // requests of a channel before the next channel's turn
constexpr std::uint32_t kPrefetchItems = 16;

static_assert(shm::kReservationUnitBytes == kGranuleBytes);

// True if objects of the namespace may be on other hosts or on disks.
bool has_elsewhere(const Tenant& tenant) { return tenant.clustered || tenant.on_disks; }

// Operations that are refused in isolated namespaces. There, the agent itself writes every
// reservation, so a client must not publish or give back a reservation.
bool is_for_direct(shm::Op op) {
  return op == shm::Op::kReserve || op == shm::Op::kPut || op == shm::Op::kAbandon;
}

constexpr std::uint64_t kCopyStepBytes = 4ull << 20;  // copied in a single turn

// Longest wait for room on this host: a fraction of the time left, and at most kMostLocalNs.
constexpr std::uint64_t kLocalShare = 4;
constexpr std::uint64_t kMostLocalNs = 250 * kMs;
constexpr std::uint64_t kAskAgainNs = 200 * kMs;
constexpr std::uint64_t kSumStepBytes = 4ull << 20;  // summed in a single turn

void add(std::shared_ptr<RemoteRequest>& to, RemoteRequest::Kind kind, RemoteRequest::Item item) {
  if (!to) {
    to = std::make_shared<RemoteRequest>();
    to->kind = kind;
  }
  to->items.push_back(std::move(item));
}

}  // namespace

mc_status Server::status_of(ObjectStore::Put put) {
  switch (put) {
    case ObjectStore::Put::kStored:
    case ObjectStore::Put::kExisted:
      return MC_OK;
    case ObjectStore::Put::kBadReservation:
      return MC_INVALID_ARGUMENT;
    case ObjectStore::Put::kTooLarge:
      return MC_TOO_LARGE;
    case ObjectStore::Put::kNoSpace:
      return MC_NO_SPACE;
    case ObjectStore::Put::kNoMemory:
      return MC_NO_MEMORY;
  }
  return MC_INTERNAL;
}

[[gnu::hot]] bool Server::serve(Session& session, std::uint32_t number) {
  ChannelState& channel = session.channels[number];
  shm::RecordWords words;
  int served = 0;
  while (served < kTurn && channel.requests.poll(words)) {
    ++served;
    ++session.request_count;
    MC_FAILPOINT("request.copied");
    const auto request = shm::decode_request(words);
    if (!request) {
      // A malformed request gets an answer too, so that an honest client of another version learns
      // of the mismatch.
      ++session.bad_request_count;
      Work work{.session = &session,
                .channel = number,
                .request = std::bit_cast<shm::Request>(words),
                .reader = shm::ArgumentReader(channel.shared->arguments, shm::Request{}),
                .item = {}};
      complete(work, MC_INVALID_ARGUMENT);
      continue;
    }
    channel.touches.drain(request->touch_head,
                          [&](std::uint32_t entry) { session.tenant->store->touch(entry); });
    start(session, number, *request);
  }
  return served > 0;
}

[[gnu::hot]] void Server::start(Session& session, std::uint32_t number,
                                const shm::Request& request) {
  ChannelState& channel = session.channels[number];
  session.take_back_unheard(number, request.request_id);
  Work work{.session = &session,
            .channel = number,
            .request = request,
            .reader = shm::ArgumentReader(channel.shared->arguments, request),
            .item = {}};
  const Step step = proceed(work);
  if (step == Step::kDone) return;
  // An honest client has at most kRingSlots requests in flight, this request included.
  if (channel.waiting >= shm::kRingSlots) {
    ++session.bad_request_count;
    if (work.remote_request) work.remote_request->abandoned = true;
    if (work.elsewhere.remote_request) work.elsewhere.remote_request->abandoned = true;
    end_waiting(work, MC_BUSY, MC_BUSY);
    return;
  }
  // The longest wait that a client may ask for: see MC_MAX_TIMEOUT_NS.
  work.waits_since_ns = now_ns();
  work.request.deadline_ns =
      std::min<std::uint64_t>(work.request.deadline_ns, work.waits_since_ns + MC_MAX_TIMEOUT_NS);
  wants_turn_ |= step == Step::kAgain;
  ++channel.waiting;
  (step == Step::kAway ? away_ : waiting_).push_back(std::move(work));
}

Server::Waiting Server::stop_waiting(std::list<Work>& list, Waiting at) {
  if (at->remote_request) at->remote_request->abandoned = true;
  if (at->elsewhere.remote_request) at->elsewhere.remote_request->abandoned = true;
  --at->session->channels[at->channel].waiting;
  return list.erase(at);
}

[[gnu::hot]] Server::Step Server::proceed(Work& work) {
  if (work.session->tenant->isolated && is_for_direct(static_cast<shm::Op>(work.request.op))) {
    complete(work, MC_INVALID_ARGUMENT);
    return Step::kDone;
  }
  switch (static_cast<shm::Op>(work.request.op)) {
    case shm::Op::kNoop:
      complete(work, MC_OK);
      return Step::kDone;
    case shm::Op::kReserve:
      return reserve(work);
    case shm::Op::kPut:
      return (work.request.flags & shm::kFlagGroup) != 0 ? put_group(work) : put(work);
    case shm::Op::kPutStaged:
      return (work.request.flags & shm::kFlagGroup) != 0 ? put_staged_group(work)
                                                         : put_staged(work);
    case shm::Op::kAbandon:
      abandon(work);
      return Step::kDone;
    case shm::Op::kRemove:
      return remove(work);
    case shm::Op::kSetPin:
      return set_pin(work);
    case shm::Op::kCancel:
      complete(work, cancel(*work.session, work.channel, work.request.a));
      return Step::kDone;
    case shm::Op::kCheck:
      ++work.session->tenant->store->counters().reported;
      work.session->tenant->scrubber->examine(static_cast<std::uint32_t>(work.request.a));
      complete(work, MC_OK);
      return Step::kDone;
    case shm::Op::kFetch:
      return ask_elsewhere(work, RemoteRequest::Kind::kFetch);
    case shm::Op::kExists:
      return ask_elsewhere(work, RemoteRequest::Kind::kExists);
  }
  return Step::kDone;
}

// ---- Items --------------------------------------------------------------------------------------

[[gnu::hot]] void Server::complete(Work& work, mc_status status) {
  MC_FAILPOINT("completion.before_publish");
  ChannelState& channel = work.session->channels[work.channel];
  shm::Completion completion{};
  completion.request_id = work.request.request_id;
  completion.status = status;
  completion.item_count = work.next;
  completion.first = work.last;
  channel.completions.publish(shm::to_words(completion));
  counters_.count(work.request.op, status);
  if (work.waits_since_ns != 0) {
    counters_.waited[work.request.op].add(now_ns() - work.waits_since_ns);
  }
  if (!channel.needs_wake) answered_.push_back({work.session, work.channel});
  channel.needs_wake = true;
  MC_FAILPOINT("completion.after_publish");
}

// ---- Reservations -------------------------------------------------------------------------------

[[gnu::hot]] ObjectStore::Reserve Server::grant(Work& work, std::uint64_t bytes, bool evict,
                                                std::uint32_t& entry) {
  Session& session = *work.session;
  if (bytes > session.tenant->store->capacity_bytes()) {
    return session.tenant->fits_elsewhere() ? ObjectStore::Reserve::kWait
                                            : ObjectStore::Reserve::kTooLarge;
  }
  const GrantedTo to{work.channel, work.request.request_id};
  const ObjectStore::Reserve result =
      session.tenant->store->reserve(session.id, to, bytes, evict, entry);
  if (result == ObjectStore::Reserve::kOk) session.enter(entry, bytes);
  return result;
}

[[gnu::hot]] void Server::refill(Work& work, std::uint64_t bytes, shm::ItemResult& result) {
  Session& session = *work.session;
  if (session.over_quota(bytes)) return;
  // An object without room under capacity_bytes must be offered to another host before the client
  // writes.
  const ObjectStore& store = *session.tenant->store;
  const bool full = store.live_bytes() + bytes > store.capacity_bytes();
  if (cluster_ != nullptr && session.tenant->clustered && full) return;
  std::uint32_t entry = 0;
  // A refill never evicts an object: the next put makes room for itself.
  if (grant(work, bytes, false, entry) != ObjectStore::Reserve::kOk) return;
  const PoolExtents extents = session.tenant->store->extents(entry);
  if (extents.count != 1) {
    session.tenant->store->abandon(session.id, entry);
    session.drop_from_ledger(entry, bytes);
    return;
  }
  result.refill_entry = entry;
  result.refill_offset = extents.at[0].offset_bytes;
  result.refill_generation = session.tenant->store->generation_of(entry);
}

Server::Step Server::waiting_step(ObjectStore::Reserve result) {
  return result == ObjectStore::Reserve::kAgain ? Step::kAgain : Step::kWait;
}

Server::Step Server::reserve(Work& work) {
  Session& session = *work.session;
  ObjectStore& store = *session.tenant->store;
  const std::uint64_t bytes = work.request.a;
  auto* results = session.channels[work.channel].shared->arguments + work.request.argument_offset;
  mc_status status = MC_OK;
  if (bytes == 0 || bytes > MC_MAX_OBJECT_BYTES) status = MC_INVALID_ARGUMENT;
  if (bytes > session.tenant->session_quota_bytes()) status = MC_TOO_LARGE;
  while (status == MC_OK && work.next < work.request.item_count) {
    if (session.over_quota(bytes)) {
      status = MC_QUOTA_EXCEEDED;
      break;
    }
    const bool offers = (work.request.flags & shm::kFlagElsewhere) != 0;
    if (offers && (goes_in_stripes(work, bytes) || !capacity_for(work, bytes))) {
      status = MC_NO_SPACE;
      break;
    }
    std::uint32_t entry = 0;
    const ObjectStore::Reserve result = grant(work, bytes, true, entry);
    if (result == ObjectStore::Reserve::kTooLarge) status = MC_TOO_LARGE;
    if (result == ObjectStore::Reserve::kNoMemory) status = MC_NO_MEMORY;
    if (result == ObjectStore::Reserve::kWait || result == ObjectStore::Reserve::kAgain) {
      // A partial answer is better than none.
      if (work.next > 0) break;
      if (!offers || !may_go_elsewhere(work, bytes, result)) return waiting_step(result);
      status = MC_NO_SPACE;
      break;
    }
    if (result != ObjectStore::Reserve::kOk) break;
    const PoolExtents extents = store.extents(entry);
    shm::ReservedItem item{};
    item.entry = entry;
    item.extent_count = extents.count;
    item.generation = store.generation_of(entry);
    item.length = bytes;
    for (std::uint32_t i = 0; i < extents.count; ++i) {
      item.extents[i] = {extents.at[i].offset_bytes, extents.at[i].length_bytes};
    }
    std::memcpy(results + work.next * sizeof item, &item, sizeof item);
    ++work.next;
  }
  complete(work, work.next > 0 ? MC_OK : status);
  return Step::kDone;
}

void Server::abandon(Work& work) {
  Session& session = *work.session;
  while (work.next < work.request.item_count && work.next_item()) {
    const bool mine = session.give_back(session.named_entry(work.item.fields));
    work.finish_item(mine ? MC_OK : MC_INVALID_ARGUMENT);
  }
  complete(work, work.first_failure);
}

// ---- Put ----------------------------------------------------------------------------------------

// kNoSpace: the put must wait.
[[gnu::hot]] ObjectStore::Put Server::publish(Work& work, const PutOrder& order) {
  const Session& session = *work.session;
  ObjectStore& store = *session.tenant->store;
  if (session.tenant->on_disks) {
    if (!disks_->may_forget(1)) return ObjectStore::Put::kNoSpace;
    const bool there = !order.upsert && store.is_reserved_by(session.id, order.entry) &&
                       !store.has(order.key) && disks_->has(*session.tenant, order.key);
    if (there) return ObjectStore::Put::kExisted;
  }
  return store.publish(session.id, order);
}

// Prefetches the memory of the items of a batch, so that the cache misses overlap.
[[gnu::hot]] void Server::prefetch_items(const Work& work) {
  if (work.request.item_count == 1) return;
  shm::ArgumentReader reader = work.reader;
  shm::ArgumentReader::Item item;
  for (std::uint32_t i = 0; i < kPrefetchItems && reader.next(item); ++i) {
    work.session->tenant->store->prefetch(
        {reinterpret_cast<const char*>(item.key), item.fields.key_bytes}, item.fields.entry);
  }
}

[[gnu::hot]] Server::Step Server::put(Work& work) {
  Session& session = *work.session;
  ObjectStore& store = *session.tenant->store;
  if (work.next == 0) prefetch_items(work);
  while (work.next < work.request.item_count) {
    if (!work.next_item()) {
      work.first_failure = MC_INVALID_ARGUMENT;
      break;
    }
    PutOrder order = work.order();
    order.entry = session.named_entry(work.item.fields);
    const bool mine = store.is_reserved_by(session.id, order.entry);
    const std::uint64_t bytes = mine ? store.reserved_length(order.entry) : 0;
    const ObjectStore::Put result = publish(work, order);
    if (result == ObjectStore::Put::kNoSpace) return Step::kWait;
    shm::ItemResult item = Work::kNothing;
    if (mine && result == ObjectStore::Put::kExisted) {
      // The reservation is unused and serves the next put.
      const PoolExtents extents = store.extents(order.entry);
      if (work.item.fields.want_refill != 0 && extents.count == 1) {
        item = {MC_OK, order.entry, extents.at[0].offset_bytes, store.generation_of(order.entry)};
      } else {
        store.abandon(session.id, order.entry);
        session.drop_from_ledger(order.entry, bytes);
      }
    } else if (mine) {
      session.drop_from_ledger(order.entry, bytes);
      if (work.item.fields.want_refill != 0) refill(work, round_to_granules(bytes), item);
    }
    note_put(work, order, result);
    work.finish_item(status_of(result), item);
  }
  return finish_put(work);
}

Server::Step Server::put_group(Work& work) {
  Session& session = *work.session;
  ObjectStore& store = *session.tenant->store;
  std::vector<shm::ArgumentReader::Item> items;
  while (items.size() < work.request.item_count && work.next_item()) {
    items.push_back(work.item);
    work.has_item = false;
  }
  if (items.size() != work.request.item_count) {
    complete(work, MC_INVALID_ARGUMENT);
    return Step::kDone;
  }
  std::vector<PutOrder> orders;
  for (const shm::ArgumentReader::Item& item : items) {
    PutOrder& order = orders.emplace_back(Work::order_of(item, work.request));
    order.entry = session.named_entry(item.fields);
    if (!store.is_reserved_by(session.id, order.entry)) continue;
    session.drop_from_ledger(order.entry, store.reserved_length(order.entry));
  }
  return publish_group(work, orders);
}

// REQUIRES: the reservations of the orders are out of the session's ledger.
Server::Step Server::publish_group(Work& work, std::vector<PutOrder>& orders) {
  const Tenant& tenant = *work.session->tenant;
  if (tenant.on_disks && !disks_->may_forget(orders.size())) {
    for (const PutOrder& order : orders) tenant.store->abandon(work.session->id, order.entry);
    end_group(work, MC_BUSY, 0);
    return Step::kDone;
  }
  std::size_t failed = 0;
  const ObjectStore::Put result =
      work.session->tenant->store->publish_group(work.session->id, orders, failed);
  // After a restart that undid a part of a group, the repeated request finds no reservations.
  const bool undone = result == ObjectStore::Put::kBadReservation;
  if (result != ObjectStore::Put::kStored) {
    end_group(work, undone ? MC_GROUP_ABORTED : status_of(result), failed);
    return Step::kDone;
  }
  ObjectIndex& index = work.session->tenant->store->index();
  for (const PutOrder& order : orders) {
    // A later member may have evicted an earlier one.
    const bool stored =
        order.entry != kNoEntry && state_of(index.entry(order.entry)) == shm::EntryState::kLive;
    note_put(work, order, stored ? ObjectStore::Put::kStored : ObjectStore::Put::kExisted);
    work.finish_item(MC_OK);
  }
  return finish_put(work);
}

void Server::end_group(Work& work, mc_status status, std::size_t failed) {
  while (work.next < work.request.item_count) {
    work.finish_item(status == MC_OK || work.next == failed ? status : MC_GROUP_ABORTED);
  }
  complete(work, status);
}

// ---- Other verbs --------------------------------------------------------------------------------

Server::Step Server::remove(Work& work) {
  if (has_elsewhere(*work.session->tenant)) {
    return ask_elsewhere(work, RemoteRequest::Kind::kRemove);
  }
  while (work.next < work.request.item_count && work.next_item()) {
    const std::string_view key{reinterpret_cast<const char*>(work.item.key),
                               work.item.fields.key_bytes};
    const bool removed = work.session->tenant->store->remove(key);
    work.finish_item(removed ? MC_OK : MC_NOT_FOUND);
    MC_FAILPOINT("remove.after_item");
  }
  complete(work, work.next == work.request.item_count ? work.first_failure : MC_INVALID_ARGUMENT);
  return Step::kDone;
}

Server::Step Server::set_pin(Work& work) {
  if (work.session->tenant->on_disks) return ask_elsewhere(work, RemoteRequest::Kind::kPin);
  while (work.next < work.request.item_count && work.next_item()) {
    const PutOrder order = work.order();
    const bool done = work.session->tenant->store->set_pin(order.key, order.pin, order.pin_ttl_s);
    work.finish_item(done ? MC_OK : MC_NOT_FOUND);
  }
  complete(work, work.next == work.request.item_count ? work.first_failure : MC_INVALID_ARGUMENT);
  return Step::kDone;
}

mc_status Server::cancel(const Session& session, std::uint32_t channel, std::uint64_t request_id) {
  for (std::list<Work>* const list : {&waiting_, &away_}) {
    const auto it = std::ranges::find_if(*list, [&](const Work& work) {
      return work.session == &session && work.channel == channel &&
             work.request.request_id == request_id;
    });
    if (it == list->end()) continue;
    if (list == &away_) {
      cut_short(*it, MC_CANCELLED);
    } else {
      end_waiting(*it, MC_CANCELLED, MC_CANCELLED);
    }
    stop_waiting(*list, it);
    return MC_OK;
  }
  return MC_NOT_FOUND;
}

// ---- Waiting ------------------------------------------------------------------------------------

void Server::retry_waiting(std::uint64_t now_ns) {
  wants_turn_ = false;
  ++turn_;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Work& work = *it;
    work.session->tenant->store->begin_turn(turn_);
    const Step step = proceed(work);
    if (step == Step::kDone) {
      it = stop_waiting(waiting_, it);
      continue;
    }
    if (step == Step::kAway) {
      away_.splice(away_.end(), waiting_, it++);
      continue;
    }
    wants_turn_ |= step == Step::kAgain;
    if (work.request.deadline_ns > now_ns) {
      ++it;
      continue;
    }
    ++work.session->tenant->store->counters().no_space;
    end_waiting(work, work.first_failure != MC_OK ? work.first_failure : MC_NO_SPACE, MC_TIMEOUT);
    it = stop_waiting(waiting_, it);
  }
}

// unfinished: the status of items that are stored, while a disk may still bring back an earlier object.
void Server::end_waiting(Work& work, mc_status status, mc_status unfinished) {
  give_back_copy(work);
  if (work.forgets) {
    for (RemoteRequest::Item& item : work.forgets->items) {
      work.forgets->settle(item, unfinished);
      if (item.status != MC_OK) work.override_result(item);
    }
  }
  complete(work, status);
}

void Server::forget(const Session& session) {
  std::erase_if(answered_, [&](const Answered& answered) { return answered.session == &session; });
  for (std::list<Work>* const list : {&waiting_, &away_}) {
    for (auto it = list->begin(); it != list->end();) {
      if (it->session != &session) {
        ++it;
        continue;
      }
      give_back_copy(*it);
      it = stop_waiting(*list, it);
    }
  }
}

void Server::release(Session& session) {
  forget(session);
  if (cluster_ != nullptr) cluster_->forget_session(session.id);
  session.give_back_all();
}

// ---- Requests to the cluster and the disks ------------------------------------------------------

// Objects that are fetched, looked up or removed on other hosts or disks, and puts that end when the
// master knows the objects, or when the disks have forgotten earlier ones.

// After a put of the current item: which parts the cluster has to do before the put ends.
[[gnu::hot]] void Server::note_put(Work& work, const PutOrder& order, ObjectStore::Put result) {
  const Tenant& tenant = *work.session->tenant;
  const bool stored = result == ObjectStore::Put::kStored;
  if (tenant.on_disks) forget_earlier(work, order, result);
  if (cluster_ == nullptr || !tenant.clustered) return;
  if (stored && (work.request.flags & shm::kFlagLocal) == 0) {
    RemoteRequest::Item item;
    item.entry = order.entry;
    item.number = work.next;
    add(work.remote_request, RemoteRequest::Kind::kAnnounce, std::move(item));
  }
  if (stored || result == ObjectStore::Put::kExisted) await_replicas(work, order);
}

// The put of the current item ends when no disk can bring back an earlier object of the key. A repeated
// upsert finds its own object. A member of a group may replace an object on a disk, and any put a damaged one.
void Server::forget_earlier(Work& work, const PutOrder& order, ObjectStore::Put result) {
  const std::shared_ptr<Tenant>& tenant = work.session->tenant;
  const bool stored = result == ObjectStore::Put::kStored;
  const bool unsure = disks_->may_bring_back(*tenant, order.key);
  const bool upserted = order.upsert && (stored || result == ObjectStore::Put::kExisted);
  if (!upserted && !(stored && unsure)) {
    if (stored) disks_->created(*tenant, order.key);
    return;
  }
  RemoteRequest::Item item;
  item.key = order.key;
  item.number = work.next;
  add(work.forgets, RemoteRequest::Kind::kForget, std::move(item));
  work.forgets->tenant = tenant;
  ++work.forgets->open_count;
  disks_->forget(work.forgets, work.forgets->items.size() - 1);
}

// The put of the current item ends when several hosts hold the object, if the client wants that.
[[gnu::hot]] void Server::await_replicas(Work& work, const PutOrder& order) {
  if ((work.request.flags & shm::kFlagReplicated) == 0 || order.replicas < 2) return;
  RemoteRequest::Item item;
  item.key = order.key;
  item.number = work.next;
  item.replicas = order.replicas;
  add(work.replicas, RemoteRequest::Kind::kReplicas, std::move(item));
}

[[gnu::hot]] Server::Step Server::finish_put(Work& work) {
  if (!work.remote_request) work.remote_request = std::exchange(work.replicas, nullptr);
  if (!work.remote_request) work.remote_request = std::exchange(work.forgets, nullptr);
  if (work.remote_request) return send_away(work);
  complete(work, work.first_failure);
  return Step::kDone;
}

Server::Step Server::ask_elsewhere(Work& work, RemoteRequest::Kind kind) {
  Session& session = *work.session;
  if (!has_elsewhere(*session.tenant)) {
    complete(work, MC_UNSUPPORTED);
    return Step::kDone;
  }
  work.remote_request = std::make_shared<RemoteRequest>();
  work.remote_request->kind = kind;
  shm::Channel& shared = *session.channels[work.channel].shared;
  while (work.remote_request->items.size() < work.request.item_count && work.next_item()) {
    const shm::PutItem& fields = work.item.fields;
    RemoteRequest::Item item;
    item.key.assign(reinterpret_cast<const char*>(work.item.key), fields.key_bytes);
    item.number = static_cast<std::uint32_t>(work.remote_request->items.size());
    work.has_item = false;
    if (item.key.empty() || fields.pin_slot >= shm::kPinSlots) break;
    // The slot lies in the session's own memory: a slot in use harms that session alone.
    if (kind == RemoteRequest::Kind::kFetch) item.pin = &shared.pins[fields.pin_slot];
    if (kind == RemoteRequest::Kind::kPin) {
      const PutOrder order = Work::order_of(work.item, work.request);
      item.level = order.pin;
      item.pin_ttl_s = order.pin_ttl_s;
    }
    work.remote_request->items.push_back(std::move(item));
  }
  if (work.remote_request->items.size() == work.request.item_count) return send_away(work);
  work.remote_request.reset();
  complete(work, MC_INVALID_ARGUMENT);
  return Step::kDone;
}

Server::Step Server::send_away(Work& work) {
  work.remote_request->tenant = work.session->tenant;
  work.remote_request->deadline_ns =
      std::min<std::uint64_t>(work.request.deadline_ns, now_ns() + MC_MAX_TIMEOUT_NS);
  if (work.remote_request->kind == RemoteRequest::Kind::kForget) {
    // Has begun already.
  } else if (work.session->tenant->clustered &&
             work.remote_request->kind != RemoteRequest::Kind::kPin) {
    cluster_->begin(work.remote_request, now_ns());
  } else {
    disks_->begin(work.remote_request, now_ns());
  }
  return work.remote_request->over() ? finish_remote_request(work) : Step::kAway;
}

// kAway: another remote request of the same work has begun.
Server::Step Server::finish_remote_request(Work& work) {
  const RemoteRequest& remote_request = *work.remote_request;
  const bool of_puts = remote_request.kind == RemoteRequest::Kind::kAnnounce ||
                       remote_request.kind == RemoteRequest::Kind::kReplicas ||
                       remote_request.kind == RemoteRequest::Kind::kForget;
  if (!of_puts) {
    for (const RemoteRequest::Item& item : remote_request.items) {
      const bool done = item.status == MC_OK;
      work.finish_item(item.status,
                       {MC_OK, done ? item.entry : kNoEntry, done ? item.length : 0, 0});
    }
    complete(work, work.first_failure);
    return Step::kDone;
  }
  std::vector<RemoteRequest::Item> next;
  if (work.replicas) next = std::exchange(work.replicas->items, {});
  for (const RemoteRequest::Item& item : remote_request.items) {
    if (item.status == MC_OK) continue;
    work.override_result(item);
    std::erase_if(next, [&](const auto& each) { return each.number == item.number; });
  }
  if (!next.empty()) {
    work.remote_request = std::exchange(work.replicas, nullptr);
    work.remote_request->items = std::move(next);
    return send_away(work);
  }
  work.replicas.reset();
  if (work.forgets) {
    work.remote_request = std::exchange(work.forgets, nullptr);
    return send_away(work);
  }
  complete(work, work.first_failure);
  return Step::kDone;
}

// Ends the open items of the remote request with this status, and finishes the work.
void Server::cut_short(Work& work, mc_status status) {
  RemoteRequest& remote_request = *work.remote_request;
  remote_request.abandoned = true;
  for (RemoteRequest::Item& item : remote_request.items) remote_request.settle(item, status);
  if (const auto replicas = std::exchange(work.replicas, nullptr)) {
    for (RemoteRequest::Item& item : replicas->items) {
      item.status = status;
      work.override_result(item);
    }
  }
  if (work.forgets) {
    for (RemoteRequest::Item& item : work.forgets->items) work.forgets->settle(item, status);
  }
  finish_remote_request(work);
}

void Server::finish_remote_requests(std::uint64_t now_ns) {
  for (auto it = away_.begin(); it != away_.end();) {
    RemoteRequest& remote_request = *it->remote_request;
    if (!remote_request.over() && now_ns < remote_request.deadline_ns) {
      ++it;
      continue;
    }
    if (!remote_request.over()) {
      cut_short(*it, MC_TIMEOUT);
    } else if (finish_remote_request(*it) == Step::kAway) {
      ++it;
      continue;
    }
    it = stop_waiting(away_, it);
  }
  if (std::ranges::any_of(waiting_, [](const Work& work) {
        return work.elsewhere.remote_request && work.elsewhere.remote_request->over();
      })) {
    retry_waiting(now_ns);
  }
}

// ---- Staged puts --------------------------------------------------------------------------------

// Puts with bytes in the session's staging memory: all puts of isolated namespaces, and puts of
// objects that may go to another host. The agent copies the bytes, a part a turn.

// Gives back the reservations of a staged put that ends early.
void Server::give_back_copy(Work& work) {
  ObjectStore& store = *work.session->tenant->store;
  for (const Work::Copied& copied : work.group) {
    store.abandon(work.session->id, copied.order.entry);
    work.session->drop_from_ledger(copied.order.entry, copied.order.length);
  }
  work.group.clear();
  if (work.entry == shm::kNoRefill) return;
  store.abandon(work.session->id, work.entry);
  work.session->drop_from_ledger(work.entry, work.item.fields.length);
  work.entry = shm::kNoRefill;
}

Server::Step Server::put_staged(Work& work) {
  while (work.next < work.request.item_count) {
    if (!work.next_item()) {
      work.first_failure = MC_INVALID_ARGUMENT;
      break;
    }
    mc_status placed = MC_OK;
    if (take_placed(work, placed)) {
      if (work.elsewhere.remote_request) return Step::kWait;
      if (placed == MC_OK) {
        await_replicas(work, work.order());
        work.finish_item(MC_OK);
        continue;
      }
    }
    mc_status failure = MC_OK;
    const bool first_try = work.elsewhere.next_ns == 0 && work.entry == shm::kNoRefill;
    if (first_try && work.item_is_sound() &&
        (wants_host(work) || goes_in_stripes(work, work.item.fields.length))) {
      return place_elsewhere(work);
    }
    const Step step = begin_copy(work, failure);
    const bool too_large = failure == MC_TOO_LARGE;
    if (step != Step::kDone || too_large) {
      const ObjectStore::Reserve why = too_large              ? ObjectStore::Reserve::kTooLarge
                                       : step == Step::kAgain ? ObjectStore::Reserve::kAgain
                                                              : ObjectStore::Reserve::kWait;
      if (may_go_elsewhere(work, work.item.fields.length, why)) return place_elsewhere(work);
      if (!too_large) return step;
    }
    if (failure != MC_OK) {
      work.finish_item(failure);
      continue;
    }
    const Step copied = copy_staged(work);
    if (copied == Step::kDone) continue;
    const bool full = copied == Step::kWait && work.entry != shm::kNoRefill;
    if (!full || !may_go_elsewhere(work, work.item.fields.length, ObjectStore::Reserve::kWait)) {
      return copied;
    }
    // The pool has room for the bytes, but the capacity has none.
    give_back_copy(work);
    return place_elsewhere(work);
  }
  return finish_put(work);
}

// Copies each member into its own reservation, then publishes all members together.
Server::Step Server::put_staged_group(Work& work) {
  Session& session = *work.session;
  while (work.group.size() < work.request.item_count) {
    mc_status failure = work.next_item() ? MC_OK : MC_INVALID_ARGUMENT;
    const shm::PutItem& fields = work.item.fields;
    if (failure == MC_OK && work.entry == shm::kNoRefill && session.over_quota(fields.length)) {
      failure = MC_QUOTA_EXCEEDED;
    }
    if (failure == MC_OK) {
      if (const Step step = begin_copy(work, failure); step != Step::kDone) return step;
    }
    if (failure == MC_OK) {
      if (const Step step = copy_part(work); step != Step::kDone) return step;
      if (work.is_late()) failure = MC_TIMEOUT;
    }
    if (failure != MC_OK) {
      const std::size_t failed = work.group.size();
      give_back_copy(work);
      end_group(work, failure, failed);
      return Step::kDone;
    }
    Work::Copied copied{{reinterpret_cast<const char*>(work.item.key), fields.key_bytes},
                        work.order()};
    copied.order.entry = work.entry;
    copied.order.checksum = work.sum;
    work.group.push_back(std::move(copied));
    work.entry = shm::kNoRefill;
    work.has_item = false;
  }
  std::vector<PutOrder> orders;
  for (const Work::Copied& copied : work.group) {
    session.drop_from_ledger(copied.order.entry, copied.order.length);
    orders.push_back(copied.order);
    orders.back().key = copied.key;
  }
  return publish_group(work, orders);
}

// Ends the current item and the items behind it.
void Server::end_late(Work& work) {
  give_back_copy(work);
  while (work.next < work.request.item_count) work.finish_item(MC_TIMEOUT);
}

// Checks the current item and reserves its extents. failure: the reason of a permanent failure.
Server::Step Server::begin_copy(Work& work, mc_status& failure) {
  if (work.entry != shm::kNoRefill) return Step::kDone;
  Session& session = *work.session;
  const shm::PutItem& fields = work.item.fields;
  if (!work.item_is_sound()) {
    failure = MC_INVALID_ARGUMENT;
    return Step::kDone;
  }
  std::uint32_t entry = 0;
  const ObjectStore::Reserve result = grant(work, fields.length, true, entry);
  if (result == ObjectStore::Reserve::kWait || result == ObjectStore::Reserve::kAgain) {
    return waiting_step(result);
  }
  if (result != ObjectStore::Reserve::kOk) {
    failure = result == ObjectStore::Reserve::kTooLarge ? MC_TOO_LARGE : MC_NO_MEMORY;
    return Step::kDone;
  }
  work.entry = entry;
  work.copied_bytes = 0;
  work.sum = session.tenant->store->index().hash(
      {reinterpret_cast<const char*>(work.item.key), fields.key_bytes});
  return Step::kDone;
}

// Copies a part of the current item. The sum covers the copied bytes, even if the client writes to
// the staging memory meanwhile.
Server::Step Server::copy_part(Work& work) {
  Session& session = *work.session;
  ObjectStore& store = *session.tenant->store;
  const shm::PutItem& fields = work.item.fields;
  const std::uint64_t end = std::min(fields.length, work.copied_bytes + kCopyStepBytes);
  const PoolExtents extents = store.extents(work.entry);
  std::uint64_t begins = 0;
  for (std::uint32_t i = 0; i < extents.count && work.copied_bytes < end; ++i) {
    const std::uint64_t ends = begins + extents.at[i].length_bytes;
    if (work.copied_bytes < ends) {
      const std::uint64_t step = std::min(ends, end) - work.copied_bytes;
      work.sum = copy_and_checksum(
          work.sum, store.pool().data() + extents.at[i].offset_bytes + (work.copied_bytes - begins),
          session.staging() + fields.staging_offset + work.copied_bytes, step);
      work.copied_bytes += step;
    }
    begins = ends;
  }
  order_copies();
  MC_FAILPOINT("staged.after_copy");
  return work.copied_bytes < fields.length ? Step::kAgain : Step::kDone;
}

// Copies a part of the current item, and publishes the item after the last part.
Server::Step Server::copy_staged(Work& work) {
  Session& session = *work.session;
  ObjectStore& store = *session.tenant->store;
  if (const Step step = copy_part(work); step != Step::kDone) return step;
  if (work.is_late()) {
    end_late(work);
    return Step::kDone;
  }
  PutOrder order = work.order();
  order.entry = work.entry;
  order.checksum = work.sum;
  const ObjectStore::Put result = publish(work, order);
  if (result == ObjectStore::Put::kNoSpace) return Step::kWait;
  if (result == ObjectStore::Put::kExisted) store.abandon(session.id, work.entry);
  note_put(work, order, result);
  session.drop_from_ledger(work.entry, order.length);
  work.entry = shm::kNoRefill;
  work.finish_item(status_of(result));
  return Step::kDone;
}

// ---- Puts on other hosts ------------------------------------------------------------------------

// Staged puts without room on this host, in the pool or under its capacity: another host of the
// cluster must hold the object. The agent first evicts cold objects, which costs no other host
// anything. The agent also waits a moment for objects that are about to leave. If no room can
// appear, the agent does not wait. A put for which the client names a host is offered to that host
// before all this.
//
//   no room ──► summed, a part a turn ──► RemoteRequest::kPlace ──► held there: done
//      ▲                                        └──► refused: tried here again, then there,
//      └──────────────────────────────────────────── until the deadline

// True if the client names a host that has not been asked.
bool Server::wants_host(const Work& work) const {
  return cluster_ != nullptr && work.session->tenant->clustered && work.request.a != 0 &&
         work.elsewhere.next_ns == 0;
}

bool Server::may_go_elsewhere(Work& work, std::uint64_t bytes, ObjectStore::Reserve result) {
  if (cluster_ == nullptr || !work.session->tenant->clustered) return false;
  const std::uint64_t now = now_ns();
  if (work.begun_ns == 0) work.begun_ns = now;
  if (now < work.elsewhere.next_ns) return false;
  if (result == ObjectStore::Reserve::kTooLarge) return work.elsewhere.next_ns == 0;
  const ObjectStore& store = *work.session->tenant->store;
  const bool hopeless = result == ObjectStore::Reserve::kWait &&
                        (!store.room_may_come() || bytes > store.capacity_bytes());
  const std::uint64_t deadline_ns = work.request.deadline_ns;
  const std::uint64_t left_ns = deadline_ns > work.begun_ns ? deadline_ns - work.begun_ns : 0;
  return hopeless || now >= work.begun_ns + std::min(left_ns / kLocalShare, kMostLocalNs);
}

// True if an object of this size must lie in stripes on several hosts.
bool Server::goes_in_stripes(const Work& work, std::uint64_t bytes) const {
  return cluster_ != nullptr && work.session->tenant->clustered && cluster_->in_stripes(bytes);
}

// Returns false if the live objects leave no room under capacity_bytes and another host may be
// asked. The pool itself may have room.
bool Server::capacity_for(const Work& work, std::uint64_t bytes) {
  const Tenant& tenant = *work.session->tenant;
  return cluster_ == nullptr || !tenant.clustered || bytes > tenant.store->capacity_bytes() ||
         tenant.store->make_room(bytes);
}

// REQUIRES: item_is_sound().
Server::Step Server::place_elsewhere(Work& work) {
  Session& session = *work.session;
  const shm::PutItem& fields = work.item.fields;
  Work::Elsewhere& elsewhere = work.elsewhere;
  const std::string_view key{reinterpret_cast<const char*>(work.item.key), fields.key_bytes};
  if (elsewhere.summed_bytes == 0) elsewhere.sum = session.tenant->store->index().hash(key);
  const std::uint64_t step = std::min(fields.length - elsewhere.summed_bytes, kSumStepBytes);
  elsewhere.sum = checksum(
      elsewhere.sum, session.staging() + fields.staging_offset + elsewhere.summed_bytes, step);
  elsewhere.summed_bytes += step;
  if (elsewhere.summed_bytes < fields.length) return Step::kAgain;
  const std::uint64_t now = now_ns();
  if (now >= work.request.deadline_ns) {
    end_late(work);
    return finish_put(work);
  }

  const auto remote_request = std::make_shared<RemoteRequest>();
  remote_request->kind = RemoteRequest::Kind::kPlace;
  remote_request->tenant = session.tenant;
  remote_request->deadline_ns =
      std::min<std::uint64_t>(work.request.deadline_ns, now + MC_MAX_TIMEOUT_NS);
  remote_request->source = {session.id, &session.staging_file(), fields.staging_offset,
                            work.order()};
  if (wants_host(work)) {
    remote_request->source.host = work.request.a;
    // The rest of the time is for this host.
    remote_request->deadline_ns = now + (remote_request->deadline_ns - now) / 2;
  }
  remote_request->source.order.key = {};
  remote_request->source.order.checksum = elsewhere.sum;
  RemoteRequest::Item item;
  item.key = key;
  remote_request->items.push_back(std::move(item));
  elsewhere.summed_bytes = 0;
  elsewhere.remote_request = remote_request;
  cluster_->begin(remote_request, now);
  return Step::kWait;
}

// Returns true if another host was asked. The question is open while work.elsewhere.remote_request
// is set.
bool Server::take_placed(Work& work, mc_status& status) {
  Work::Elsewhere& elsewhere = work.elsewhere;
  if (!elsewhere.remote_request) return false;
  if (!elsewhere.remote_request->over()) return true;
  status = elsewhere.remote_request->items.front().status;
  elsewhere.remote_request.reset();
  elsewhere.next_ns = now_ns() + kAskAgainNs;
  return true;
}

}  // namespace mc::agent
