// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/place/striper.h"

#include <algorithm>
#include <set>
#include <utility>

#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint64_t kMostStripeMasterNs = 2'000 * kMs;
constexpr std::uint64_t kSealAgainNs = 100 * kMs;
constexpr std::uint64_t kPatienceNs = 800 * kMs;  // for an unreachable host
// How long Seals are repeated after the put's deadline. Holders keep stripes longer.
constexpr std::uint64_t kSealNs = 3'000 * kMs;
constexpr std::uint64_t kStriperCheckNs = 2 * kMs;
constexpr std::uint64_t kSumStepBytes = 4ull << 20;  // in a turn of the loop
// The count of stripes if no size is configured, so that no host gets a large load.
constexpr std::uint64_t kUsualCount = 16;
constexpr std::uint8_t kNodesPerStripe = 4;
constexpr unsigned kMaxStripeVersions = 7;

}  // namespace

OperationId Striper::begin(const std::shared_ptr<RemoteRequest>& remote_request,
                           ClusterTenant& tenant, const metadata::KeyHash& name,
                           transport::RegionId region, bool must) {
  const PutOrder& order = remote_request->source.order;
  if (!wants(order.length) && (!must || order.length <= rules_.unit_bytes)) return {};
  if (operations_.count(OperationKind::kStripe) >= kMaxStripings) return {};
  ++counters_.asked;
  Striping& striping =
      operations_.begin(std::make_unique<Striping>(*this, remote_request), &tenant);
  striping.name = name;
  striping.region = region;
  striping.version = clock_.next(wall_ns());
  StripeFacts& facts = striping.facts;
  facts.put = striping.version;
  facts.whole_bytes = order.length;
  facts.whole_sum = order.checksum;
  const std::uint64_t wanted =
      wants(order.length) ? rules_.above_bytes : (order.length - 1) / kUsualCount + 1;
  facts.stripe_bytes = stripe_bytes_for(order.length, wanted, rules_.unit_bytes);
  facts.count = static_cast<std::uint16_t>((order.length - 1) / facts.stripe_bytes + 1);
  striping.parts.resize(facts.count);
  stripings_.insert(striping.id());
  return striping.id();
}

void Striping::step() { striper.step(*this); }
void Striping::cancel() { striper.fail(*this, striper.counters_.failed); }

void Striper::step(Striping& striping) {
  const RemoteRequest& remote_request = *striping.remote_request;
  const std::uint64_t now_ns = operations_.now_ns();
  const bool late = now_ns >= remote_request.deadline_ns;
  if (striping.at == Step::kSealing) {
    if (late && !remote_request.over()) settle(striping, MC_NO_SPACE);
    if (now_ns >= striping.seal_by_ns) return fail(striping, counters_.failed);
    look_at_hosts(striping);
    if (!striping.over()) tell(striping);
    return;
  }
  if (late || remote_request.abandoned) return fail(striping, counters_.failed);
  operations_.wake_at(striping, remote_request.deadline_ns);
  if (striping.at == Step::kSumming) sum(striping);
  if (striping.at == Step::kChoosing && striping.answered) assign(striping);
  if (striping.at == Step::kHolding && !striping.over()) take_placements(striping);
}

// ---- Cutting ------------------------------------------------------------------------------------

// Sums kSumStepBytes per turn, so that a large put does not block the loop.
void Striper::sum(Striping& striping) {
  const StripeFacts& facts = striping.facts;
  const std::byte* const bytes = memory_.bytes_of(striping.remote_request->source);
  std::uint64_t left = kSumStepBytes;
  while (left > 0 && striping.summed_bytes < facts.whole_bytes) {
    const std::uint64_t number = striping.summed_bytes / facts.stripe_bytes;
    const std::uint64_t end = std::min(facts.whole_bytes, (number + 1) * facts.stripe_bytes);
    const std::uint64_t step = std::min(left, end - striping.summed_bytes);
    std::uint64_t& sum = striping.parts[number].sum;
    if (striping.summed_bytes == number * facts.stripe_bytes) {
      sum = striping.tenant()->store().index().hash(
          stripe_key({facts.put, static_cast<std::uint16_t>(number)}));
    }
    sum = checksum(sum, bytes + striping.summed_bytes, step);
    striping.summed_bytes += step;
    left -= step;
  }
  if (striping.summed_bytes == facts.whole_bytes) return choose(striping);
  operations_.wake_at(striping, operations_.now_ns());  // the next turn
}

void Striper::choose(Striping& striping) {
  striping.at = Step::kChoosing;
  wire::ChooseHolders request;
  request.host = 0;  // the master spreads the stripes; none needs to be near this host
  request.exclude.push_back(self_);
  for (std::uint16_t i = 0; i < striping.facts.count; ++i) {
    const metadata::KeyHash name = striping.tenant()->name_of(stripe_key({striping.facts.put, i}));
    request.items.push_back({name, striping.facts.bytes_of(i), kNodesPerStripe});
  }
  const std::uint64_t until_ns =
      std::min(striping.remote_request->deadline_ns, operations_.now_ns() + kMostStripeMasterNs);
  masters_.of(striping.name)
      .choose_holders(request, until_ns,
                      [this, id = striping.id()](const Result<wire::ChooseHoldersAnswer>& answer) {
                        Striping* const asked = operations_.find<Striping>(id);
                        if (asked == nullptr) return;
                        asked->answered = true;
                        if (answer && answer->nodes.size() == asked->parts.size()) {
                          asked->from_master = answer->nodes;
                        }
                        operations_.wake(*asked);
                      });
}

// Assigns each stripe to that candidate host that has the fewest stripes so far. The count of
// replicas limits the count of parts, and thus of hosts.
void Striper::assign(Striping& striping) {
  const std::vector<std::vector<MemberId>> nodes = std::move(striping.from_master);
  if (nodes.empty()) return fail(striping, counters_.failed);
  const std::size_t most_hosts =
      metadata::most_parts(striping.remote_request->source.order.replicas);
  std::map<MemberId, unsigned> load;
  const auto keep_to_these = [&](std::vector<MemberId>& mine) {
    std::erase_if(mine, [&](MemberId node) { return !load.contains(node); });
    for (const auto& [node, count] : load) {
      if (std::ranges::find(mine, node) == mine.end()) mine.push_back(node);
    }
  };
  for (std::size_t i = 0; i < striping.parts.size(); ++i) {
    std::vector<MemberId> mine = nodes[i];
    if (load.size() >= most_hosts) keep_to_these(mine);
    if (mine.empty()) return fail(striping, counters_.nobody);
    std::ranges::stable_sort(mine, {}, [&](MemberId node) {
      const auto at = load.find(node);
      return at == load.end() ? 0u : at->second;
    });
    ++load[mine.front()];
    striping.parts[i].nodes = std::move(mine);
  }
  // The limit also holds for the hosts that are asked after a refusal.
  if (load.size() >= most_hosts) {
    for (Part& part : striping.parts) keep_to_these(part.nodes);
  }
  striping.at = Step::kHolding;
}

// ---- Holding ------------------------------------------------------------------------------------

void Striper::hold(Striping& striping) {
  std::size_t open = 0, held = 0;
  for (const Part& part : striping.parts) {
    open += part.state == Part::State::kOffered ? 1 : 0;
    held += part.state == Part::State::kHeld ? 1 : 0;
  }
  if (held == striping.parts.size()) return begin_sealing(striping);
  for (std::uint16_t i = 0; i < striping.facts.count && open < kMaxOpen; ++i) {
    Part& part = striping.parts[i];
    if (part.state != Part::State::kWaiting) continue;
    const StripeFacts& facts = striping.facts;
    Placement::Put put;
    put.remote_request = striping.remote_request;
    put.region = striping.region;
    put.version = facts.put;
    put.offset = put.remote_request->source.offset + i * facts.stripe_bytes;
    put.length = facts.bytes_of(i);
    put.sum = part.sum;
    put.stripe = facts;
    put.stripe->number = i;
    part.placement =
        placer_.begin(std::move(put), *striping.tenant(), part.nodes, true, striping.id());
    part.state = Part::State::kOffered;
    ++open;
  }
}

void Striper::take_placements(Striping& striping) {
  for (Part& part : striping.parts) {
    if (part.state != Part::State::kOffered) continue;
    const std::unique_ptr<Placement> placement = operations_.take<Placement>(part.placement);
    if (placement == nullptr) continue;
    if (placement->result != Placement::End::kPlaced) {
      return fail(striping, counters_.nobody);
    }
    part.state = Part::State::kHeld;
    part.node = placement->holder;
    ++counters_.stripes;
  }
  hold(striping);
}

// ---- Sealing ------------------------------------------------------------------------------------

void Striper::begin_sealing(Striping& striping) {
  MC_FAILPOINT("striper.before_seal");
  striping.hosts.clear();
  for (std::size_t i = 0; i < striping.parts.size(); ++i) {
    striping.hosts[striping.parts[i].node].stripes |= std::uint64_t{1} << i;
  }
  if (striping.hosts.size() >
      metadata::most_parts(striping.remote_request->source.order.replicas)) {
    return fail(striping, counters_.nobody);
  }
  std::uint8_t part = 0;
  for (auto& [node, host] : striping.hosts) host.part = part++;
  striping.at = Step::kSealing;
  striping.seal_by_ns = striping.remote_request->deadline_ns + kSealNs;
  ++striping.versions;
  new_seal(striping);
  tell(striping);
}

void Striper::new_seal(Striping& striping) {
  operations_.cancel(striping.seal);
  striping.seal =
      operations_.begin(std::make_unique<Seal>(operations_, striping.id()), nullptr).id();
}

bool Striper::is_gone(Host& host, MemberId node) const {
  const bool lost = peers_.is_lost(node) || peers_.find(node) == nullptr;
  if (!lost) host.lost_since_ns = 0;
  if (lost && host.lost_since_ns == 0) host.lost_since_ns = operations_.now_ns();
  return lost && operations_.now_ns() >= host.lost_since_ns + kPatienceNs;
}

void Striper::tell(Striping& striping) {
  for (auto& [node, host] : striping.hosts) {
    if (host.state == Host::State::kSealed || host.state == Host::State::kBehind) continue;
    if (is_gone(host, node)) return fail(striping, counters_.failed);
    const bool again = host.state == Host::State::kTold && operations_.now_ns() >= host.again_ns;
    if (host.state != Host::State::kToTell && !again) continue;
    if (!peers_.id_of(node)) peers_.missed();
    SealRequest message;
    message.upsert = striping.remote_request->source.order.upsert;
    message.request = striping.seal.value();
    message.name_space = striping.tenant()->id();
    message.put = striping.facts.put;
    message.version = striping.version;
    message.stripes = host.stripes;
    message.parts = static_cast<std::uint8_t>(striping.hosts.size());
    message.part = host.part;
    if (peers_.notify(node, message, Peers::kToldCookie, operations_.now_ns() + kSealAgainNs,
                      operations_.now_ns())) {
      host.state = Host::State::kTold;
      host.again_ns = operations_.now_ns() + kSealAgainNs;
      MC_FAILPOINT("striper.told_one");
    }
  }
  operations_.wake_at(striping, operations_.now_ns() + kStriperCheckNs);
}

void Striper::on_held(MemberId from, const HoldAnswer& answer) {
  const Seal* const seal = operations_.find<Seal>(OperationId::of(answer.request));
  Striping* const striping = seal != nullptr ? operations_.find<Striping>(seal->striping) : nullptr;
  if (striping == nullptr || striping->at != Step::kSealing) return;
  const auto host = striping->hosts.find(from);
  if (host == striping->hosts.end() || host->second.state != Host::State::kTold) return;
  switch (answer.outcome) {
    case HoldOutcome::kBehind:
      clock_.saw(answer.refused_up_to);
      host->second.state = Host::State::kBehind;
      break;
    case HoldOutcome::kHeld:
      host->second.state = Host::State::kSealed;
      break;
    case HoldOutcome::kNoRoom:
    case HoldOutcome::kFailed:
      host->second.state = Host::State::kFailed;
      break;
  }
  operations_.wake(*striping);
}

// The master may have refused some parts before accepting the first part, for example because an absent member
// might have held a later version. The master refuses no part for that reason once the version has a holder.
// False: all refusing hosts have been told again.
bool Striper::tell_again(Striping& striping) {
  bool any = false;
  for (auto& [node, host] : striping.hosts) {
    if (host.state != Host::State::kBehind || std::exchange(host.told_again, true)) continue;
    host.state = Host::State::kToTell;
    any = true;
  }
  if (any) new_seal(striping);
  return any;
}

void Striper::look_at_hosts(Striping& striping) {
  const auto count = [&](Host::State state) {
    return static_cast<std::size_t>(std::ranges::count_if(
        striping.hosts, [state](const auto& host) { return host.second.state == state; }));
  };
  if (count(Host::State::kFailed) > 0) return fail(striping, counters_.failed);
  const std::size_t sealed = count(Host::State::kSealed);
  const std::size_t behind = count(Host::State::kBehind);
  if (sealed + behind < striping.hosts.size()) return;
  if (sealed > 0 && behind > 0) {
    if (tell_again(striping)) return;
    // The put was complete, and was replaced or removed before all hosts had answered.
    settle(striping, MC_OK);
    return give_up(striping);
  }
  if (behind > 0) {
    ++counters_.behind;
    if (striping.versions >= kMaxStripeVersions) return fail(striping, counters_.failed);
    striping.version = clock_.next(wall_ns());
    return begin_sealing(striping);
  }
  const metadata::KeyHash name = striping.name;
  const std::uint64_t version = striping.version;
  const bool upsert = striping.remote_request->source.order.upsert;
  counters_.put_bytes += striping.facts.whole_bytes;
  ++counters_.put;
  settle(striping, MC_OK);
  end(striping);
  fetcher_.put_elsewhere(name, version, upsert);
}

// ---- Ends ---------------------------------------------------------------------------------------

// Tells the holders to drop the stripes. Holders that the message does not reach drop the
// stripes on expiry.
void Striper::give_up(Striping& striping) {
  std::set<MemberId> nodes;
  for (const Part& part : striping.parts) {
    operations_.cancel(part.placement);
    if (part.state == Part::State::kOffered) nodes.insert(part.nodes.begin(), part.nodes.end());
    if (part.state == Part::State::kHeld) nodes.insert(part.node);
  }
  for (const MemberId node : nodes) {
    SealRequest message;
    message.drop = true;
    message.request = striping.id().value();
    message.name_space = striping.tenant()->id();
    message.put = striping.facts.put;
    message.version = striping.version;
    message.stripes = message.parts = 1;  // not used, but checked
    peers_.notify(node, message, Peers::kToldCookie, operations_.now_ns() + kSealNs,
                  operations_.now_ns());
  }
  end(striping);
}

void Striper::end(Striping& striping) {
  operations_.cancel(striping.seal);
  stripings_.erase(striping.id());
  operations_.end(striping);
}

void Striper::forget_session(std::uint64_t session) {
  std::vector<OperationId> over;
  for (const OperationId id : stripings_) {
    const Striping& striping = *operations_.find<Striping>(id);
    if (striping.remote_request->source.session != session) continue;
    if (striping.at != Step::kSealing) over.push_back(id);
  }
  for (const OperationId id : over) operations_.cancel(id);
}

void Striper::settle(Striping& striping, mc_status status) {
  RemoteRequest& remote_request = *striping.remote_request;
  operations_.settle(remote_request, remote_request.items.front(), status);
}

void Striper::fail(Striping& striping, std::uint64_t& reason) {
  ++reason;
  settle(striping, MC_NO_SPACE);
  give_up(striping);
}

}  // namespace mc::agent
