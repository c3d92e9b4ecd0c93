// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/place/placer.h"

#include <algorithm>
#include <new>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace wire = metadata::wire;
using transport::Outcome;

namespace {

constexpr std::uint64_t kMostMasterNs = 2'000 * kMs;
// The least time that a host gets before the next host is asked.
constexpr std::uint64_t kLeastTryNs = 100 * kMs;
constexpr std::uint64_t kPlacerCheckNs = 5 * kMs;
constexpr std::uint8_t kMostNodes = 4;  // that the master names for one put
constexpr unsigned kMaxVersions = 7;
// A holder keeps open stripes for this time after the put's deadline, until all are sealed.
constexpr std::uint64_t kKeepLongerMs = 5'000;
// How long an agent that ends waits for peers that still read session memory.
constexpr std::uint64_t kLastTransfersNs = 500'000'000;

}  // namespace

Placer::~Placer() {
  for (auto& [session, memory] : memory_) closing_.push_back(std::move(memory));
  // Transfers from the regions end, or the peers' lanes are cut.
  std::vector<transport::Event> unheard;
  const std::uint64_t deadline_ns = mc::now_ns() + kLastTransfersNs;
  for (close_regions(); !closing_.empty() && mc::now_ns() < deadline_ns; close_regions()) {
    transport_.poll(mc::now_ns(), unheard);
  }
  if (closing_.empty()) return;
  // A peer still reads: the memory stays until this process ends.
  static_cast<void>(new (std::nothrow) std::vector<Memory>(std::move(closing_)));
}

void Placer::close_regions() {
  std::erase_if(closing_,
                [&](const Memory& memory) { return transport_.close_region(memory.region); });
}

Placer::Placement* Placer::find(std::uint64_t id) {
  const auto at = placements_.find(id);
  return at == placements_.end() ? nullptr : &at->second;
}

Result<transport::RegionId> Placer::region_of(const RemoteRequest::Source& source) {
  if (const auto known = memory_.find(source.session); known != memory_.end()) {
    return known->second.region;
  }
  // The Placer needs a mapping: the session may end while a peer still reads.
  auto mapping =
      Mapping::map(source.memory->fd(), source.memory->size_bytes(), Mapping::Access::kRead);
  if (!mapping) return fail(mapping.error());
  transport::RegionSpec spec;
  spec.data = mapping->data();
  spec.size_bytes = mapping->size_bytes();
  spec.rights = transport::kRemoteRead;
  spec.guard = this;
  auto region = transport_.register_region(spec);
  if (!region) return region;
  memory_.emplace(source.session, Memory{std::move(*mapping), *region});
  return region;
}

void Placer::end_remote_request(Placement& placement, mc_status status, std::uint64_t& reason) {
  const std::uint64_t id = placement.id;
  if (placement.ended) {
    const MemberId node = placement.nodes.empty() ? metadata::kNoNode : placement.nodes.front();
    told_.push_back({std::move(placement.ended), status, node});
    placements_.erase(id);
    return;
  }
  ++reason;
  placement.remote_request->settle(placement.remote_request->items.front(), status);
  ended_ = true;
  placements_.erase(id);
}

// True: the placement has ended, and the Striper has the remote request.
bool Placer::goes_in_stripes(Placement& placement, bool must) {
  if (placement.stripe || !on_large ||
      !on_large(placement.remote_request, *placement.tenant, placement.region, must)) {
    return false;
  }
  placements_.erase(placement.id);
  return true;
}

void Placer::tell_of_stripes() {
  for (const Told& told : std::exchange(told_, {})) told.ended(told.status, told.node);
}

const std::byte* Placer::bytes_of(const RemoteRequest& remote_request) const {
  return memory_.at(remote_request.source.session).mapping.data() + remote_request.source.offset;
}

std::uint64_t Placer::place_stripe(Stripe stripe) {
  const std::uint64_t id = next_id_++;
  Placement& placement = placements_[id];
  placement.id = id;
  placement.remote_request = std::move(stripe.remote_request);
  placement.tenant = stripe.tenant;
  placement.region = stripe.region;
  placement.version = stripe.facts.put;
  placement.offset =
      placement.remote_request->source.offset + stripe.facts.number * stripe.facts.stripe_bytes;
  placement.length = stripe.facts.bytes_of(stripe.facts.number);
  placement.sum = stripe.sum;
  placement.stripe = stripe.facts;
  placement.ended = std::move(stripe.ended);
  placement.nodes = std::move(stripe.nodes);
  placement.chosen = true;
  placement.step = Step::kOffering;
  return id;
}

// ---- Choosing hosts -----------------------------------------------------------------------------

void Placer::place(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
                   std::uint64_t now_ns) {
  now_ns_ = now_ns;
  ++counters_.asked;
  RemoteRequest::Item& item = remote_request->items.front();
  const metadata::KeyHash name = tenant.name_of(item.key);
  const auto region = masters_.of(name).ready() && placements_.size() < kMaxPlacements
                          ? region_of(remote_request->source)
                          : fail(MC_BUSY, "no master, or too much is being placed");
  if (!region) {
    ++counters_.master_away;
    remote_request->settle(item, MC_NO_SPACE);
    ended_ = true;
    return;
  }
  const std::uint64_t id = next_id_++;
  Placement& placement = placements_[id];
  placement.id = id;
  placement.remote_request = remote_request;
  placement.tenant = &tenant;
  placement.name = name;
  placement.region = *region;
  placement.offset = remote_request->source.offset;
  placement.length = remote_request->source.order.length;
  placement.sum = remote_request->source.order.checksum;
  make_version(placement);
  locate(placement, now_ns);
}

void Placer::make_version(Placement& placement) {
  ++placement.versions;
  placement.version = clock_.next(ClusterTenant::wall_ns());
}

// A create of a key that exists changes nothing. An upsert is first offered to the key's holders.
void Placer::locate(Placement& placement, std::uint64_t now_ns) {
  wire::Locate request;
  request.host = place_.host;
  request.zone = place_.zone;
  request.keys.push_back(placement.name);
  masters_.of(placement.name)
      .locate(request, std::min(placement.remote_request->deadline_ns, now_ns + kMostMasterNs),
              [this, id = placement.id,
               alive = std::weak_ptr(alive_)](const Result<metadata::LocateAnswer>& answer) {
                Placement* const asked = alive.expired() ? nullptr : find(id);
                if (asked == nullptr) return;
                if (!answer || answer->keys.size() != 1) {
                  return end_remote_request(*asked, MC_NO_SPACE, counters_.master_away);
                }
                const metadata::Located& found = answer->keys.front();
                if (found.state == metadata::Lookup::kFound) {
                  const auto holders = answer->holders_of(found);
                  asked->nodes = peers_.reading_order(asked->name, holders);
                  const bool others = !asked->nodes.empty();
                  // Holders of a striped object are no better than other hosts.
                  if (found.attributes.striped) asked->nodes.clear();
                  if ((others || found.attributes.striped) && found.whole() &&
                      !asked->remote_request->source.order.upsert) {
                    return end_remote_request(*asked, MC_OK, counters_.existed);
                  }
                }
                if (goes_in_stripes(*asked, false)) return;
                if (asked->nodes.empty()) return choose(*asked, now_ns_);
                asked->step = Step::kOffering;
              });
}

void Placer::choose(Placement& placement, std::uint64_t now_ns) {
  placement.step = Step::kChoosing;
  placement.chosen = true;
  wire::Place request;
  request.items.push_back(
      {placement.name, placement.remote_request->source.order.length, kMostNodes});
  request.host = place_.host;
  request.exclude = placement.asked;
  request.exclude.push_back(self_);
  masters_.of(placement.name)
      .place(request, std::min(placement.remote_request->deadline_ns, now_ns + kMostMasterNs),
             [this, id = placement.id,
              alive = std::weak_ptr(alive_)](const Result<wire::PlaceAnswer>& answer) {
               Placement* const asked = alive.expired() ? nullptr : find(id);
               if (asked == nullptr) return;
               if (!answer || answer->nodes.size() != 1) {
                 return end_remote_request(*asked, MC_NO_SPACE, counters_.master_away);
               }
               asked->nodes = answer->nodes.front();
               asked->step = Step::kOffering;
               if (!asked->nodes.empty() || goes_in_stripes(*asked, true)) return;
               end_remote_request(*asked, MC_NO_SPACE, counters_.nobody);
             });
}

// ---- Offering -----------------------------------------------------------------------------------

void Placer::offer(Placement& placement, std::uint64_t now_ns) {
  const MemberId node = placement.nodes.front();
  RemoteRequest& remote_request = *placement.remote_request;
  const auto text = transport_.describe(placement.region);
  if (!text || !peers_.id_of(node)) {
    peers_.missed();  // the node may have joined a moment ago
    ++counters_.lost;
    return next_node(placement, now_ns);
  }
  const PutOrder& order = remote_request.source.order;
  const std::uint64_t left_ns =
      remote_request.deadline_ns > now_ns ? remote_request.deadline_ns - now_ns : 0;
  // While other hosts are left, a host gets half of the time. The last host gets all.
  const std::uint64_t share_ns =
      placement.nodes.size() > 1 ? std::max(left_ns / 2, kLeastTryNs) : left_ns;
  HoldRequest message;
  message.upsert = order.upsert && !placement.stripe;
  message.stripe = placement.stripe;
  if (message.stripe) {
    message.stripe->keep_ms = static_cast<std::uint32_t>(left_ns / kMs + kKeepLongerMs);
  }
  message.request = static_cast<std::uint32_t>(placement.id);
  message.name_space = placement.tenant->id();
  message.region = *text;
  message.share_ms = static_cast<std::uint32_t>(share_ns / kMs);
  message.pin_ttl_s = order.pin_ttl_s;
  PlaceRow& row = message.row;
  row.held = true;
  row.version = placement.version;
  row.length = placement.length;
  row.generation = placement.id;
  row.checksum = placement.sum;
  row.parent_hash = order.parent_hash;
  row.pin = static_cast<std::uint8_t>(order.pin);
  row.replicas = order.replicas;
  row.extents.push_back({placement.offset, placement.length});
  row.key = remote_request.items.front().key;
  placement.try_until_ns = now_ns + share_ns;
  if (!peers_.notify(node, message, kHoldCookie | placement.id, placement.try_until_ns, now_ns)) {
    return;  // too many messages are in flight; flush() tries again
  }
  placement.step = Step::kOffered;
  ++counters_.offered;
}

void Placer::next_node(Placement& placement, std::uint64_t now_ns) {
  placement.asked.push_back(placement.nodes.front());
  placement.nodes.erase(placement.nodes.begin());
  placement.step = Step::kOffering;
  if (!placement.nodes.empty()) return;
  if (placement.chosen) {
    if (goes_in_stripes(placement, true)) return;
    return end_remote_request(placement, MC_NO_SPACE, counters_.nobody);
  }
  choose(placement, now_ns);
}

void Placer::on_held(MemberId from, const HoldAnswer& answer) {
  Placement* const placement = find(answer.request);
  if (placement == nullptr || placement->step != Step::kOffered ||
      placement->nodes.front() != from) {
    return;
  }
  switch (answer.outcome) {
    case HoldOutcome::kHeld: {
      counters_.placed_bytes += placement->length;
      const metadata::KeyHash name = placement->name;
      const bool is_stripe = placement->stripe.has_value();
      end_remote_request(*placement, MC_OK, counters_.placed);
      if (!is_stripe && on_placed) on_placed(name);
      return;
    }
    case HoldOutcome::kBehind:
      if (placement->versions >= kMaxVersions || placement->stripe) {
        return end_remote_request(*placement, MC_NO_SPACE, counters_.refused);
      }
      clock_.saw(answer.refused_up_to);
      make_version(*placement);
      placement->step = Step::kOffering;
      return;
    case HoldOutcome::kNoRoom:
      ++counters_.refused;
      break;
    case HoldOutcome::kFailed:
      ++counters_.lost;
      break;
  }
  next_node(*placement, now_ns_);
}

void Placer::on_event(const transport::Event& event) {
  if (event.outcome == Outcome::kDone) return;
  Placement* const placement = find(event.cookie & ~kHoldCookie);
  if (placement == nullptr || placement->step != Step::kOffered) return;
  ++counters_.lost;
  next_node(*placement, now_ns_);
}

void Placer::on_peer_lost(MemberId node) {
  std::vector<std::uint64_t> with;
  for (const auto& [id, placement] : placements_) {
    if (placement.step == Step::kOffered && placement.nodes.front() == node) with.push_back(id);
  }
  for (const std::uint64_t id : with) {
    ++counters_.lost;
    next_node(*find(id), now_ns_);
  }
}

// ---- Ends ---------------------------------------------------------------------------------------

void Placer::forget(const ClusterTenant& tenant) {
  for (auto at = placements_.begin(); at != placements_.end();) {
    Placement& placement = (at++)->second;
    if (placement.tenant == &tenant) end_remote_request(placement, MC_NO_SPACE, counters_.lost);
  }
}

void Placer::forget_session(std::uint64_t session) {
  for (auto at = placements_.begin(); at != placements_.end();) {
    Placement& placement = (at++)->second;
    if (placement.remote_request->source.session == session) {
      end_remote_request(placement, MC_CANCELLED, counters_.lost);
    }
  }
  const auto known = memory_.find(session);
  if (known == memory_.end()) return;
  closing_.push_back(std::move(known->second));
  memory_.erase(known);
}

void Placer::flush(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  close_regions();
  for (auto at = placements_.begin(); at != placements_.end();) {
    const auto here = at++;
    Placement& placement = here->second;
    if (placement.remote_request->abandoned || placement.remote_request->over()) {
      placements_.erase(here);
    } else if (now_ns >= placement.remote_request->deadline_ns) {
      end_remote_request(placement, MC_NO_SPACE, counters_.late);
    } else if (placement.step == Step::kOffering) {
      offer(placement, now_ns);
    } else if (placement.step == Step::kOffered && now_ns >= placement.try_until_ns) {
      ++counters_.late;
      next_node(placement, now_ns);
    }
  }
}

std::uint64_t Placer::next_ns() const {
  if (!told_.empty()) return 0;
  return placements_.empty() && closing_.empty() ? UINT64_MAX : now_ns_ + kPlacerCheckNs;
}

// ---- Reads by peers -----------------------------------------------------------------------------

Outcome Placer::pin(const transport::Access& access, std::uint64_t* ticket) {
  const Placement* const placement = find(access.generation);
  if (placement == nullptr || access.write || access.region != placement->region) {
    return Outcome::kStale;
  }
  if (placement->remote_request->abandoned || access.offset_bytes < placement->offset) {
    return Outcome::kStale;
  }
  const std::uint64_t within = access.offset_bytes - placement->offset;
  if (within > placement->length || access.size_bytes > placement->length - within) {
    return Outcome::kInvalid;
  }
  *ticket = next_ticket_++;
  return Outcome::kDone;
}

}  // namespace mc::agent
