// SPDX-License-Identifier: Apache-2.0
#include "transport/one_sided/requester.h"

#include <algorithm>

namespace mc::transport::one_sided {

namespace {
constexpr std::uint64_t kLookNs = 50'000'000;  // between two looks at the peers
}  // namespace

OneSidedPeer::OneSidedPeer(Requester& requester, PeerId number, const PeerSpec& wanted)
    : owner(requester),
      id(number),
      spec(wanted),
      link(requester.traits().control, requester.edges(), *this) {}

void OneSidedPeer::on_edge(std::uint64_t now_ns) { owner.work_link(*this, now_ns); }

Requester::Requester(const Traits& traits, Edges& edges, Dialer& dialer, Counters& counters,
                     Backend& backend)
    : traits_(traits), edges_(edges), dialer_(dialer), counters_(counters), backend_(backend) {}

// ---- Peers ------------------------------------------------------------------------------------

Result<PeerId> Requester::connect(const PeerSpec& spec) {
  if (spec.node == 0) return fail(MC_INVALID_ARGUMENT, "a peer needs a node id");
  const OneSidedPeer* peer = peers_.add([&](PeerId id) { return backend_.make_peer(id, spec); });
  if (peer == nullptr) return fail(MC_BUSY, "4096 peers are connected already; close some");
  look_soon();
  return peer->id;
}

Status Requester::attach(Link link, std::uint64_t now_ns) {
  OneSidedPeer* peer = peers_.find(link.peer);
  if (peer == nullptr || link.lane != 0 || link.node != peer->spec.node) {
    return {MC_INVALID_ARGUMENT, "this transport did not dial this link"};
  }
  if (Status status = peer->link.attach(std::move(link.socket), now_ns); !status.ok())
    return status;
  static_cast<void>(peer->link->send(backend_.hello(*peer)));
  return {};
}

void Requester::dial_failed(PeerId id, std::uint64_t now_ns) {
  OneSidedPeer* peer = peers_.find(id);
  if (peer != nullptr) peer->link.dial_failed(now_ns);
}

void Requester::close_peer(PeerId id) {
  OneSidedPeer* peer = peers_.find(id);
  if (peer == nullptr) return;
  // First the lanes, so that nothing lands in pieces after the events.
  if (peer->link) fail_link(*peer, last_look_ns_);
  backend_.close_lanes(*peer, "closed", last_look_ns_);
  operations_.end_all_of(id, Outcome::kCancelled);
  remote_regions_.forget(id);
  peers_.remove(id);
}

void Requester::work_link(OneSidedPeer& peer, std::uint64_t now_ns) {
  const bool good = peer.link->work([&](const ControlHeader& header, auto body) {
    return backend_.take(peer, header, body, now_ns);
  });
  if (!good) return fail_link(peer, now_ns);
  pump_later(peer);
}

void Requester::fail_link(OneSidedPeer& peer, std::uint64_t now_ns) {
  peer.link.fail(now_ns);
  backend_.on_link_failed(peer, now_ns);
  look_soon();
}

void Requester::wake(OneSidedPeer& peer, std::uint64_t now_ns) {
  peer.used_ns = now_ns;
  if (!peer.dormant) return;
  peer.dormant = false;
  peer.usable_ns = now_ns + kFirstWayNs;
  look_soon();
}

void Requester::look_after(OneSidedPeer& peer, std::uint64_t now_ns, std::uint64_t away_ns) {
  switch (peer.link.due(now_ns, away_ns > 0)) {
    case AskingLink::Due::kDial:
      dialer_.dial({peer.id, peer.spec.node, 0, LaneRole::kSmall, traits_.link});
      break;
    case AskingLink::Due::kPing:
      static_cast<void>(peer.link->send(backend_.ping()));
      break;
    case AskingLink::Due::kFail:
      fail_link(peer, now_ns);
      break;
    case AskingLink::Due::kNothing:
      break;
  }
  backend_.look_after_lanes(peer, now_ns, away_ns);
  if (peer.open_operations > 0) peer.used_ns = now_ns;
  if (!peer.dormant && peer.is_up() && now_ns >= peer.used_ns + traits_.idle_close_ns) {
    backend_.fall_asleep(peer, now_ns);
    peer.dormant = true;
  }
  const bool is_usable = peer.link.introduced() && (peer.is_up() || peer.dormant);
  const bool is_new = peer.usable_ns == 0;
  peer.usable_ns += away_ns;
  if (is_usable || is_new) {
    peer.usable_ns = now_ns;
  } else if (!peer.lost && now_ns >= peer.usable_ns + kPeerLostNs) {
    lose(peer, now_ns);
  }
  if (is_usable) welcome_back(peer);
}

void Requester::lose(OneSidedPeer& peer, std::uint64_t now_ns) {
  peer.lost = true;
  operations_.tell(Event::Kind::kPeerLost, peer.id);
  backend_.on_lost(peer, now_ns);
  operations_.end_all_of(peer.id, Outcome::kPeerLost);
  // Only an open lane can tell that the peer is back.
  peer.dormant = false;
}

void Requester::welcome_back(OneSidedPeer& peer) {
  if (!peer.lost) return;
  peer.lost = false;
  operations_.tell(Event::Kind::kPeerBack, peer.id);
}

// ---- Regions of peers -------------------------------------------------------------------------

Result<RemoteRegionId> Requester::import_region(PeerId peer, std::span<const std::byte> text) {
  if (peers_.find(peer) == nullptr) return fail(MC_INVALID_ARGUMENT, "no such peer is connected");
  return remote_regions_.import(peer, text);
}

Result<RemoteRegionId> Requester::import_named(PeerId peer, std::uint64_t name) {
  if (peers_.find(peer) == nullptr) return fail(MC_INVALID_ARGUMENT, "no such peer is connected");
  return remote_regions_.import_named(peer, name);
}

void Requester::doubt(RemoteRegionId id) {
  if (RemoteRegion* region = remote_regions_.find(id)) RemoteRegions::doubt(*region);
}

bool Requester::is_guarded(RemoteRegionId id) const {
  const RemoteRegion* const region = remote_regions_.find(id);
  return region == nullptr || !region->known || region->described.guarded;
}

bool Requester::is_reachable(RemoteRegionId id, std::uint64_t offset_bytes,
                             std::uint64_t size_bytes, std::uint64_t now_ns) {
  RemoteRegion* region = remote_regions_.find(id);
  OneSidedPeer* peer = region == nullptr ? nullptr : peers_.find(region->peer);
  if (peer == nullptr || !peer->link.introduced()) return false;
  wake(*peer, now_ns);
  const auto state = RemoteRegions::check_range(
      *region, peer->epochs, peer->version, peer->remote_slots(), offset_bytes, size_bytes, now_ns);
  if (state == RemoteRegions::State::kMustAsk) {
    static_cast<void>(peer->link->send(backend_.describe(region->asked_as)));
  }
  return state == RemoteRegions::State::kReady && peer->is_up();
}

bool Requester::is_ready(OneSidedPeer& peer, OperationState& operation) {
  RemoteRegion* region = remote_regions_.find(operation.region);
  const auto state = region == nullptr ? RemoteRegions::State::kGone
                                       : RemoteRegions::check(*region, peer.epochs, peer.version);
  if (state == RemoteRegions::State::kMustAsk && peer.link.introduced()) {
    static_cast<void>(peer.link->send(backend_.describe(region->asked_as)));
  }
  if (state == RemoteRegions::State::kGone) operations_.give_up(operation, Outcome::kStale);
  return state == RemoteRegions::State::kReady;
}

// ---- Operations -------------------------------------------------------------------------------

Outcome Requester::check(const Operation& operation, std::uint64_t now_ns, std::uint64_t* size) {
  const auto bytes = size_of(operation.pieces);
  if (!bytes) return Outcome::kInvalid;
  *size = *bytes;
  const OneSidedPeer* peer = peers_.find(operation.peer);
  if (peer == nullptr) return Outcome::kInvalid;
  if (operation.verb == Verb::kNotify) {
    if (*bytes > kMaxOneSidedNotificationBytes) return Outcome::kInvalid;
  } else if (const Outcome outcome = remote_regions_.admit(operation, *bytes);
             outcome != Outcome::kDone) {
    return outcome;
  }
  if (operation.deadline_ns <= now_ns) return Outcome::kTimedOut;
  return peer->lost ? Outcome::kPeerLost : Outcome::kDone;
}

std::size_t Requester::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  std::size_t taken = 0;
  for (Operation& operation : operations) {
    OperationState* state = operations_.open();
    if (state == nullptr) break;
    ++taken;
    std::uint64_t size = 0;
    Outcome outcome = check(operation, now_ns, &size);
    Operations::start(operation, *state, size);
    OneSidedPeer* peer = peers_.find(operation.peer);
    if (peer != nullptr) ++peer->open_operations;
    if (outcome == Outcome::kDone) outcome = backend_.queue(*peer, *state, now_ns);
    if (outcome != Outcome::kDone) {
      operations_.end(*state, outcome);
      continue;
    }
    operations_.await(operation.deadline_ns);
    pump_later(*peer);
  }
  pump_all(now_ns);
  return taken;
}

void Requester::cancel(OperationId id) {
  if (OperationState* operation = operations_.find(id)) {
    operations_.give_up(*operation, Outcome::kCancelled);
  }
}

void Requester::pump_all(std::uint64_t now_ns) {
  due_.take([this](PeerId id) { return peers_.find(id); },
            [&](OneSidedPeer& peer) { backend_.pump(peer, now_ns); });
}

// ---- Time -------------------------------------------------------------------------------------

void Requester::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (now_ns >= operations_.next_deadline_ns()) operations_.expire(now_ns);
  if (now_ns < next_look_ns_) return;
  // After a sleep of this side, messages of peers may lie unread: silence in that time does not
  // count against a peer.
  const bool was_away = last_look_ns_ != 0 && now_ns > last_look_ns_ + kHeartbeatNs;
  const std::uint64_t away_ns = was_away ? now_ns - last_look_ns_ - kLookNs : 0;
  last_look_ns_ = now_ns;
  next_look_ns_ = now_ns + kLookNs;
  peers_.each([&](OneSidedPeer& peer) { look_after(peer, now_ns, away_ns); });
}

std::uint64_t Requester::next_tick_ns() const {
  const std::uint64_t deadline_ns = operations_.next_deadline_ns();
  return peers_.empty() ? deadline_ns : std::min(deadline_ns, next_look_ns_);
}

}  // namespace mc::transport::one_sided
