// SPDX-License-Identifier: Apache-2.0
//
// Reading: room in this pool, the bytes of a holder, and their sum.
#include <algorithm>
#include <cstring>

#include "agent/cluster/fetcher.h"
#include "libmc/base/checksum.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

using transport::Outcome;

namespace {

// A holder that brings less than 1 MB/s is left for the next one. One that is gone is known by the
// transport sooner.
constexpr std::uint64_t kSlowNsPerByte = 1'000;

}  // namespace

void Fetcher::seek_room(Fetch& fetch) {
  Store& store = fetch.tenant->store();
  const std::uint64_t label_bytes = fetch.held ? fetch.held->label.size() : 0;
  const Store::Reserve result =
      store.reserve(kClusterSession, fetch.at.row.length + label_bytes, true, fetch.entry);
  switch (result) {
    case Store::Reserve::kOk:
      fetch.step = Step::kReading;
      if (!fetch.held) offer(fetch);
      read(fetch);
      return;
    case Store::Reserve::kWait:
      fetch.entry = kNoEntry;
      if (fetch.held && !store.room_may_come()) {
        miss(fetch, MC_NO_SPACE, counters_.no_room);
        return;
      }
      want_room_.push_back(fetch.id);
      return;
    case Store::Reserve::kAgain:
      fetch.entry = kNoEntry;
      want_room_.push_back(fetch.id);
      return;
    case Store::Reserve::kTooLarge:
    case Store::Reserve::kNoMemory:
      fetch.entry = kNoEntry;
      miss(fetch, MC_NO_SPACE, counters_.no_room);
      return;
  }
}

// The bytes came with the answer, or will be asked for with those of others, at the end of the
// turn.
void Fetcher::read(Fetch& fetch) {
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
    if (fetch != nullptr && may_read(*fetch) && !peers_.id_of(fetch->at.node)) {
      try_next(*fetch, now_ns);
    }
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
    const std::size_t open = std::min(count, taken - std::min(taken, first));
    fetch.reads.clear();
    for (std::size_t i = 0; i < open; ++i) fetch.reads.push_back(plan.operations[first + i].id);
    first += count;
    fetch.reads_open = static_cast<std::uint32_t>(open);
    // Too much is in flight. What was taken must end before the bytes are used for another try.
    fetch.read_outcome = open == count ? Outcome::kDone : Outcome::kBusy;
    if (open == 0) to_read_.push_back(id);
  }
}

// REQUIRES: the holder is a known peer.
void Fetcher::plan_reads(const Fetch& fetch, std::uint64_t now_ns) {
  Store& store = fetch.tenant->store();
  const PoolExtents to = store.extents(fetch.entry);
  // The reservation is one stretch of bytes to the extents of the source: pieces follow those.
  std::uint32_t piece = 0;
  std::uint64_t piece_at = 0;
  // How long a holder is asked says nothing about how long its bytes take.
  const std::uint64_t until_ns =
      std::max(fetch.try_until_ns,
               std::min(fetch.deadline_ns, now_ns + fetch.at.row.length * kSlowNsPerByte));
  for (const shm::ExtentRecord& extent : fetch.at.row.extents) {
    const std::size_t pieces_before = read_plan_.pieces.size();
    std::uint64_t left = extent.length_bytes;
    while (left > 0 && piece < to.count) {
      const PoolExtent& there = to.at[piece];
      const std::uint64_t step = std::min(left, there.length_bytes - piece_at);
      read_plan_.pieces.push_back(
          {store.pool().data() + there.offset_bytes + piece_at, step, fetch.tenant->region});
      left -= step;
      if ((piece_at += step) == there.length_bytes) piece_at = 0, ++piece;
    }
    transport::Operation& operation = read_plan_.operations.emplace_back();
    operation.peer = *peers_.id_of(fetch.at.node);
    operation.cookie = kReadCookie | fetch.id;
    operation.deadline_ns = std::max(until_ns, now_ns + kLeastTryNs);
    // A copy that the master ordered, and nobody waits for.
    if (fetch.waiters.empty()) operation.priority = transport::Priority::kMigration;
    operation.region = fetch.at.region;
    operation.generation = fetch.at.row.generation;
    operation.offset_bytes = extent.offset_bytes;
    read_plan_.piece_counts.push_back(read_plan_.pieces.size() - pieces_before);
  }
}

void Fetcher::take_bytes(Fetch& fetch) {
  Store& store = fetch.tenant->store();
  const PoolExtents to = store.extents(fetch.entry);
  std::span<const std::byte> left = fetch.bytes;
  for (std::uint32_t i = 0; i < to.count && !left.empty(); ++i) {
    const auto step = left.first(std::min<std::uint64_t>(left.size(), to.at[i].length_bytes));
    std::memcpy(store.pool().data() + to.at[i].offset_bytes, step.data(), step.size());
    left = left.subspan(step.size());
  }
  fetch.bytes.clear();
  fetch.read_outcome = Outcome::kDone;
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
  if (fetch == nullptr || fetch->reads_open == 0) return;
  if (event.outcome != Outcome::kDone && fetch->read_outcome == Outcome::kDone) {
    fetch->read_outcome = event.outcome;
  }
  if (--fetch->reads_open > 0) return;
  if (fetch->missed) {
    end(*fetch);
  } else {
    on_read(*fetch);
  }
}

void Fetcher::on_read(Fetch& fetch) {
  if (fetch.read_outcome == Outcome::kBusy) {
    to_read_.push_back(fetch.id);
    return;
  }
  if (fetch.read_outcome != Outcome::kDone) {
    locations_.forget(fetch.name);
    try_next(fetch, now_ns_);
    return;
  }
  if (!sum_matches(fetch)) {
    ++counters_.corrupt;
    locations_.forget(fetch.name);
    try_next(fetch, now_ns_);
    return;
  }
  MC_FAILPOINT("fetch.verified");
  ++counters_.read_objects;
  counters_.read_bytes += fetch.at.row.length;
  fetch.read_in = true;
  if (fetch.held && !fetch.held->label.empty()) return shelve(fetch);
  if (fetch.held) {
    // Nobody else has these bytes, so that until now there was nothing to tell of.
    fetch.step = Step::kOffered;
    if (fetch.dropped || (fetch.held->order.upsert && !hold_upsert(fetch))) {
      deliver(fetch);
    } else {
      offer(fetch);
    }
    return;
  }
  if (fetch.verdict_due) {
    fetch.step = Step::kOffered;
    return;
  }
  deliver(fetch);
}

bool Fetcher::sum_matches(const Fetch& fetch) const {
  const Store& store = fetch.tenant->store();
  const PoolExtents lies = store.extents(fetch.entry);
  std::uint64_t sum = fetch.name.lo;  // the key's hash, with which every sum begins
  std::uint64_t left = fetch.at.row.length;
  for (std::uint32_t i = 0; i < lies.count && left > 0; ++i) {
    const std::uint64_t bytes = std::min(left, lies.at[i].length_bytes);
    sum = checksum(sum, fetch.tenant->store().pool().data() + lies.at[i].offset_bytes, bytes);
    left -= bytes;
  }
  return sum == fetch.at.row.checksum;
}

}  // namespace mc::agent
