// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/gatherer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "agent/cluster/fetch/reservation.h"
#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kMostGatherAskNs = 500 * kMs;
// Between two tries to reach a holder or to get room, if nothing else turns the loop.
constexpr std::uint64_t kGatherAgainNs = kMs;
// A holder that delivers less than 1 MB/s counts as lost.
constexpr std::uint64_t kSlowGatherNsPerByte = 1'000;
constexpr std::uint64_t kLeastReadNs = 50 * kMs;
constexpr std::size_t kMostReads = 16;               // of a gather, at a time
constexpr std::uint64_t kGatherStepBytes = 2 << 20;  // copied or summed in a turn

}  // namespace

OperationId Gatherer::begin(ClusterTenant& tenant, Gather::Wanted wanted, OperationId parent) {
  auto gather = std::make_unique<Gather>(*this);
  gather->object = {&tenant, wanted.name};
  gather->to_ask = wanted.holders;
  gather->wanted = std::move(wanted);
  gather->answers_by_ns =
      std::min(gather->wanted.deadline_ns, operations_.now_ns() + kMostGatherAskNs);
  gather->sum = gather->wanted.name.lo;  // each checksum begins with the key's hash
  return operations_.begin(std::move(gather), &tenant, parent).id();
}

void Gather::step() { gatherer.step(*this); }
// A question has not reached a holder.
void Gather::on_event(const transport::Event& event) {
  if (event.outcome == transport::Outcome::kDone) return;
  gatherer.unreached(*this, gatherer.peers_.node_of(event.peer));
}
void Gather::cancel() { gatherer.fail(*this, MC_NOT_FOUND, gatherer.counters_.failed); }

void Gatherer::step(Gather& gather) {
  const std::uint64_t now_ns = operations_.now_ns();
  operations_.wake_at(gather, gather.wanted.deadline_ns);
  if (gather.at == Step::kAsking) {
    ask(gather);
    if (now_ns >= gather.answers_by_ns) return fail(gather, MC_HOLDER_AWAY, counters_.late);
    look_at_answers(gather);
  }
  if (gather.at == Step::kRoom) seek_room(gather);
  if (gather.at == Step::kReading) read(gather);
  if (gather.at == Step::kEnding) end(gather);
}

// ---- Asking for the places of the stripes -------------------------------------------------------

void Gatherer::ask(Gather& gather) {
  const auto asked = [&](MemberId node) {
    if (node == self_) {
      take_own(gather);
      return true;
    }
    StripesRequest message;
    message.request = gather.id().value();
    message.name_space = gather.tenant()->id();
    message.key = gather.wanted.name;
    message.version = gather.wanted.version;
    // The node may have joined a moment ago, or too many messages are in flight.
    if (!peers_.id_of(node)) peers_.missed();
    if (!peers_.notify(node, message, message.request, gather.answers_by_ns,
                       operations_.now_ns())) {
      return false;
    }
    gather.rows_due.emplace(node, 0);
    ++counters_.asked;
    return true;
  };
  std::erase_if(gather.to_ask, asked);
  const std::uint64_t again_ns = operations_.now_ns() + kGatherAgainNs;
  operations_.wake_at(gather, gather.to_ask.empty() ? gather.answers_by_ns
                                                    : std::min(gather.answers_by_ns, again_ns));
}

void Gatherer::unreached(Gather& gather, MemberId node) {
  gather.rows_due.erase(node);
  gather.holder_away = true;
  operations_.wake(gather);
}

void Gatherer::take_own(Gather& gather) {
  ClusterTenant& tenant = *gather.tenant();
  for (const StripeSet* set : tenant.stripes().sealed(gather.wanted.name, gather.wanted.version)) {
    std::vector<PlaceRow> rows;
    for (const auto& [number, stripe] : set->stripes) {
      rows.push_back(tenant.place_of(*set, number));
      // The reservation that follows must not evict these stripes.
      tenant.store().touch(stripe.entry);
    }
    take_rows(gather, self_, 0, set->facts, rows);
  }
}

bool Gatherer::take_rows(Gather& gather, MemberId from, transport::RemoteRegionId region,
                         const StripeFacts& facts, const std::vector<PlaceRow>& rows) {
  if (gather.stripes.empty()) gather.facts = facts;
  if (facts.whole_bytes != gather.wanted.bytes || !gather.facts.same_object(facts)) return false;
  for (const PlaceRow& row : rows) {
    if (row.version != gather.wanted.version || row.number >= facts.count) return false;
    gather.stripes[row.number].sources.push_back({from, region, row, 0});
  }
  return true;
}

void Gatherer::on_answer(MemberId from, const StripesAnswer& answer) {
  Gather* const gather = operations_.find<Gather>(OperationId::of(answer.request));
  if (gather == nullptr || gather->over() || gather->at == Step::kEnding) return;
  const auto due = gather->rows_due.find(from);
  if (due == gather->rows_due.end()) return;
  const auto region = peers_.region_of(from, answer.region);
  const bool taken = region && !answer.rows.empty() &&
                     take_rows(*gather, from, *region, answer.facts, answer.rows);
  if (due->second == 0) due->second = answer.facts.number;
  due->second = static_cast<std::uint16_t>(due->second -
                                           std::min<std::size_t>(due->second, answer.rows.size()));
  if (!taken || due->second == 0) gather->rows_due.erase(due);
  operations_.wake(*gather);
}

void Gatherer::look_at_answers(Gather& gather) {
  // One holder of each stripe is enough.
  if (!gather.stripes.empty() && gather.stripes.size() == gather.facts.count) {
    gather.at = Step::kRoom;
  } else if (gather.to_ask.empty() && gather.rows_due.empty()) {
    fail(gather, gather.lacks(), counters_.lacking);
  }
}

bool Gatherer::more_may_answer(const Gather& gather) const {
  return !gather.rows_due.empty() && operations_.now_ns() < gather.answers_by_ns;
}

// ---- Reading ------------------------------------------------------------------------------------

void Gatherer::seek_room(Gather& gather) {
  if (operations_.now_ns() >= gather.wanted.deadline_ns) {
    return fail(gather, MC_NO_SPACE, counters_.no_room);
  }
  ObjectStore& store = gather.tenant()->store();
  const ObjectStore::Reserve result =
      store.reserve(kClusterSession, gather.facts.whole_bytes, true, gather.object.entry);
  if (result == ObjectStore::Reserve::kOk) {
    MC_FAILPOINT("gather.before_read");
    gather.at = Step::kReading;
    return;
  }
  gather.object.entry = kNoEntry;
  const bool wait = result == ObjectStore::Reserve::kAgain ||
                    (result == ObjectStore::Reserve::kWait && store.room_may_come());
  if (!wait) return fail(gather, MC_NO_SPACE, counters_.no_room);
  operations_.wake_at(gather, operations_.now_ns() + kGatherAgainNs);
}

void Gatherer::read(Gather& gather) {
  for (auto& [number, stripe] : gather.stripes) {
    if (stripe.read) take_read(gather, stripe);
  }
  if (operations_.now_ns() >= gather.wanted.deadline_ns) {
    return fail(gather, MC_TIMEOUT, counters_.late);
  }
  if (gather.checks_stripes) return check_stripes(gather);
  bool copied = false;
  for (auto& [number, stripe] : gather.stripes) {
    if (stripe.here || stripe.read) continue;
    if (!stripe.chosen && !choose(gather, stripe)) {
      if (!more_may_answer(gather)) return fail(gather, gather.lacks(), counters_.failed);
      operations_.wake_at(gather, gather.answers_by_ns);
    } else if (stripe.sources.front().node != self_) {
      if (gather.reads_open < kMostReads) begin_read(gather, number, stripe);
    } else if (!std::exchange(copied, true) && !copy_own(gather, number, stripe)) {
      leave(stripe);
    }
  }
  if (copied) operations_.wake_at(gather, operations_.now_ns());
  add_up(gather);
}

void Gatherer::take_read(Gather& gather, Stripe& stripe) {
  const std::unique_ptr<Read> read = operations_.take<Read>(stripe.read);
  if (read == nullptr) return;
  stripe.read = {};
  --gather.reads_open;
  if (read->end == Read::End::kRead) {
    stripe.here = true;
  } else {
    gather.holder_away |= read->holder_away();
    leave(stripe);
  }
}

// Chooses this host, or else the reachable holder with the fewest chosen stripes. False: the stripe
// has no holder left.
bool Gatherer::choose(Gather& gather, Stripe& stripe) {
  const auto away = std::erase_if(stripe.sources, [&](const Location& source) {
    return source.node != self_ && !peers_.id_of(source.node);
  });
  gather.holder_away |= away > 0;
  if (stripe.sources.empty()) return false;
  const auto load = [&](const Location& source) {
    const unsigned stripes = source.node == self_ ? 0 : 1 + gather.chosen[source.node];
    return std::pair(peers_.is_lost(source.node), stripes);
  };
  std::iter_swap(stripe.sources.begin(), std::ranges::min_element(stripe.sources, {}, load));
  ++gather.chosen[stripe.sources.front().node];
  stripe.chosen = true;
  ++counters_.stripes_read;
  counters_.failed_over += stripe.left ? 1 : 0;
  return true;
}

void Gatherer::begin_read(Gather& gather, std::uint16_t number, Stripe& stripe) {
  const std::uint64_t now_ns = operations_.now_ns();
  const std::uint64_t left_ns = gather.wanted.deadline_ns - now_ns;
  // While another holder is left or may answer, a holder gets half of the time.
  const bool is_last = stripe.sources.size() == 1 && !more_may_answer(gather);
  const std::uint64_t share_ns = is_last ? left_ns : left_ns / 2;
  const std::uint64_t slow_ns = gather.facts.whole_bytes * kSlowGatherNsPerByte;
  ReadTerms terms;
  terms.deadline_ns = terms.try_until_ns =
      now_ns + std::max(kLeastReadNs, std::min(share_ns, slow_ns));
  terms.waited_for = true;
  terms.into = gather.object.entry;
  terms.at_bytes = number * gather.facts.stripe_bytes;
  FetchedObject object(gather.tenant(), gather.wanted.name);
  object.from = stripe.sources.front();
  stripe.read = reader_.begin(std::move(object), terms, gather.id());
  ++gather.reads_open;
}

// Copies a part of a stripe that lies on this host. False: the stripe is gone.
bool Gatherer::copy_own(Gather& gather, std::uint16_t number, Stripe& stripe) {
  // The reservation may have evicted the stripe.
  const StripeSet* const set = gather.tenant()->stripes().set_of({gather.facts.put, number});
  if (set == nullptr || !set->sealed || set->version != gather.wanted.version) return false;
  if (set->stripes.at(number).entry == kNoEntry) return false;
  ObjectStore& store = gather.tenant()->store();
  const std::uint64_t bytes = gather.facts.bytes_of(number);
  const std::uint64_t count = std::min(bytes - stripe.copied_bytes, kGatherStepBytes);
  const std::uint64_t begins = number * gather.facts.stripe_bytes;
  std::uint64_t to = begins + stripe.copied_bytes;
  each_piece(store.extents(set->stripes.at(number).entry), stripe.copied_bytes, count,
             [&](std::uint64_t offset, std::uint64_t size) {
               store.write(gather.object.entry, to, {store.pool().data() + offset, size});
               to += size;
             });
  stripe.copied_bytes += count;
  stripe.here = stripe.copied_bytes == bytes;
  return true;
}

// Gives up the chosen source. REQUIRES: no read of the stripe is open.
void Gatherer::leave(Stripe& stripe) {
  stripe.sources.erase(stripe.sources.begin());
  stripe.chosen = stripe.here = false;
  stripe.copied_bytes = 0;
  stripe.left = true;
}

// ---- Sums ---------------------------------------------------------------------------------------

// Sums the stripes that are here, in order and a bounded part in a turn.
void Gatherer::add_up(Gather& gather) {
  const StripeFacts& facts = gather.facts;
  std::uint64_t here = 0;
  for (const auto& [number, stripe] : gather.stripes) {
    if (!stripe.here) break;
    here += facts.bytes_of(number);
  }
  const std::uint64_t count = std::min(here - gather.summed_bytes, kGatherStepBytes);
  gather.sum =
      sum_of(gather.tenant()->store(), gather.object.entry, gather.sum, gather.summed_bytes, count);
  gather.summed_bytes += count;
  if (gather.summed_bytes < here) return operations_.wake_at(gather, operations_.now_ns());
  if (gather.summed_bytes < facts.whole_bytes) return;
  if (gather.sum == facts.whole_sum) {
    counters_.gathered_bytes += facts.whole_bytes;
    ++counters_.gathered;
    gather.at = Step::kEnding;
    return;
  }
  ++counters_.corrupt;
  gather.checks_stripes = true;
  gather.summed_bytes = 0;
  check_stripes(gather);
}

// Compares the stripes' own sums, a bounded part in a turn. Then gives up the sources of stripes
// whose sum is wrong.
void Gatherer::check_stripes(Gather& gather) {
  const StripeFacts& facts = gather.facts;
  ObjectStore& store = gather.tenant()->store();
  const auto number = static_cast<std::uint16_t>(gather.summed_bytes / facts.stripe_bytes);
  const std::uint64_t within = gather.summed_bytes % facts.stripe_bytes;
  if (within == 0) gather.sum = store.index().hash(stripe_key({facts.put, number}));
  const std::uint64_t count = std::min(facts.bytes_of(number) - within, kGatherStepBytes);
  gather.sum = sum_of(store, gather.object.entry, gather.sum, gather.summed_bytes, count);
  gather.summed_bytes += count;
  Stripe& stripe = gather.stripes.at(number);
  if (within + count == facts.bytes_of(number)) {
    stripe.corrupt = gather.sum != stripe.sources.front().row.checksum;
  }
  operations_.wake_at(gather, operations_.now_ns());
  if (gather.summed_bytes < facts.whole_bytes) return;
  bool left = false;
  for (auto& [of, each] : gather.stripes) {
    if (!std::exchange(each.corrupt, false)) continue;
    leave(each);
    left = true;
  }
  if (!left) return fail(gather, MC_NOT_FOUND, counters_.failed);
  gather.checks_stripes = false;
  gather.sum = gather.wanted.name.lo;
  gather.summed_bytes = 0;
}

// ---- Ends ---------------------------------------------------------------------------------------

// The gather ends when no Read writes into the reservation any more.
void Gatherer::fail(Gather& gather, mc_status status, std::uint64_t& reason) {
  ++reason;
  gather.at = Step::kEnding;
  gather.status = status;
  for (const auto& [number, stripe] : gather.stripes) operations_.abort(stripe.read);
  operations_.wake(gather);
}

void Gatherer::end(Gather& gather) {
  for (auto& [number, stripe] : gather.stripes) {
    if (stripe.read) take_read(gather, stripe);
  }
  if (gather.reads_open > 0) return operations_.wake_at(gather, Operation::kNever);
  if (gather.status != MC_OK) gather.object.give_back();
  operations_.end(gather);
}

}  // namespace mc::agent
