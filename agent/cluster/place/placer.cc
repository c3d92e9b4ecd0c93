// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/place/placer.h"

#include <algorithm>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;
using transport::Outcome;

namespace {

constexpr std::uint64_t kMostPlaceNs = 2'000 * kMs;  // for the master
// The least time that a host gets before the next host is asked.
constexpr std::uint64_t kLeastOfferNs = 100 * kMs;
// Between two tries to send a message, if nothing else turns the loop.
constexpr std::uint64_t kOfferAgainNs = kMs;
constexpr std::uint8_t kMostNodes = 4;  // that the master names for one put
constexpr unsigned kMaxVersions = 7;
// A holder keeps open stripes for this time after the put's deadline, until all are sealed.
constexpr std::uint64_t kKeepLongerMs = 5'000;

}  // namespace

OperationId Placer::begin(Placement::Put put, ClusterTenant& tenant, std::vector<MemberId> nodes,
                          bool chosen, OperationId parent) {
  auto placement = std::make_unique<Placement>(*this, std::move(put));
  placement->nodes = std::move(nodes);
  placement->chosen = chosen;
  const OperationId id = operations_.begin(std::move(placement), &tenant, parent).id();
  placements_.insert(id);
  return id;
}

void Placement::step() { placer.step(*this); }
// A Hold has not reached the host.
void Placement::on_event(const transport::Event& event) {
  if (event.outcome == Outcome::kDone || at != Step::kOffered) return;
  unreached = true;
  placer.operations_.wake(*this);
}
void Placement::cancel() { placer.end(*this, End::kNobody); }

void Placer::step(Placement& placement) {
  const std::uint64_t now_ns = operations_.now_ns();
  if (now_ns >= placement.put.remote_request->deadline_ns) {
    return end(placement, Placement::End::kLate);
  }
  Step before;
  do {
    before = placement.at;
    go_on(placement);
    if (placement.over()) return;
  } while (placement.at != before);
  std::uint64_t next_ns = placement.put.remote_request->deadline_ns;
  if (placement.at == Step::kOffered) next_ns = std::min(next_ns, placement.try_until_ns);
  if (placement.at == Step::kOffering) next_ns = std::min(next_ns, now_ns + kOfferAgainNs);
  operations_.wake_at(placement, next_ns);
}

void Placer::go_on(Placement& placement) {
  switch (placement.at) {
    case Step::kChoosing:
      if (placement.answered) take_nodes(placement);
      return;
    case Step::kOffering:
      if (!placement.nodes.empty()) return offer(placement);
      if (placement.chosen) return end(placement, Placement::End::kNobody);
      return choose(placement);
    case Step::kOffered:
      if (placement.held) return take_answer(placement);
      if (placement.unreached) {
        ++counters_.lost;
        return next_node(placement);
      }
      if (operations_.now_ns() >= placement.try_until_ns) {
        ++counters_.late;
        next_node(placement);
      }
      return;
  }
}

// ---- Choosing hosts -----------------------------------------------------------------------------

void Placer::choose(Placement& placement) {
  placement.at = Step::kChoosing;
  placement.chosen = true;
  placement.answered = false;
  wire::ChooseHolders request;
  request.items.push_back({placement.put.name, placement.put.length, kMostNodes});
  request.host = place_.host;
  request.exclude = placement.asked;
  request.exclude.push_back(self_);
  const std::uint64_t until_ns =
      std::min(placement.put.remote_request->deadline_ns, operations_.now_ns() + kMostPlaceNs);
  masters_.of(placement.put.name)
      .choose_holders(request, until_ns,
                      [this, id = placement.id()](const Result<wire::ChooseHoldersAnswer>& answer) {
                        Placement* const asked = operations_.find<Placement>(id);
                        if (asked == nullptr || asked->over()) return;
                        asked->answered = true;
                        if (answer && answer->nodes.size() == 1)
                          asked->from_master = answer->nodes.front();
                        operations_.wake(*asked);
                      });
}

void Placer::take_nodes(Placement& placement) {
  if (!placement.from_master) return end(placement, Placement::End::kMasterAway);
  placement.nodes = *std::exchange(placement.from_master, std::nullopt);
  placement.at = Step::kOffering;
}

// ---- Offering -----------------------------------------------------------------------------------

void Placer::offer(Placement& placement) {
  const std::uint64_t now_ns = operations_.now_ns();
  const MemberId node = placement.nodes.front();
  const Placement::Put& put = placement.put;
  const RemoteRequest& remote_request = *put.remote_request;
  const auto text = transport_.describe(put.region);
  if (!text || !peers_.id_of(node)) {
    peers_.missed();  // the node may have joined a moment ago
    ++counters_.lost;
    return next_node(placement);
  }
  const PutOrder& order = remote_request.source.order;
  const std::uint64_t left_ns = remote_request.deadline_ns - now_ns;
  // While other hosts are left, a host gets half of the time. The last host gets all.
  const std::uint64_t share_ns =
      placement.nodes.size() > 1 ? std::max(left_ns / 2, kLeastOfferNs) : left_ns;
  HoldRequest message;
  message.upsert = order.upsert && !put.stripe;
  message.stripe = put.stripe;
  if (message.stripe) {
    message.stripe->keep_ms = static_cast<std::uint32_t>(left_ns / kMs + kKeepLongerMs);
  }
  message.request = placement.id().value();
  message.name_space = placement.tenant()->id();
  message.region = *text;
  message.share_ms = static_cast<std::uint32_t>(share_ns / kMs);
  message.pin_ttl_s = order.pin_ttl_s;
  PlaceRow& row = message.row;
  row.held = true;
  row.version = put.version;
  row.length = put.length;
  row.generation = placement.id().value();
  row.checksum = put.sum;
  row.parent_hash = order.parent_hash;
  row.pin = static_cast<std::uint8_t>(order.pin);
  row.replicas = order.replicas;
  row.extents.push_back({put.offset, put.length});
  row.key = remote_request.items.front().key;
  placement.try_until_ns = now_ns + share_ns;
  if (!peers_.notify(node, message, message.request, placement.try_until_ns, now_ns)) {
    return;  // too many messages are in flight; the next step tries again
  }
  placement.held.reset();
  placement.unreached = false;
  placement.at = Step::kOffered;
  ++counters_.offered;
}

void Placer::next_node(Placement& placement) {
  placement.asked.push_back(placement.nodes.front());
  placement.nodes.erase(placement.nodes.begin());
  placement.at = Step::kOffering;
}

void Placer::on_held(MemberId from, const HoldAnswer& answer) {
  Placement* const placement = operations_.find<Placement>(OperationId::of(answer.request));
  if (placement == nullptr || placement->over() || placement->at != Step::kOffered) return;
  if (placement->nodes.front() != from) return;
  placement->held = answer;
  operations_.wake(*placement);
}

void Placer::take_answer(Placement& placement) {
  const HoldAnswer answer = *std::exchange(placement.held, std::nullopt);
  switch (answer.outcome) {
    case HoldOutcome::kHeld:
      placement.holder = placement.nodes.front();
      counters_.placed_bytes += placement.put.length;
      return end(placement, Placement::End::kPlaced);
    case HoldOutcome::kBehind:
      if (placement.versions >= kMaxVersions || placement.put.stripe) {
        return end(placement, Placement::End::kRefused);
      }
      clock_.saw(answer.refused_up_to);
      ++placement.versions;
      placement.put.version = clock_.next(wall_ns());
      placement.at = Step::kOffering;
      return;
    case HoldOutcome::kNoRoom:
      ++counters_.refused;
      break;
    case HoldOutcome::kFailed:
      ++counters_.lost;
      break;
  }
  next_node(placement);
}

void Placer::on_peer_lost(MemberId node) {
  for (const OperationId id : placements_) {
    Placement& placement = *operations_.find<Placement>(id);
    if (placement.at != Step::kOffered || placement.nodes.front() != node) continue;
    placement.unreached = true;
    operations_.wake(placement);
  }
}

void Placer::end(Placement& placement, Placement::End result) {
  placement.result = result;
  placements_.erase(placement.id());
  operations_.end(placement);
}

// ---- Reads by peers -----------------------------------------------------------------------------

Outcome Placer::pin(const transport::Access& access, std::uint64_t* ticket) {
  const Placement* const placement =
      operations_.find<Placement>(OperationId::of(access.generation));
  if (placement == nullptr || placement->over() || access.write) return Outcome::kStale;
  const Placement::Put& put = placement->put;
  if (access.region != put.region || put.remote_request->abandoned ||
      access.offset_bytes < put.offset) {
    return Outcome::kStale;
  }
  const std::uint64_t within = access.offset_bytes - put.offset;
  if (within > put.length || access.size_bytes > put.length - within) return Outcome::kInvalid;
  *ticket = next_ticket_++;
  return Outcome::kDone;
}

}  // namespace mc::agent
