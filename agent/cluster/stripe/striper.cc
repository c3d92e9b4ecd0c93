// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/stripe/striper.h"

#include <algorithm>
#include <set>

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

Striper::Striping* Striper::find(std::uint32_t id) {
  const auto at = stripings_.find(id);
  return at == stripings_.end() ? nullptr : &at->second;
}

bool Striper::stripe(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
                     transport::RegionId region, bool must) {
  const PutOrder& order = remote_request->source.order;
  if (!wants(order.length) && (!must || order.length <= rules_.unit_bytes)) return false;
  if (stripings_.size() >= kMaxStripings) return false;
  ++counters_.asked;
  const std::uint32_t id = next_id_++;
  if (next_id_ == 0) next_id_ = 1u << 31;
  Striping& striping = stripings_[id];
  striping.id = id;
  striping.remote_request = remote_request;
  striping.tenant = &tenant;
  striping.name = tenant.name_of(remote_request->items.front().key);
  striping.region = region;
  striping.version = clock_.next(ClusterTenant::wall_ns());
  StripeFacts& facts = striping.facts;
  facts.put = striping.version;
  facts.whole_bytes = order.length;
  facts.whole_sum = order.checksum;
  const std::uint64_t wanted =
      wants(order.length) ? rules_.above_bytes : (order.length - 1) / kUsualCount + 1;
  facts.stripe_bytes = stripe_bytes_for(order.length, wanted, rules_.unit_bytes);
  facts.count = static_cast<std::uint16_t>((order.length - 1) / facts.stripe_bytes + 1);
  striping.parts.resize(facts.count);
  return true;
}

// ---- Cutting ------------------------------------------------------------------------------------

// Sums kSumStepBytes per turn, so that a large put does not block the loop.
void Striper::sum(Striping& striping) {
  const StripeFacts& facts = striping.facts;
  const std::byte* const bytes = placer_.bytes_of(*striping.remote_request);
  std::uint64_t left = kSumStepBytes;
  while (left > 0 && striping.summed_bytes < facts.whole_bytes) {
    const std::uint64_t number = striping.summed_bytes / facts.stripe_bytes;
    const std::uint64_t end = std::min(facts.whole_bytes, (number + 1) * facts.stripe_bytes);
    const std::uint64_t step = std::min(left, end - striping.summed_bytes);
    std::uint64_t& sum = striping.parts[number].sum;
    if (striping.summed_bytes == number * facts.stripe_bytes) {
      sum = striping.tenant->store().index().hash(
          stripe_key({facts.put, static_cast<std::uint16_t>(number)}));
    }
    sum = checksum(sum, bytes + striping.summed_bytes, step);
    striping.summed_bytes += step;
    left -= step;
  }
  if (striping.summed_bytes == facts.whole_bytes) choose(striping);
}

void Striper::choose(Striping& striping) {
  striping.step = Step::kChoosing;
  wire::Place request;
  request.host = 0;  // the master spreads the stripes; none needs to be near this host
  request.exclude.push_back(self_);
  for (std::uint16_t i = 0; i < striping.facts.count; ++i) {
    const metadata::KeyHash name = striping.tenant->name_of(stripe_key({striping.facts.put, i}));
    request.items.push_back({name, striping.facts.bytes_of(i), kNodesPerStripe});
  }
  masters_.of(striping.name)
      .place(request, std::min(striping.remote_request->deadline_ns, now_ns_ + kMostStripeMasterNs),
             [this, id = striping.id,
              alive = std::weak_ptr(alive_)](const Result<wire::PlaceAnswer>& answer) {
               Striping* const asked = alive.expired() ? nullptr : find(id);
               if (asked == nullptr) return;
               if (!answer || answer->nodes.size() != asked->parts.size()) {
                 return fail(*asked, MC_NO_SPACE, counters_.failed);
               }
               assign(*asked, answer->nodes);
             });
}

// Assigns each stripe to that candidate host that has the fewest stripes so far. The count of
// replicas limits the count of parts, and thus of hosts.
void Striper::assign(Striping& striping, const std::vector<std::vector<MemberId>>& nodes) {
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
    if (mine.empty()) return fail(striping, MC_NO_SPACE, counters_.nobody);
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
  striping.step = Step::kHolding;
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
    Placer::Stripe stripe;
    stripe.remote_request = striping.remote_request;
    stripe.tenant = striping.tenant;
    stripe.region = striping.region;
    stripe.facts = striping.facts;
    stripe.facts.number = i;
    stripe.sum = part.sum;
    stripe.nodes = part.nodes;
    stripe.ended = [this, id = striping.id, i](mc_status status, MemberId node) {
      on_part(id, i, status, node);
    };
    part.placement = placer_.place_stripe(std::move(stripe));
    part.state = Part::State::kOffered;
    ++open;
  }
}

void Striper::on_part(std::uint32_t id, std::uint16_t number, mc_status status, MemberId node) {
  Striping* const striping = find(id);
  if (striping == nullptr) return;
  Part& part = striping->parts[number];
  part.placement = 0;
  if (status != MC_OK) return fail(*striping, MC_NO_SPACE, counters_.nobody);
  part.state = Part::State::kHeld;
  part.node = node;
  ++counters_.stripes;
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
    return fail(striping, MC_NO_SPACE, counters_.nobody);
  }
  std::uint8_t part = 0;
  for (auto& [node, host] : striping.hosts) host.part = part++;
  striping.step = Step::kSealing;
  striping.seal_by_ns = striping.remote_request->deadline_ns + kSealNs;
  ++striping.versions;
  tell(striping);
}

bool Striper::is_gone(Host& host, MemberId node) const {
  const bool lost = peers_.is_lost(node) || peers_.find(node) == nullptr;
  if (!lost) host.lost_since_ns = 0;
  if (lost && host.lost_since_ns == 0) host.lost_since_ns = now_ns_;
  return lost && now_ns_ >= host.lost_since_ns + kPatienceNs;
}

void Striper::tell(Striping& striping) {
  for (auto& [node, host] : striping.hosts) {
    if (host.state == Host::State::kSealed || host.state == Host::State::kBehind) continue;
    if (is_gone(host, node)) return fail(striping, MC_NO_SPACE, counters_.failed);
    const bool again = host.state == Host::State::kTold && now_ns_ >= host.again_ns;
    if (host.state != Host::State::kToTell && !again) continue;
    if (!peers_.id_of(node)) peers_.missed();
    SealRequest message;
    message.upsert = striping.remote_request->source.order.upsert;
    message.request = striping.id;
    message.name_space = striping.tenant->id();
    message.put = striping.facts.put;
    message.version = striping.version;
    message.stripes = host.stripes;
    message.parts = static_cast<std::uint8_t>(striping.hosts.size());
    message.part = host.part;
    if (peers_.notify(node, message, 0, now_ns_ + kSealAgainNs, now_ns_)) {
      host.state = Host::State::kTold;
      host.again_ns = now_ns_ + kSealAgainNs;
      MC_FAILPOINT("striper.told_one");
    }
  }
}

bool Striper::on_held(MemberId from, const HoldAnswer& answer) {
  if (answer.request < 1u << 31) return false;
  Striping* const striping = find(answer.request);
  if (striping == nullptr || striping->step != Step::kSealing) return true;
  const auto host = striping->hosts.find(from);
  if (host == striping->hosts.end() || host->second.state != Host::State::kTold) return true;
  switch (answer.outcome) {
    case HoldOutcome::kBehind:
      clock_.saw(answer.refused_up_to);
      host->second.state = Host::State::kBehind;
      look_at_hosts(*striping);
      break;
    case HoldOutcome::kHeld:
      host->second.state = Host::State::kSealed;
      look_at_hosts(*striping);
      break;
    case HoldOutcome::kNoRoom:
    case HoldOutcome::kFailed:
      fail(*striping, MC_NO_SPACE, counters_.failed);
      break;
  }
  return true;
}

void Striper::look_at_hosts(Striping& striping) {
  const auto count = [&](Host::State state) {
    return static_cast<std::size_t>(std::ranges::count_if(
        striping.hosts, [state](const auto& host) { return host.second.state == state; }));
  };
  const std::size_t sealed = count(Host::State::kSealed);
  const std::size_t behind = count(Host::State::kBehind);
  if (sealed + behind < striping.hosts.size()) return;
  if (sealed > 0 && behind > 0) {
    // The put was complete, and was replaced or removed before all hosts had answered.
    settle(striping, MC_OK);
    return give_up(striping);
  }
  if (behind > 0) {
    ++counters_.behind;
    if (striping.versions >= kMaxStripeVersions)
      return fail(striping, MC_NO_SPACE, counters_.failed);
    striping.version = clock_.next(ClusterTenant::wall_ns());
    return begin_sealing(striping);
  }
  const metadata::KeyHash name = striping.name;
  counters_.put_bytes += striping.facts.whole_bytes;
  ++counters_.put;
  settle(striping, MC_OK);
  stripings_.erase(striping.id);
  if (on_placed) on_placed(name);
}

// ---- Ends ---------------------------------------------------------------------------------------

// Tells the holders to drop the stripes. Holders that the message does not reach drop the
// stripes on expiry.
void Striper::give_up(Striping& striping) {
  std::set<MemberId> nodes;
  for (const Part& part : striping.parts) {
    if (part.placement != 0) placer_.forget_stripe(part.placement);
    if (part.state == Part::State::kOffered) nodes.insert(part.nodes.begin(), part.nodes.end());
    if (part.state == Part::State::kHeld) nodes.insert(part.node);
  }
  for (const MemberId node : nodes) {
    SealRequest message;
    message.drop = true;
    message.request = striping.id;
    message.name_space = striping.tenant->id();
    message.put = striping.facts.put;
    message.version = striping.version;
    message.stripes = message.parts = 1;  // not used, but checked
    peers_.notify(node, message, 0, now_ns_ + kSealNs, now_ns_);
  }
  stripings_.erase(striping.id);
}

void Striper::settle(Striping& striping, mc_status status) {
  striping.remote_request->settle(striping.remote_request->items.front(), status);
  ended_ = true;
}

void Striper::fail(Striping& striping, mc_status status, std::uint64_t& reason) {
  ++reason;
  settle(striping, status);
  give_up(striping);
}

void Striper::forget(const ClusterTenant& tenant) {
  for (auto at = stripings_.begin(); at != stripings_.end();) {
    Striping& striping = (at++)->second;
    if (striping.tenant == &tenant) fail(striping, MC_NO_SPACE, counters_.failed);
  }
}

void Striper::forget_session(std::uint64_t session) {
  for (auto at = stripings_.begin(); at != stripings_.end();) {
    Striping& striping = (at++)->second;
    if (striping.remote_request->source.session == session) {
      fail(striping, MC_CANCELLED, counters_.failed);
    }
  }
}

void Striper::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  placer_.tell_of_stripes();
  for (auto at = stripings_.begin(); at != stripings_.end();) {
    Striping& striping = (at++)->second;
    const bool late = now_ns >= striping.remote_request->deadline_ns;
    if (striping.step == Step::kSealing) {
      if (late && !striping.remote_request->over()) settle(striping, MC_NO_SPACE);
      if (now_ns >= striping.seal_by_ns) {
        fail(striping, MC_NO_SPACE, counters_.failed);
      } else {
        tell(striping);
      }
    } else if (late || striping.remote_request->abandoned || striping.remote_request->over()) {
      fail(striping, MC_NO_SPACE, counters_.failed);
    } else if (striping.step == Step::kSumming) {
      sum(striping);
    } else if (striping.step == Step::kHolding) {
      hold(striping);
    }
  }
}

std::uint64_t Striper::next_ns() const {
  for (const auto& [id, striping] : stripings_) {
    if (striping.step == Step::kSumming) return 0;
  }
  return stripings_.empty() ? UINT64_MAX : now_ns_ + kStriperCheckNs;
}

}  // namespace mc::agent
