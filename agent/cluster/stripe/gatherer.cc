// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/stripe/gatherer.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

using transport::Outcome;

namespace {

constexpr std::uint64_t kMostGatherAskNs = 500 * kMs;
constexpr std::uint64_t kGathererCheckNs = kMs;
// A holder that delivers less than 1 MB/s counts as lost.
constexpr std::uint64_t kSlowGatherNsPerByte = 1'000;
constexpr std::uint64_t kLeastReadNs = 50 * kMs;

}  // namespace

Gatherer::Gather* Gatherer::find(std::uint64_t id) {
  const auto at = gathers_.find(id);
  return at == gathers_.end() ? nullptr : &at->second;
}

std::uint64_t Gatherer::gather(ClusterTenant& tenant, Wanted wanted, Done done) {
  const std::uint64_t id = next_id_++;
  Gather& gather = gathers_[id];
  gather.id = id;
  gather.tenant = &tenant;
  gather.wanted = std::move(wanted);
  gather.done = std::move(done);
  gather.to_ask = gather.wanted.holders;
  return id;
}

// ---- Asking for the places of the stripes -------------------------------------------------------

void Gatherer::ask(Gather& gather) {
  if (gather.answers_by_ns == 0) {
    gather.answers_by_ns = std::min(gather.wanted.deadline_ns, now_ns_ + kMostGatherAskNs);
  }
  const auto asked = [&](MemberId node) {
    if (node == self_) {
      take_own(gather);
      return true;
    }
    StripesRequest message;
    message.request = next_ask_;
    message.name_space = gather.tenant->id();
    message.key = gather.wanted.name;
    message.version = gather.wanted.version;
    // The node may have joined a moment ago, or too many messages are in flight.
    if (!peers_.id_of(node)) peers_.missed();
    if (!peers_.notify(node, message, kAskCookie | next_ask_, gather.answers_by_ns, now_ns_)) {
      return false;
    }
    asks_.emplace(next_ask_++, Ask{gather.id, node});
    ++gather.answers_due;
    ++counters_.asked;
    return true;
  };
  std::erase_if(gather.to_ask, asked);
}

void Gatherer::take_own(Gather& gather) {
  const metadata::KeyHash name = gather.wanted.name;
  for (const StripeSet* set : gather.tenant->stripes().sealed(name, gather.wanted.version)) {
    std::vector<PlaceRow> rows;
    for (const auto& [number, stripe] : set->stripes) {
      rows.push_back(gather.tenant->place_of(*set, number));
      // The reservation that follows must not evict these stripes.
      gather.tenant->store().touch(stripe.entry);
    }
    take_rows(gather, self_, 0, set->facts, rows);
  }
}

bool Gatherer::take_rows(Gather& gather, MemberId from, std::uint64_t region,
                         const StripeFacts& facts, const std::vector<PlaceRow>& rows) {
  if (gather.stripes.empty()) gather.facts = facts;
  if (facts.whole_bytes != gather.wanted.bytes || !gather.facts.same_object(facts)) return false;
  for (const PlaceRow& row : rows) {
    if (row.version != gather.wanted.version) return false;
    gather.stripes[row.number].sources.push_back(
        {from, static_cast<transport::RemoteRegionId>(region), row});
  }
  return true;
}

void Gatherer::on_answer(MemberId from, const StripesAnswer& answer) {
  const auto at = asks_.find(answer.request);
  if (at == asks_.end() || at->second.node != from) return;
  Gather* const gather = find(at->second.gather);
  if (gather == nullptr || gather->step == Step::kCancelled) {
    asks_.erase(at);
    return;
  }
  const auto region = peers_.region_of(from, answer.region);
  const bool taken = region && !answer.rows.empty() &&
                     take_rows(*gather, from, *region, answer.facts, answer.rows);
  auto& due = gather->rows_due.try_emplace(from, answer.facts.number).first->second;
  due = static_cast<std::uint16_t>(due - std::min<std::size_t>(due, answer.rows.size()));
  if (!taken || due == 0) {
    asks_.erase(at);
    --gather->answers_due;
  }
  look_at_answers(*gather);
}

void Gatherer::look_at_answers(Gather& gather) {
  if (gather.step != Step::kAsking) return;
  // One holder of each stripe is enough.
  if (gather.stripes.empty() || gather.stripes.size() != gather.facts.count) {
    if (!gather.to_ask.empty() || gather.answers_due > 0) return;
    return end(gather, MC_NOT_FOUND, counters_.lacking);
  }
  gather.step = Step::kRoom;
  seek_room(gather);
}

// ---- Reading ------------------------------------------------------------------------------------

void Gatherer::seek_room(Gather& gather) {
  ObjectStore& store = gather.tenant->store();
  const ObjectStore::Reserve result =
      store.reserve(kClusterSession, gather.facts.whole_bytes, true, gather.entry);
  if (result == ObjectStore::Reserve::kOk) {
    gather.step = Step::kReading;
    for (const auto& [number, stripe] : gather.stripes) gather.to_read.push_back(number);
    MC_FAILPOINT("gather.before_read");
    return read(gather);
  }
  gather.entry = kNoEntry;
  const bool wait = result == ObjectStore::Reserve::kAgain ||
                    (result == ObjectStore::Reserve::kWait && store.room_may_come());
  if (!wait) end(gather, MC_NO_SPACE, counters_.no_room);
}

bool Gatherer::more_may_answer(const Gather& gather) const {
  return gather.answers_due > 0 && now_ns_ < gather.answers_by_ns;
}

// Chooses this host, or else the reachable holder with the fewest chosen stripes. False: the stripe
// has no holder left.
bool Gatherer::choose(Gather& gather, Stripe& stripe) {
  std::erase_if(stripe.sources, [&](const Source& source) {
    return source.node != self_ && !peers_.id_of(source.node);
  });
  if (stripe.sources.empty()) return false;
  const auto load = [&](const Source& source) {
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

bool Gatherer::copy_own(Gather& gather, std::uint16_t number) {
  // The reservation may have evicted the stripe.
  const StripeSet* const set = gather.tenant->stripes().set_of({gather.facts.put, number});
  if (set == nullptr || !set->sealed || set->version != gather.wanted.version) return false;
  if (set->stripes.at(number).entry == kNoEntry) return false;
  ObjectStore& store = gather.tenant->store();
  std::uint64_t offset = number * gather.facts.stripe_bytes;
  const PlaceRow lies = gather.tenant->place_of(*set, number);
  for (const shm::ExtentRecord& extent : lies.extents) {
    store.write(gather.entry, offset,
                {store.pool().data() + extent.offset_bytes, extent.length_bytes});
    offset += extent.length_bytes;
  }
  return offset - number * gather.facts.stripe_bytes == gather.facts.bytes_of(number);
}

// Submits as many reads as the transport takes. The rest follows when some of these have ended.
void Gatherer::read(Gather& gather) {
  while (!gather.to_read.empty() && !gather.lost) {
    const std::uint16_t number = gather.to_read.back();
    Stripe& stripe = gather.stripes.at(number);
    if (!stripe.chosen && !choose(gather, stripe)) {
      if (more_may_answer(gather)) return;
      lose(gather);
      break;
    }
    if (stripe.sources.front().node == self_) {
      gather.to_read.pop_back();
      if (!copy_own(gather, number)) leave(gather, number, stripe);
      continue;
    }
    const auto peer = peers_.id_of(stripe.sources.front().node);
    if (!peer) {
      fail(gather, number, stripe);
    } else if (submit(gather, number, stripe, *peer)) {
      gather.to_read.pop_back();
    } else {
      return;
    }
  }
  if (gather.reads.empty()) on_read(gather);
}

// False: the transport is full.
bool Gatherer::submit(Gather& gather, std::uint16_t number, Stripe& stripe,
                      transport::PeerId peer) {
  ObjectStore& store = gather.tenant->store();
  const PoolExtents to = store.extents(gather.entry);
  const Source& source = stripe.sources.front();
  const std::uint64_t left_ns =
      gather.wanted.deadline_ns - std::min(gather.wanted.deadline_ns, now_ns_);
  // While another holder is left or may answer, a holder gets half of the time.
  const bool is_last = stripe.sources.size() == 1 && !more_may_answer(gather);
  const std::uint64_t share_ns = is_last ? left_ns : left_ns / 2;
  const std::uint64_t until_ns =
      now_ns_ +
      std::max(kLeastReadNs, std::min(share_ns, gather.facts.whole_bytes * kSlowGatherNsPerByte));
  // One operation per extent of the source, with a piece per extent of the reservation.
  std::vector<transport::Piece> pieces[MC_MAX_EXTENTS];
  std::vector<transport::Operation> operations;
  std::uint64_t offset = number * gather.facts.stripe_bytes;
  for (const shm::ExtentRecord& extent : source.row.extents) {
    std::vector<transport::Piece>& here = pieces[operations.size()];
    each_piece(to, offset, extent.length_bytes, [&](std::uint64_t at, std::uint64_t size) {
      here.push_back({store.pool().data() + at, size, gather.tenant->region});
    });
    offset += extent.length_bytes;
    transport::Operation& operation = operations.emplace_back();
    operation.peer = peer;
    operation.cookie = kReadCookie | gather.id;
    operation.deadline_ns = until_ns;
    operation.region = source.region;
    operation.generation = source.row.generation;
    operation.offset_bytes = extent.offset_bytes;
    operation.pieces = here;
  }
  const std::span<transport::Operation> left =
      std::span(operations).subspan(stripe.operations_begun);
  const std::size_t taken = transport_.submit(left, now_ns_);
  for (std::size_t i = 0; i < taken; ++i) gather.reads.emplace(left[i].id, number);
  stripe.operations_begun += taken;
  stripe.reads_open += static_cast<std::uint32_t>(taken);
  return taken == left.size();
}

void Gatherer::on_event(const transport::Event& event) {
  if ((event.cookie & kAskCookie) != 0) {
    if (event.outcome == Outcome::kDone) return;
    const auto at = asks_.find(static_cast<std::uint32_t>(event.cookie));
    if (at == asks_.end()) return;
    Gather* const gather = find(at->second.gather);
    asks_.erase(at);
    if (gather == nullptr) return;
    --gather->answers_due;
    return look_at_answers(*gather);
  }
  Gather* const gather = find(event.cookie & ~kReadCookie);
  if (gather == nullptr) return;
  const auto read = gather->reads.find(event.id);
  if (read == gather->reads.end()) return;
  const std::uint16_t number = read->second;
  gather->reads.erase(read);
  Stripe& stripe = gather->stripes.at(number);
  --stripe.reads_open;
  const bool over = gather->lost || gather->step == Step::kCancelled;
  if (over) {
    // The result is discarded.
  } else if (event.outcome != Outcome::kDone && !stripe.failed) {
    fail(*gather, number, stripe);
  } else if (stripe.failed && stripe.reads_open == 0) {
    leave(*gather, number, stripe);
  }
  if (gather->reads.empty()) on_read(*gather);
}

// A read of the stripe has failed, so the stripe's other reads are cancelled.
void Gatherer::fail(Gather& gather, std::uint16_t number, Stripe& stripe) {
  std::erase(gather.to_read, number);
  stripe.failed = true;
  for (const auto& [id, of] : gather.reads) {
    if (of == number) transport_.cancel(id);
  }
  if (stripe.reads_open == 0) leave(gather, number, stripe);
}

// Gives up the chosen source. REQUIRES: no read of the stripe is open.
void Gatherer::leave(Gather& gather, std::uint16_t number, Stripe& stripe) {
  stripe.sources.erase(stripe.sources.begin());
  stripe.chosen = stripe.failed = false;
  stripe.operations_begun = 0;
  stripe.left = true;
  gather.to_read.push_back(number);
}

void Gatherer::lose(Gather& gather) {
  gather.lost = true;
  for (const auto& [id, number] : gather.reads) transport_.cancel(id);
}

// Gives up the sources of stripes whose own sum is wrong. False: a corrupt stripe has no other
// source.
bool Gatherer::leave_corrupt(Gather& gather) {
  const StripeFacts& facts = gather.facts;
  std::vector<std::uint16_t> corrupt;
  for (const auto& [number, stripe] : gather.stripes) {
    const std::uint64_t seed = gather.tenant->store().index().hash(stripe_key({facts.put, number}));
    const std::uint64_t sum = sum_of(gather.tenant->store(), gather.entry, seed,
                                     number * facts.stripe_bytes, facts.bytes_of(number));
    if (sum == stripe.sources.front().row.checksum) continue;
    if (stripe.sources.size() == 1 && !more_may_answer(gather)) return false;
    corrupt.push_back(number);
  }
  for (const std::uint16_t number : corrupt) leave(gather, number, gather.stripes.at(number));
  return !corrupt.empty();
}

void Gatherer::on_read(Gather& gather) {
  if (gather.step == Step::kCancelled) {
    gather.tenant->store().abandon(kClusterSession, gather.entry);
    gathers_.erase(gather.id);
    return;
  }
  if (gather.lost) return end(gather, MC_NOT_FOUND, counters_.failed);
  if (!gather.to_read.empty()) return;  // flush() continues
  const StripeFacts& facts = gather.facts;
  // Each sum begins with the key's hash.
  const std::uint64_t sum =
      sum_of(gather.tenant->store(), gather.entry, gather.wanted.name.lo, 0, facts.whole_bytes);
  if (sum != facts.whole_sum) {
    if (!leave_corrupt(gather)) return end(gather, MC_NOT_FOUND, counters_.corrupt);
    ++counters_.corrupt;
    return;
  }
  counters_.gathered_bytes += facts.whole_bytes;
  end(gather, MC_OK, counters_.gathered);
}

// ---- Ends ---------------------------------------------------------------------------------------

void Gatherer::end(Gather& gather, mc_status status, std::uint64_t& reason) {
  ++reason;
  const Done done = std::move(gather.done);
  const StripeFacts facts = gather.facts;
  const std::uint32_t entry = gather.entry;
  if (status != MC_OK && entry != kNoEntry) {
    gather.tenant->store().abandon(kClusterSession, entry);
  }
  gathers_.erase(gather.id);
  done(status, status == MC_OK ? entry : kNoEntry, facts);
}

void Gatherer::cancel(std::uint64_t id) {
  Gather* const gather = find(id);
  if (gather == nullptr || gather->step == Step::kCancelled) return;
  gather->step = Step::kCancelled;
  if (!gather->reads.empty()) {
    for (const auto& [id_of, number] : gather->reads) transport_.cancel(id_of);
    return;
  }
  if (gather->entry != kNoEntry) gather->tenant->store().abandon(kClusterSession, gather->entry);
  gathers_.erase(id);
}

bool Gatherer::reads_into(const ClusterTenant& tenant) const {
  return std::ranges::any_of(gathers_, [&](const auto& each) {
    return each.second.tenant == &tenant && !each.second.reads.empty();
  });
}

void Gatherer::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<std::uint64_t> ids;
  for (const auto& [id, gather] : gathers_) ids.push_back(id);
  for (const std::uint64_t id : ids) {
    Gather* gather = find(id);
    if (gather == nullptr) continue;
    switch (gather->step) {
      case Step::kAsking:
        if (!gather->to_ask.empty()) ask(*gather);
        if (now_ns >= gather->answers_by_ns) {
          end(*gather, MC_NOT_FOUND, counters_.late);
        } else {
          look_at_answers(*gather);
        }
        break;
      case Step::kRoom:
        if (now_ns >= gather->wanted.deadline_ns) {
          end(*gather, MC_NO_SPACE, counters_.no_room);
        } else {
          seek_room(*gather);
        }
        break;
      case Step::kReading:
        if (!gather->to_read.empty()) read(*gather);
        break;
      case Step::kCancelled:
        break;
    }
  }
  std::erase_if(asks_, [&](const auto& ask) { return find(ask.second.gather) == nullptr; });
}

std::uint64_t Gatherer::next_ns() const {
  return gathers_.empty() ? UINT64_MAX : now_ns_ + kGathererCheckNs;
}

}  // namespace mc::agent
