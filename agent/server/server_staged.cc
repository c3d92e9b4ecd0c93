// SPDX-License-Identifier: Apache-2.0
//
// Puts with bytes in the session's staging memory: all puts of isolated namespaces, and puts of
// objects that may go to another host. The agent copies the bytes, a part a turn.
#include <algorithm>

#include "agent/server/server.h"
#include "libmc/base/checksum.h"
#include "libmc/base/copy.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {
constexpr std::uint64_t kCopyStepBytes = 4ull << 20;  // copied in a single turn
}  // namespace

// Gives back the reservations of a staged put that ends early.
void Server::give_back_copy(Work& work) {
  ObjectStore& store = *work.session->tenant->store;
  for (const Copied& copied : work.group) {
    store.abandon(work.session->id, copied.order.entry);
    drop_from_ledger(*work.session, copied.order.entry, copied.order.length);
  }
  work.group.clear();
  if (work.entry == shm::kNoRefill) return;
  store.abandon(work.session->id, work.entry);
  drop_from_ledger(*work.session, work.entry, work.item.fields.length);
  work.entry = shm::kNoRefill;
}

Server::Step Server::put_staged(Work& work) {
  while (work.next < work.request.item_count) {
    if (!next_item(work)) {
      work.first_failure = MC_INVALID_ARGUMENT;
      break;
    }
    mc_status placed = MC_OK;
    if (take_placed(work, placed)) {
      if (work.elsewhere.remote_request) return Step::kWait;
      if (placed == MC_OK) {
        finish_item(work, MC_OK);
        continue;
      }
    }
    mc_status failure = MC_OK;
    const bool first_try = work.elsewhere.next_ns == 0 && work.entry == shm::kNoRefill;
    if (first_try && item_is_sound(work) && goes_in_stripes(work, work.item.fields.length)) {
      return place_elsewhere(work);
    }
    const Step step = begin_copy(work, failure);
    const bool too_large = failure == MC_TOO_LARGE;
    if (step != Step::kDone || too_large) {
      const ObjectStore::Reserve why = too_large              ? ObjectStore::Reserve::kTooLarge
                                       : step == Step::kAgain ? ObjectStore::Reserve::kAgain
                                                              : ObjectStore::Reserve::kWait;
      if (may_go_elsewhere(work, why)) return place_elsewhere(work);
      if (!too_large) return step;
    }
    if (failure != MC_OK) {
      finish_item(work, failure);
      continue;
    }
    const Step copied = copy_staged(work);
    if (copied == Step::kDone) continue;
    const bool full = copied == Step::kWait && work.entry != shm::kNoRefill;
    if (!full || !may_go_elsewhere(work, ObjectStore::Reserve::kWait)) return copied;
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
    mc_status failure = next_item(work) ? MC_OK : MC_INVALID_ARGUMENT;
    const shm::PutItem& fields = work.item.fields;
    if (failure == MC_OK && work.entry == shm::kNoRefill && over_quota(session, fields.length)) {
      failure = MC_QUOTA_EXCEEDED;
    }
    if (failure == MC_OK) {
      if (const Step step = begin_copy(work, failure); step != Step::kDone) return step;
    }
    if (failure != MC_OK) {
      const std::size_t failed = work.group.size();
      give_back_copy(work);
      end_group(work, failure, failed);
      return Step::kDone;
    }
    if (const Step step = copy_part(work); step != Step::kDone) return step;
    Copied copied{{reinterpret_cast<const char*>(work.item.key), fields.key_bytes},
                  order_of(work.item, work.request)};
    copied.order.entry = work.entry;
    copied.order.checksum = work.sum;
    work.group.push_back(std::move(copied));
    work.entry = shm::kNoRefill;
    work.has_item = false;
  }
  std::vector<PutOrder> orders;
  for (const Copied& copied : work.group) {
    drop_from_ledger(session, copied.order.entry, copied.order.length);
    orders.push_back(copied.order);
    orders.back().key = copied.key;
  }
  return publish_group(work, orders);
}

// True if the item has a key and its bytes lie in the session's staging memory.
bool Server::item_is_sound(const Work& work) {
  const std::uint64_t staging_bytes = work.session->staging_bytes();
  const shm::PutItem& fields = work.item.fields;
  return fields.length > 0 && fields.length <= staging_bytes && fields.key_bytes > 0 &&
         fields.staging_offset <= staging_bytes - fields.length;
}

// Checks the current item and reserves its extents. failure: the reason of a permanent failure.
Server::Step Server::begin_copy(Work& work, mc_status& failure) {
  if (work.entry != shm::kNoRefill) return Step::kDone;
  Session& session = *work.session;
  const shm::PutItem& fields = work.item.fields;
  if (!item_is_sound(work)) {
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
  PutOrder order = order_of(work.item, work.request);
  order.entry = work.entry;
  order.checksum = work.sum;
  const ObjectStore::Put result = store.publish(session.id, order);
  if (result == ObjectStore::Put::kNoSpace) return Step::kWait;
  if (result == ObjectStore::Put::kExisted) store.abandon(session.id, work.entry);
  if (result == ObjectStore::Put::kStored) announce(work, work.next, order.entry);
  drop_from_ledger(session, work.entry, order.length);
  work.entry = shm::kNoRefill;
  finish_item(work, status_of(result));
  return Step::kDone;
}

}  // namespace mc::agent
