// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/stripe/stripe_mover.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kLeastMoveNs = 30'000 * kMs;
constexpr std::uint64_t kSlowMoveNsPerByte = 10;  // the master orders a slower move again
constexpr std::uint64_t kAskAgainNs = 300 * kMs;
constexpr std::uint64_t kMoveSealAgainNs = 100 * kMs;
constexpr std::uint64_t kPullAgainNs = 2'000 * kMs;
constexpr std::uint64_t kBusyNs = 5 * kMs;
// A slower stripe is asked for again: a holder that delivers less than 1 MB/s counts as lost.
constexpr std::uint64_t kLeastStripeMs = 2'000;
constexpr std::uint64_t kSlowBytesPerMs = 1'000;
constexpr std::uint64_t kKeepLongerNs = 10'000 * kMs;
constexpr std::uint64_t kMoverCheckNs = 2 * kMs;
constexpr unsigned kMaxTries = 4;

}  // namespace

StripeMover::Move* StripeMover::find(std::uint32_t id) {
  const auto at = moves_.find(id);
  return at == moves_.end() ? nullptr : &at->second;
}

void StripeMover::move(const metadata::wire::Copy& order, std::uint64_t now_ns, Ended ended) {
  for (const auto& tenant : tenants_) {
    for (const StripeSet* const set : tenant->stripes().sealed(order.key, order.version)) {
      if (set->id.part != order.part) continue;
      // The part is here already, so the master must hear of it again.
      tenant->changes().push_back(
          {ClusterTenant::item_of(*set), set->stripes.begin()->second.entry});
      return ended(MC_OK);
    }
  }
  for (auto& [id, move] : moves_) {
    const bool same = move.order.key == order.key && move.order.version == order.version &&
                      move.order.part == order.part;
    if (!same) continue;
    std::exchange(move.ended, std::move(ended))(MC_BUSY);
    return;
  }
  if (moves_.size() >= kMaxMoves) return ended(MC_BUSY);
  now_ns_ = now_ns;
  ++counters_.asked;
  const std::uint32_t id = next_id_++;
  if (next_id_ == 0) next_id_ = 1u << 31;
  Move& move = moves_[id];
  move.id = id;
  move.order = order;
  move.ended = std::move(ended);
  move.deadline_ns = now_ns + kLeastMoveNs + order.bytes / order.parts * kSlowMoveNsPerByte;
}

// ---- Asking for the places of the stripes -------------------------------------------------------

// The question is repeated until all rows have come. Repeated rows are equal.
void StripeMover::ask(Move& move) {
  if (now_ns_ < move.again_ns) return;
  move.again_ns = now_ns_ + kAskAgainNs;
  if (!peers_.id_of(move.order.source)) peers_.missed();
  StripesRequest message;
  message.request = move.id;
  message.key = move.order.key;
  message.version = move.order.version;
  message.part = move.order.part;
  peers_.notify(move.order.source, message, 0, move.again_ns, now_ns_);
}

bool StripeMover::on_answer(MemberId from, const StripesAnswer& answer) {
  if (answer.request < 1u << 31) return false;
  Move* const move = find(answer.request);
  if (move == nullptr || move->step != Step::kAsking || move->order.source != from) return true;
  if (answer.rows.empty()) {
    fail(*move, MC_NOT_FOUND);
    return true;
  }
  const auto tenant = std::ranges::find_if(
      tenants_, [&](const auto& one) { return one->id() == answer.name_space; });
  if (tenant == tenants_.end()) {
    fail(*move, MC_NO_SUCH_NAMESPACE);
    return true;
  }
  move->tenant = tenant->get();
  if (move->rows.empty()) move->facts = answer.facts;
  const bool sound = std::ranges::all_of(answer.rows, [&](const PlaceRow& row) {
    return row.version == move->order.version && move->tenant->name_of(row.key) == move->order.key;
  });
  if (!sound || !move->facts.same_object(answer.facts)) {
    fail(*move, MC_CORRUPT);
    return true;
  }
  move->region = answer.region;
  for (const PlaceRow& row : answer.rows) move->rows[row.number] = {row, false, 0};
  if (move->rows.size() >= answer.facts.number) move->step = Step::kPulling;
  return true;
}

// ---- Pulling ------------------------------------------------------------------------------------

void StripeMover::pull(Move& move) {
  StripeTable& table = move.tenant->stripes();
  const StripeSet* const begun = table.find(move.set());
  std::size_t open = 0, here = 0;
  for (auto& [number, row] : move.rows) {
    const bool held = begun != nullptr && begun->stripes.contains(number) &&
                      begun->stripes.at(number).entry != kNoEntry;
    here += held ? 1 : 0;
    if (held || open >= kMaxOpen) continue;
    ++open;
    if (row.asked && now_ns_ < row.again_ns) continue;
    return pull_one(move, number, row);
  }
  if (here < move.rows.size()) return;
  MC_FAILPOINT("stripes.pulled");
  move.step = Step::kSealing;
  move.again_ns = 0;
}

void StripeMover::pull_one(Move& move, std::uint16_t number, Row& row) {
  ClusterTenant& tenant = *move.tenant;
  // The reservation for the stripe must not evict another part of the object.
  for (const StripeSet* const set : tenant.stripes().sealed(move.order.key, move.order.version)) {
    for (const auto& [other, stripe] : set->stripes) tenant.store().touch(stripe.entry);
  }
  HoldRequest hold;
  hold.request = move.id;
  hold.name_space = tenant.id();
  hold.region = move.region;
  hold.row = row.lies;
  hold.share_ms = static_cast<std::uint32_t>(kLeastStripeMs + row.lies.length / kSlowBytesPerMs);
  hold.stripe = move.facts;
  hold.stripe->number = number;
  const std::uint64_t keep_ns = move.deadline_ns + kKeepLongerNs - now_ns_;
  hold.stripe->keep_ms = static_cast<std::uint32_t>(keep_ns / kMs);
  row.asked = true;
  row.again_ns = now_ns_ + kPullAgainNs;
  if (!keeper_.expect(tenant, hold, move.order.source, now_ns_, move.order.part)) {
    return fail(move, MC_BUSY);
  }
  hold_stripe_(tenant, hold, move.order.source,
               [this, id = move.id, number, alive = std::weak_ptr(alive_)](mc_status status) {
                 Move* const of = alive.expired() ? nullptr : find(id);
                 if (of == nullptr || of->step != Step::kPulling) return;
                 if (status == MC_BUSY) {
                   of->rows[number].again_ns = now_ns_ + kBusyNs;
                 } else if (status != MC_OK) {
                   on_pulled(*of, status);
                 }
               });
}

// A stripe could not be read. The mover asks again, because the stripe may have moved in the pool.
void StripeMover::on_pulled(Move& move, mc_status status) {
  if (status == MC_NO_SPACE || ++move.tries >= kMaxTries) return fail(move, status);
  move.step = Step::kAsking;
  move.rows.clear();
}

// ---- Sealing ------------------------------------------------------------------------------------

void StripeMover::seal(Move& move) {
  if (now_ns_ < move.again_ns) return;
  move.again_ns = now_ns_ + kMoveSealAgainNs;
  keeper_.seal_moved(*move.tenant, move.set(), move.order.version, move.order.parts,
                     [this, id = move.id, alive = std::weak_ptr(alive_)](mc_status status) {
                       Move* const of = alive.expired() ? nullptr : find(id);
                       if (of == nullptr || of->step != Step::kSealing) return;
                       if (status != MC_OK) return fail(*of, status);
                       for (const auto& [number, row] : of->rows) {
                         counters_.moved_bytes += row.lies.length;
                       }
                       end(*of, MC_OK, counters_.moved);
                     });
}

// An offered part must not be dropped: the master may have accepted it, with a late answer.
bool StripeMover::is_offered(const Move& move) const {
  if (move.step != Step::kSealing) return false;
  const StripeSet* const set = move.tenant->stripes().find(move.set());
  return set != nullptr && set->offered;
}

// ---- Ends ---------------------------------------------------------------------------------------

// The move ends in flush(), because callers of this function still use the move.
void StripeMover::fail(Move& move, mc_status status) {
  move.step = Step::kFailed;
  move.failure = status;
}

void StripeMover::end(Move& move, mc_status status, std::uint64_t& reason) {
  ++reason;
  if (status != MC_OK && move.tenant != nullptr) {
    const StripeSet* const set = move.tenant->stripes().find(move.set());
    if (set != nullptr && !set->sealed) move.tenant->drop_stripes(set->id, false);
  }
  const Ended ended = std::move(move.ended);
  moves_.erase(move.id);
  ended(status);
}

void StripeMover::forget(const ClusterTenant& tenant) {
  for (auto& [id, move] : moves_) {
    if (move.tenant != &tenant) continue;
    move.tenant = nullptr;
    fail(move, MC_NO_SUCH_NAMESPACE);
  }
}

void StripeMover::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<std::uint32_t> ids;
  for (const auto& [id, move] : moves_) ids.push_back(id);
  for (const std::uint32_t id : ids) {
    Move* move = find(id);
    if (now_ns >= move->deadline_ns && !is_offered(*move)) {
      end(*move, MC_TIMEOUT, counters_.late);
      continue;
    }
    if (move->step == Step::kAsking) ask(*move);
    if (move->step == Step::kPulling) pull(*move);
    if (move->step == Step::kSealing) seal(*move);
    move = find(id);
    if (move == nullptr || move->step != Step::kFailed) continue;
    end(*move, move->failure,
        move->failure == MC_NO_SPACE    ? counters_.no_room
        : move->failure == MC_CANCELLED ? counters_.refused
                                        : counters_.failed);
  }
}

std::uint64_t StripeMover::next_ns() const {
  return moves_.empty() ? UINT64_MAX : now_ns_ + kMoverCheckNs;
}

}  // namespace mc::agent
