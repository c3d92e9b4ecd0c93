// SPDX-License-Identifier: Apache-2.0
#include "agent/server/server.h"

#include <algorithm>
#include <bit>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kDefaultSoftPinS = 3600;
constexpr int kTurn = 8;  // requests of a channel before the next channel's turn
constexpr std::uint32_t kPrefetchItems = 16;

static_assert(shm::kReservationUnitBytes == kGranuleBytes);

std::uint64_t round_to_granules(std::uint64_t bytes) {
  return (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
}

// Operations that are refused in isolated namespaces. There, the agent itself writes every
// reservation, so a client must not publish or give back a reservation.
bool is_for_direct(shm::Op op) {
  return op == shm::Op::kReserve || op == shm::Op::kPut || op == shm::Op::kAbandon;
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

[[gnu::hot]] PutOrder Server::order_of(const shm::ArgumentReader::Item& item,
                                       const shm::Request& request) {
  PutOrder order;
  order.key = {reinterpret_cast<const char*>(item.key), item.fields.key_bytes};
  order.entry = item.fields.entry;
  order.length = item.fields.length;
  order.checksum = item.fields.checksum;
  order.parent_hash = item.fields.parent_hash;
  order.pin = item.fields.pin <= MC_PIN_HARD ? static_cast<mc_pin>(item.fields.pin) : MC_PIN_NONE;
  order.pin_ttl_s = item.fields.pin_ttl_s != 0 ? item.fields.pin_ttl_s : kDefaultSoftPinS;
  order.upsert = (request.flags & shm::kFlagUpsert) != 0;
  order.replicas = static_cast<std::uint8_t>(std::clamp(item.fields.replicas, 1u, 8u));
  return order;
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
  if (!session.unheard.empty()) take_back_unheard(session, number, request.request_id);
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
    give_back_copy(work);
    complete(work, MC_BUSY);
    return;
  }
  // The longest wait that a client may ask for: see MC_MAX_TIMEOUT_NS.
  work.request.deadline_ns =
      std::min<std::uint64_t>(work.request.deadline_ns, now_ns() + MC_MAX_TIMEOUT_NS);
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
      set_pin(work);
      return Step::kDone;
    case shm::Op::kCancel:
      complete(work, cancel(*work.session, work.channel, work.request.a));
      return Step::kDone;
    case shm::Op::kCheck:
      ++work.session->tenant->store->counters().reported;
      work.session->tenant->scrubber->examine(static_cast<std::uint32_t>(work.request.a));
      complete(work, MC_OK);
      return Step::kDone;
    case shm::Op::kFetch:
      return ask_cluster(work, RemoteRequest::Kind::kFetch);
    case shm::Op::kExists:
      return ask_cluster(work, RemoteRequest::Kind::kExists);
  }
  return Step::kDone;
}

// ---- Items --------------------------------------------------------------------------------------

[[gnu::hot]] bool Server::next_item(Work& work) {
  if (work.has_item) return true;
  work.has_item = work.reader.next(work.item);
  const std::string_view key{reinterpret_cast<const char*>(work.item.key),
                             work.has_item ? work.item.fields.key_bytes : 0u};
  if (key.starts_with(kStripePrefix)) work.has_item = false;
  return work.has_item;
}

[[gnu::hot]] void Server::finish_item(Work& work, mc_status status, shm::ItemResult result) {
  result.status = status;
  if (status != MC_OK && work.first_failure == MC_OK) work.first_failure = status;
  work.last = result;
  if (work.request.item_count > 1) {
    auto* arguments = work.session->channels[work.channel].shared->arguments;
    std::memcpy(arguments + work.request.argument_offset + work.next * sizeof result, &result,
                sizeof result);
  }
  ++work.next;
  work.has_item = false;
  work.begun_ns = 0;
  work.elsewhere = {};
}

[[gnu::hot]] void Server::complete(Work& work, mc_status status) {
  MC_FAILPOINT("completion.before_publish");
  ChannelState& channel = work.session->channels[work.channel];
  shm::Completion completion{};
  completion.request_id = work.request.request_id;
  completion.status = status;
  completion.item_count = work.next;
  completion.first = work.last;
  channel.completions.publish(shm::to_words(completion));
  if (!channel.needs_wake) answered_.push_back({work.session, work.channel});
  channel.needs_wake = true;
  MC_FAILPOINT("completion.after_publish");
}

// ---- Reservations -------------------------------------------------------------------------------

// True if a further reservation of this size would exceed the session's quota.
bool Server::over_quota(const Session& session, std::uint64_t bytes) {
  return session.reserved_bytes + round_to_granules(bytes) > session.tenant->session_quota_bytes();
}

[[gnu::hot]] ObjectStore::Reserve Server::grant(Work& work, std::uint64_t bytes, bool evict,
                                                std::uint32_t& entry) {
  Session& session = *work.session;
  const GrantedTo to{work.channel, work.request.request_id};
  const ObjectStore::Reserve result =
      session.tenant->store->reserve(session.id, to, bytes, evict, entry);
  if (result == ObjectStore::Reserve::kOk) {
    session.reserved.insert(entry);
    // The ledger counts like the pool: a thousand reservations of 1 byte hold a thousand granules.
    session.reserved_bytes += round_to_granules(bytes);
  }
  return result;
}

[[gnu::hot]] void Server::drop_from_ledger(Session& session, std::uint32_t entry,
                                           std::uint64_t bytes) {
  if (session.reserved.erase(entry) > 0) session.reserved_bytes -= round_to_granules(bytes);
}

[[gnu::hot]] void Server::refill(Work& work, std::uint64_t bytes, shm::ItemResult& result) {
  Session& session = *work.session;
  if (over_quota(session, bytes)) return;
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
    drop_from_ledger(session, entry, bytes);
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
  auto* results =
      work.session->channels[work.channel].shared->arguments + work.request.argument_offset;
  mc_status status = MC_OK;
  if (bytes == 0 || bytes > MC_MAX_OBJECT_BYTES) status = MC_INVALID_ARGUMENT;
  if (bytes > session.tenant->session_quota_bytes()) status = MC_TOO_LARGE;
  while (status == MC_OK && work.next < work.request.item_count) {
    if (over_quota(session, bytes)) {
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
      if (!offers || !may_go_elsewhere(work, result)) return waiting_step(result);
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
  while (work.next < work.request.item_count && next_item(work)) {
    const bool mine = give_back(*work.session, named_entry(*work.session, work.item.fields));
    finish_item(work, mine ? MC_OK : MC_INVALID_ARGUMENT);
  }
  complete(work, work.first_failure);
}

// ---- Put ----------------------------------------------------------------------------------------

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
    if (!next_item(work)) {
      work.first_failure = MC_INVALID_ARGUMENT;
      break;
    }
    PutOrder order = order_of(work.item, work.request);
    order.entry = named_entry(session, work.item.fields);
    const bool mine = store.is_reserved_by(session.id, order.entry);
    const std::uint64_t bytes = mine ? store.reserved_length(order.entry) : 0;
    const ObjectStore::Put result = store.publish(session.id, order);
    if (result == ObjectStore::Put::kNoSpace) return Step::kWait;
    shm::ItemResult item = kNothing;
    if (mine && result == ObjectStore::Put::kExisted) {
      // The reservation is unused and serves the next put.
      const PoolExtents extents = store.extents(order.entry);
      if (work.item.fields.want_refill != 0 && extents.count == 1) {
        item = {MC_OK, order.entry, extents.at[0].offset_bytes, store.generation_of(order.entry)};
      } else {
        store.abandon(session.id, order.entry);
        drop_from_ledger(session, order.entry, bytes);
      }
    } else if (mine) {
      drop_from_ledger(session, order.entry, bytes);
      if (work.item.fields.want_refill != 0) refill(work, round_to_granules(bytes), item);
    }
    if (result == ObjectStore::Put::kStored) announce(work, work.next, order.entry);
    finish_item(work, status_of(result), item);
  }
  return finish_put(work);
}

Server::Step Server::put_group(Work& work) {
  Session& session = *work.session;
  ObjectStore& store = *session.tenant->store;
  std::vector<shm::ArgumentReader::Item> items;
  while (items.size() < work.request.item_count && next_item(work)) {
    items.push_back(work.item);
    work.has_item = false;
  }
  if (items.size() != work.request.item_count) {
    complete(work, MC_INVALID_ARGUMENT);
    return Step::kDone;
  }
  std::vector<PutOrder> orders;
  for (const shm::ArgumentReader::Item& item : items) {
    PutOrder& order = orders.emplace_back(order_of(item, work.request));
    order.entry = named_entry(session, item.fields);
    if (!store.is_reserved_by(session.id, order.entry)) continue;
    drop_from_ledger(session, order.entry, store.reserved_length(order.entry));
  }
  return publish_group(work, orders);
}

// REQUIRES: the reservations of the orders are out of the session's ledger.
Server::Step Server::publish_group(Work& work, std::vector<PutOrder>& orders) {
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
    if (stored) announce(work, work.next, order.entry);
    finish_item(work, MC_OK);
  }
  return finish_put(work);
}

void Server::end_group(Work& work, mc_status status, std::size_t failed) {
  while (work.next < work.request.item_count) {
    finish_item(work, status == MC_OK || work.next == failed ? status : MC_GROUP_ABORTED);
  }
  complete(work, status);
}

// ---- Other verbs --------------------------------------------------------------------------------

Server::Step Server::remove(Work& work) {
  if (cluster_ != nullptr && work.session->tenant->clustered) {
    return ask_cluster(work, RemoteRequest::Kind::kRemove);
  }
  while (work.next < work.request.item_count && next_item(work)) {
    const std::string_view key{reinterpret_cast<const char*>(work.item.key),
                               work.item.fields.key_bytes};
    const bool removed = work.session->tenant->store->remove(key);
    finish_item(work, removed ? MC_OK : MC_NOT_FOUND);
    MC_FAILPOINT("remove.after_item");
  }
  complete(work, work.next == work.request.item_count ? work.first_failure : MC_INVALID_ARGUMENT);
  return Step::kDone;
}

void Server::set_pin(Work& work) {
  while (work.next < work.request.item_count && next_item(work)) {
    const PutOrder order = order_of(work.item, work.request);
    const bool done = work.session->tenant->store->set_pin(order.key, order.pin, order.pin_ttl_s);
    finish_item(work, done ? MC_OK : MC_NOT_FOUND);
  }
  complete(work, work.next == work.request.item_count ? work.first_failure : MC_INVALID_ARGUMENT);
}

mc_status Server::cancel(const Session& session, std::uint32_t channel, std::uint64_t request_id) {
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->session != &session || it->channel != channel || it->request.request_id != request_id) {
      continue;
    }
    give_back_copy(*it);
    complete(*it, MC_CANCELLED);
    stop_waiting(waiting_, it);
    return MC_OK;
  }
  for (auto it = away_.begin(); it != away_.end(); ++it) {
    if (it->session != &session || it->channel != channel || it->request.request_id != request_id) {
      continue;
    }
    it->remote_request->abandoned = true;
    for (RemoteRequest::Item& item : it->remote_request->items)
      it->remote_request->settle(item, MC_CANCELLED);
    finish_remote_request(*it);
    stop_waiting(away_, it);
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
    give_back_copy(work);
    ++work.session->tenant->store->counters().no_space;
    complete(work, work.first_failure != MC_OK ? work.first_failure : MC_NO_SPACE);
    it = stop_waiting(waiting_, it);
  }
}

}  // namespace mc::agent
