// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/stripe/stripe_mover.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kLeastMoveNs = 30'000 * kMs;
constexpr std::uint64_t kSlowMoveNsPerByte = 10;  // the master orders a slower move again
constexpr std::uint64_t kAskAgainNs = 300 * kMs;
constexpr std::uint64_t kMoveSealAgainNs = 100 * kMs;
constexpr std::uint64_t kBusyNs = 5 * kMs;
// A slower stripe is asked for again: a holder that delivers less than 1 MB/s counts as lost.
constexpr std::uint64_t kLeastStripeMs = 2'000;
constexpr std::uint64_t kSlowBytesPerMs = 1'000;
constexpr std::uint64_t kKeepLongerNs = 10'000 * kMs;
constexpr unsigned kMaxTries = 4;

}  // namespace

void StripeMover::begin(const metadata::wire::Copy& order, Move::Done done) {
  for (const auto& tenant : tenants_) {
    for (const StripeSet* const set : tenant->stripes().sealed(order.key, order.version)) {
      if (set->id.part != order.part) continue;
      // The part is here already, so the master must hear of it again.
      tenant->changes().push_back(
          {ClusterTenant::item_of(*set), set->stripes.begin()->second.entry});
      return done({});
    }
  }
  for (const OperationId id : moves_) {
    Move& move = *operations_.find<Move>(id);
    const bool same = move.order.key == order.key && move.order.version == order.version &&
                      move.order.part == order.part;
    if (!same) continue;
    return std::exchange(move.done, std::move(done))({MC_BUSY, "the order was repeated"});
  }
  if (moves_.size() >= kMaxMoves) return done({MC_BUSY, "too many moves are under way"});
  ++counters_.asked;
  Move& move = operations_.begin(std::make_unique<Move>(*this, order, std::move(done)), nullptr);
  move.deadline_ns =
      operations_.now_ns() + kLeastMoveNs + order.bytes / order.parts * kSlowMoveNsPerByte;
  moves_.insert(move.id());
}

void Move::step() { mover.step(*this); }
void Move::cancel() { mover.end(*this, MC_NO_SUCH_NAMESPACE, mover.counters_.failed); }

void StripeMover::step(Move& move) {
  const std::uint64_t now_ns = operations_.now_ns();
  operations_.wake_at(move, move.deadline_ns > now_ns ? move.deadline_ns : Operation::kNever);
  if (move.failed) {
    const mc_status why = *move.failed;
    return end(move, why,
               why == MC_NO_SPACE    ? counters_.no_room
               : why == MC_CANCELLED ? counters_.refused
                                     : counters_.failed);
  }
  if (now_ns >= move.deadline_ns && !is_offered(move)) {
    return end(move, MC_TIMEOUT, counters_.late);
  }
  if (move.at == Step::kAsking) ask(move);
  if (move.at == Step::kPulling) pull(move);
  if (move.at == Step::kSealing) seal(move);
}

// ---- Asking for the places of the stripes -------------------------------------------------------

// The question is repeated until all rows have come. Repeated rows are equal.
void StripeMover::ask(Move& move) {
  const std::uint64_t now_ns = operations_.now_ns();
  if (now_ns >= move.again_ns) {
    move.again_ns = now_ns + kAskAgainNs;
    if (!peers_.id_of(move.order.source)) peers_.missed();
    StripesRequest message;
    message.request = move.id().value();
    message.key = move.order.key;
    message.version = move.order.version;
    message.part = move.order.part;
    peers_.notify(move.order.source, message, Peers::kToldCookie, move.again_ns, now_ns);
  }
  operations_.wake_at(move, std::min(move.again_ns, move.deadline_ns));
}

void StripeMover::on_answer(MemberId from, const StripesAnswer& answer) {
  Move* const move = operations_.find<Move>(OperationId::of(answer.request));
  if (move == nullptr || move->at != Step::kAsking || move->order.source != from) return;
  if (answer.rows.empty()) return fail(*move, MC_NOT_FOUND);
  ClusterTenant* const tenant = find_tenant(tenants_, answer.name_space);
  if (tenant == nullptr) return fail(*move, MC_NO_SUCH_NAMESPACE);
  if (move->tenant() == nullptr) operations_.set_tenant(*move, *tenant);
  if (move->rows.empty()) move->facts = answer.facts;
  const bool sound =
      move->tenant() == tenant && std::ranges::all_of(answer.rows, [&](const PlaceRow& row) {
        return row.version == move->order.version && tenant->name_of(row.key) == move->order.key;
      });
  if (!sound || !move->facts.same_object(answer.facts)) return fail(*move, MC_CORRUPT);
  move->region = answer.region;
  for (const PlaceRow& row : answer.rows) move->rows[row.number].lies = row;
  if (move->rows.size() >= answer.facts.number) move->at = Step::kPulling;
  operations_.wake(*move);
}

// ---- Pulling ------------------------------------------------------------------------------------

void StripeMover::pull(Move& move) {
  if (!take_copies(move)) return;
  const std::uint64_t now_ns = operations_.now_ns();
  const StripeSet* begun = move.tenant()->stripes().find(move.set());
  std::size_t open = 0, here = 0;
  for (auto& [number, row] : move.rows) {
    const bool held = begun != nullptr && begun->stripes.contains(number) &&
                      begun->stripes.at(number).entry != kNoEntry;
    here += held ? 1 : 0;
    if (held || open >= kMaxOpen) continue;
    ++open;
    if (row.copy) continue;
    if (now_ns < row.not_before_ns) {
      operations_.wake_at(move, row.not_before_ns);
      continue;
    }
    if (!pull_one(move, number, row)) return;
    // The stripe may have begun the set.
    begun = move.tenant()->stripes().find(move.set());
  }
  if (here < move.rows.size()) return;
  MC_FAILPOINT("stripes.pulled");
  move.at = Step::kSealing;
  move.again_ns = 0;
}

// Takes the copies that have ended. False: the move has failed, or asks again, because a stripe may
// have moved in the pool.
bool StripeMover::take_copies(Move& move) {
  for (auto& [number, row] : move.rows) {
    const std::unique_ptr<Copy> copy = operations_.take<Copy>(row.copy);
    if (copy == nullptr) continue;
    row.copy = {};
    if (copy->result == MC_OK) continue;
    if (copy->result == MC_NO_SPACE || ++move.tries >= kMaxTries) {
      fail(move, copy->result);
      return false;
    }
    for (const auto& [other, each] : move.rows) operations_.cancel(each.copy);
    move.rows.clear();
    move.at = Step::kAsking;
    operations_.wake_at(move, std::min(move.again_ns, move.deadline_ns));
    return false;
  }
  return true;
}

bool StripeMover::pull_one(Move& move, std::uint16_t number, Move::Row& row) {
  const std::uint64_t now_ns = operations_.now_ns();
  ClusterTenant& tenant = *move.tenant();
  // The reservation for the stripe must not evict another part of the object.
  for (const StripeSet* const set : tenant.stripes().sealed(move.order.key, move.order.version)) {
    for (const auto& [other, stripe] : set->stripes) tenant.store().touch(stripe.entry);
  }
  HoldRequest hold;
  hold.request = move.id().value();
  hold.name_space = tenant.id();
  hold.region = move.region;
  hold.row = row.lies;
  hold.share_ms = static_cast<std::uint32_t>(kLeastStripeMs + row.lies.length / kSlowBytesPerMs);
  hold.stripe = move.facts;
  hold.stripe->number = number;
  const std::uint64_t keep_ns = move.deadline_ns + kKeepLongerNs - now_ns;
  hold.stripe->keep_ms = static_cast<std::uint32_t>(keep_ns / kMs);
  if (!holder_.expect(tenant, hold, move.order.source, move.order.part)) {
    fail(move, MC_BUSY);
    return false;
  }
  const auto copy = copies_.pull_stripe(tenant, hold, move.order.source, move.id());
  if (copy) {
    row.copy = *copy;
  } else {
    row.not_before_ns = now_ns + kBusyNs;
    operations_.wake_at(move, row.not_before_ns);
  }
  return true;
}

// ---- Sealing ------------------------------------------------------------------------------------

void StripeMover::seal(Move& move) {
  if (const auto sealed = std::exchange(move.sealed, std::nullopt)) {
    if (*sealed != MC_OK) return fail(move, *sealed);
    for (const auto& [number, row] : move.rows) counters_.moved_bytes += row.lies.length;
    return end(move, MC_OK, counters_.moved);
  }
  const std::uint64_t now_ns = operations_.now_ns();
  if (now_ns >= move.again_ns) {
    move.again_ns = now_ns + kMoveSealAgainNs;
    holder_.seal_moved(*move.tenant(), move.set(), move.order.version, move.order.parts,
                       [this, id = move.id()](mc_status status) {
                         Move* const of = operations_.find<Move>(id);
                         if (of == nullptr) return;
                         of->sealed = status;
                         operations_.wake(*of);
                       });
  }
  operations_.wake_at(move, move.again_ns);
}

// An offered part must not be dropped: the master may have accepted it, with a late answer.
bool StripeMover::is_offered(const Move& move) const {
  if (move.at != Step::kSealing) return false;
  const StripeSet* const set = move.tenant()->stripes().find(move.set());
  return set != nullptr && set->offered;
}

// ---- Ends ---------------------------------------------------------------------------------------

// The move ends in the next step.
void StripeMover::fail(Move& move, mc_status status) {
  move.failed = status;
  operations_.wake(move);
}

void StripeMover::end(Move& move, mc_status status, std::uint64_t& reason) {
  ++reason;
  for (const auto& [number, row] : move.rows) operations_.cancel(row.copy);
  if (status != MC_OK && move.tenant() != nullptr) {
    const StripeSet* const set = move.tenant()->stripes().find(move.set());
    if (set != nullptr && !set->sealed) move.tenant()->drop_stripes(set->id, false);
  }
  moves_.erase(move.id());
  operations_.end(move);
  move.done(status == MC_OK ? Status() : Status(status, "the copy could not be made"));
}

}  // namespace mc::agent
