// SPDX-License-Identifier: Apache-2.0
//
// Reading: room in this pool, the bytes of a holder, and their sum.
#include <algorithm>
#include <cstring>

#include "agent/cluster/fetch/fetcher.h"
#include "libmc/base/checksum.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

using transport::Outcome;

namespace {

// A holder that brings less than 1 MB/s is left for the next one. One that is gone is known by the
// transport sooner.
constexpr std::uint64_t kSlowNsPerByte = 1'000;

// Calls take(offset in the pool, bytes) for each stretch of that part of what lies there.
template <typename Take>
void each_stretch(const PoolExtents& lies, std::uint64_t from, std::uint64_t bytes, Take take) {
  std::uint64_t begins = 0;
  for (std::uint32_t i = 0; i < lies.count && bytes > 0; ++i) {
    const std::uint64_t ends = begins + lies.at[i].length_bytes;
    if (from < ends) {
      const std::uint64_t size = std::min(ends - from, bytes);
      take(lies.at[i].offset_bytes + (from - begins), size);
      from += size;
      bytes -= size;
    }
    begins = ends;
  }
}

}  // namespace

void Fetcher::seek_room(Fetch& fetch) {
  ObjectStore& store = fetch.tenant->store();
  const std::uint64_t label_bytes = fetch.held ? fetch.held->label.size() : 0;
  const ObjectStore::Reserve result =
      store.reserve(kClusterSession, fetch.at.row.length + label_bytes, true, fetch.entry);
  switch (result) {
    case ObjectStore::Reserve::kOk:
      fetch.step = Step::kReading;
      read(fetch);
      return;
    case ObjectStore::Reserve::kWait:
      fetch.entry = kNoEntry;
      if (fetch.held && !store.room_may_come()) {
        miss(fetch, MC_NO_SPACE, counters_.no_room);
        return;
      }
      want_room_.push_back(fetch.id);
      return;
    case ObjectStore::Reserve::kAgain:
      fetch.entry = kNoEntry;
      want_room_.push_back(fetch.id);
      return;
    case ObjectStore::Reserve::kTooLarge:
    case ObjectStore::Reserve::kNoMemory:
      fetch.entry = kNoEntry;
      miss(fetch, MC_NO_SPACE, counters_.no_room);
      return;
  }
}

// The bytes came with the answer, or will be asked for with those of others, at the end of the
// turn.
void Fetcher::read(Fetch& fetch) {
  fetch.parts.clear();
  fetch.asked_bytes = fetch.summed_bytes = 0;
  fetch.sum = fetch.name.lo;  // the key's hash, with which every sum begins
  fetch.read_outcome = Outcome::kDone;
  if (!fetch.bytes.empty()) {
    take_bytes(fetch);
  } else {
    to_read_.push_back(fetch.id);
  }
}

// All that is due in one call, so that the transport sends a peer one message for many objects.
void Fetcher::submit_reads(std::uint64_t now_ns) {
  ReadPlan& plan = read_plan_;
  plan.clear();
  std::vector<std::uint64_t> due = std::exchange(to_read_, {});
  std::ranges::sort(due);
  due.erase(std::unique(due.begin(), due.end()), due.end());
  // Those that must go elsewhere first: that may end others.
  for (const std::uint64_t id : due) {
    Fetch* const fetch = find(id);
    if (fetch == nullptr || !may_read(*fetch) || peers_.id_of(fetch->at.node)) continue;
    fetch->read_outcome = Outcome::kPeerLost;
    if (fetch->reads_open == 0) on_read(*fetch);
  }
  for (const std::uint64_t id : due) {
    Fetch* const fetch = find(id);
    if (fetch == nullptr || !may_read(*fetch)) continue;
    MC_FAILPOINT("fetch.before_read");
    const std::size_t first = plan.operations.size();
    plan_reads(*fetch, now_ns);
    plan.fetches.push_back({id, plan.operations.size() - first});
  }
  if (plan.fetches.empty()) return;
  std::size_t piece = 0;
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    plan.operations[i].pieces = {plan.pieces.data() + piece, plan.piece_counts[i]};
    piece += plan.piece_counts[i];
  }
  const std::size_t taken = transport_.submit(plan.operations, now_ns);
  std::size_t first = 0;
  for (const auto& [id, count] : plan.fetches) {
    Fetch& fetch = *find(id);
    for (std::size_t i = first; i < std::min(first + count, taken); ++i) {
      std::uint64_t bytes = 0;
      for (const transport::Piece& part : plan.operations[i].pieces) bytes += part.size_bytes;
      fetch.parts.push_back({plan.operations[i].id, bytes});
      fetch.asked_bytes += bytes;
      ++fetch.reads_open;
    }
    first += count;
    // Too much is in flight: with the next round.
    if (fetch.reads_open == 0) to_read_.push_back(id);
  }
}

// REQUIRES: the holder is a known peer.
void Fetcher::plan_reads(const Fetch& fetch, std::uint64_t now_ns) {
  ObjectStore& store = fetch.tenant->store();
  const PoolExtents to = store.extents(fetch.entry);
  // How long a holder is asked says nothing about how long its bytes take.
  const std::uint64_t length = fetch.at.row.length;
  const std::uint64_t coming =
      std::min(length, length - fetch.asked_bytes + kPartsOut * kPartBytes);
  const std::uint64_t until_ns =
      std::max(fetch.try_until_ns, std::min(fetch.deadline_ns, now_ns + coming * kSlowNsPerByte));
  std::size_t open = fetch.reads_open;
  std::uint64_t at = fetch.asked_bytes;  // of the object
  std::uint64_t begins = 0;              // the extent of the source
  for (const shm::ExtentRecord& extent : fetch.at.row.extents) {
    const std::uint64_t ends = begins + extent.length_bytes;
    while (at < ends && open < kPartsOut) {
      const std::uint64_t bytes = std::min(ends - at, kPartBytes);
      transport::Operation& operation = read_plan_.operations.emplace_back();
      operation.peer = *peers_.id_of(fetch.at.node);
      operation.cookie = kReadCookie | fetch.id;
      operation.deadline_ns = std::max(until_ns, now_ns + kLeastTryNs);
      // A copy that the master ordered, and nobody waits for.
      if (fetch.waiters.empty()) operation.priority = transport::Priority::kMigration;
      operation.region = fetch.at.region;
      operation.generation = fetch.at.row.generation;
      operation.offset_bytes = extent.offset_bytes + (at - begins);
      read_plan_.piece_counts.push_back(append_pieces(to, at, bytes, *fetch.tenant));
      at += bytes;
      ++open;
    }
    begins = ends;
  }
}

// Where that stretch of the object lies in a reservation here.
std::size_t Fetcher::append_pieces(const PoolExtents& lies, std::uint64_t from, std::uint64_t bytes,
                                   const ClusterTenant& tenant) {
  const std::size_t before = read_plan_.pieces.size();
  std::byte* const pool = tenant.store().pool().data();
  each_stretch(lies, from, bytes, [&](std::uint64_t offset, std::uint64_t size) {
    read_plan_.pieces.push_back({pool + offset, size, tenant.region});
  });
  return read_plan_.pieces.size() - before;
}

void Fetcher::take_bytes(Fetch& fetch) {
  ObjectStore& store = fetch.tenant->store();
  const std::byte* from = fetch.bytes.data();
  const std::uint64_t bytes = std::min<std::uint64_t>(fetch.bytes.size(), fetch.at.row.length);
  each_stretch(store.extents(fetch.entry), 0, bytes, [&](std::uint64_t offset, std::uint64_t size) {
    std::memcpy(store.pool().data() + offset, from, size);
    from += size;
  });
  fetch.bytes.clear();
  sum_next(fetch, bytes);
  ++counters_.came_along;
  on_read(fetch);
}

void Fetcher::on_event(const transport::Event& event) {
  if ((event.cookie & kAskCookie) != 0) {
    const auto at = asks_.find(static_cast<std::uint32_t>(event.cookie));
    if (at == asks_.end()) return;
    if (event.outcome == Outcome::kDone) {
      at->second.again_ns = now_ns_ + kAnswerNs;
      return;
    }
    const std::vector<std::uint64_t> ids = std::move(at->second.fetches);
    asks_.erase(at);
    for (const std::uint64_t id : ids) {
      Fetch* const fetch = find(id);
      if (fetch != nullptr && fetch->step == Step::kAsking) try_next(*fetch, now_ns_);
    }
    return;
  }
  Fetch* const fetch = find(event.cookie & ~kReadCookie);
  if (fetch != nullptr && fetch->reads_open > 0) on_part(*fetch, event);
}

void Fetcher::on_part(Fetch& fetch, const transport::Event& event) {
  const auto part = std::ranges::find(fetch.parts, event.id, &Fetch::Part::id);
  if (part == fetch.parts.end() || part->in) return;
  part->in = true;
  --fetch.reads_open;
  if (event.outcome != Outcome::kDone && fetch.read_outcome == Outcome::kDone) {
    fetch.read_outcome = event.outcome;
  }
  if (fetch.missed) {
    if (fetch.reads_open == 0) end(fetch);
  } else if (fetch.read_outcome != Outcome::kDone) {
    if (fetch.reads_open == 0) on_read(fetch);
  } else {
    to_read_.push_back(fetch.id);
    to_sum_.push_back(fetch.id);
  }
}

// One part of each, so that no large object holds the loop up. What follows it is asked for first.
void Fetcher::sum_parts() {
  for (const std::uint64_t id : std::exchange(to_sum_, {})) {
    Fetch* const fetch = find(id);
    if (fetch == nullptr || fetch->step != Step::kReading || fetch->parts.empty()) continue;
    if (fetch->missed || fetch->read_outcome != Outcome::kDone || !fetch->parts.front().in)
      continue;
    sum_next(*fetch, fetch->parts.front().bytes);
    fetch->parts.pop_front();
    if (fetch->summed_bytes == fetch->at.row.length) {
      on_read(*fetch);
      continue;
    }
    if (!fetch->parts.empty() && fetch->parts.front().in) to_sum_.push_back(id);
  }
}

void Fetcher::sum_next(Fetch& fetch, std::uint64_t bytes) {
  ObjectStore& store = fetch.tenant->store();
  each_stretch(store.extents(fetch.entry), fetch.summed_bytes, bytes,
               [&](std::uint64_t offset, std::uint64_t size) {
                 fetch.sum = checksum(fetch.sum, store.pool().data() + offset, size);
               });
  fetch.summed_bytes += bytes;
}

void Fetcher::on_read(Fetch& fetch) {
  if (fetch.read_outcome == Outcome::kBusy) return read(fetch);
  if (fetch.read_outcome != Outcome::kDone) {
    locations_.forget(fetch.name);
    try_next(fetch, now_ns_);
    return;
  }
  if (fetch.sum != fetch.at.row.checksum) {
    ++counters_.corrupt;
    locations_.forget(fetch.name);
    try_next(fetch, now_ns_);
    return;
  }
  MC_FAILPOINT("fetch.verified");
  ++counters_.read_objects;
  counters_.read_bytes += fetch.at.row.length;
  if (fetch.held && !fetch.held->label.empty()) return shelve(fetch);
  // Until now there was nothing to tell of: the master counts on what it is told, and may let the
  // host go where the bytes are.
  const bool upsert = fetch.held && fetch.held->order.upsert;
  if (!fetch.keep || fetch.dropped || (upsert && !hold_upsert(fetch))) return deliver(fetch);
  fetch.step = Step::kOffered;
  offer(fetch);
}

}  // namespace mc::agent
