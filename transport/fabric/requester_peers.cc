// SPDX-License-Identifier: Apache-2.0
//
// The part of Requester that looks after peers: their link, their domains, signs of life.
#include <algorithm>
#include <utility>

#include "transport/fabric/requester.h"

namespace mc::transport::fabric {

namespace {
constexpr std::uint64_t kLookNs = 50'000'000;  // between two looks at the peers
constexpr std::uint64_t kFullNs = 20'000;      // given to a provider that has no room
}  // namespace

Result<PeerId> Requester::connect(const PeerSpec& spec) {
  if (spec.node == 0) return fail(MC_INVALID_ARGUMENT, "a peer needs a node id");
  if (peers_.size() >= kMaxPeers) {
    return fail(MC_BUSY, "4096 peers are connected already; close some");
  }
  const PeerId id = next_peer_++;
  peers_.emplace(id, std::make_unique<Peer>(*this, id, spec));
  next_look_ns_ = 0;
  return id;
}

Status Requester::attach(Link link, std::uint64_t now_ns) {
  Peer* peer = find(link.peer);
  if (peer == nullptr || link.lane != 0 || link.node != peer->spec.node) {
    return {MC_INVALID_ARGUMENT, "nobody asked for this link"};
  }
  if (Status status = peer->link.attach(std::move(link.socket), now_ns); !status.ok())
    return status;
  peer->attend_again_ns = 0;
  static_cast<void>(peer->link->send(encode(HelloBody{kLinkVersion, 0})));
  return {};
}

void Requester::dial_failed(PeerId id, std::uint64_t now_ns) {
  Peer* peer = find(id);
  if (peer != nullptr) peer->link.dial_failed(now_ns);
}

Result<RemoteRegionId> Requester::import_region(PeerId peer, std::span<const std::byte> text) {
  if (find(peer) == nullptr) return fail(MC_INVALID_ARGUMENT, "no such peer is connected");
  return remote_regions_.import(peer, text);
}

Result<RemoteRegionId> Requester::import_named(PeerId peer, std::uint64_t name) {
  if (find(peer) == nullptr) return fail(MC_INVALID_ARGUMENT, "no such peer is connected");
  return remote_regions_.import_named(peer, name);
}

void Requester::doubt(RemoteRegionId id) {
  if (RemoteRegion* region = remote_regions_.find(id)) RemoteRegions::doubt(*region);
}

bool Requester::ready_to_read(RemoteRegionId id, std::uint64_t offset_bytes,
                              std::uint64_t size_bytes, std::uint64_t now_ns) {
  RemoteRegion* region = remote_regions_.find(id);
  Peer* peer = region == nullptr ? nullptr : find(region->peer);
  if (peer == nullptr || !peer->link.introduced()) return false;
  wake(*peer, now_ns);
  std::uint64_t slots = 0;
  for (const Place& place : peer->places) slots |= std::uint64_t{1} << place.theirs;
  const auto state = RemoteRegions::check_range(*region, peer->epochs, peer->version, slots,
                                                offset_bytes, size_bytes, now_ns);
  if (state == RemoteRegions::State::kMustAsk) {
    static_cast<void>(peer->link->send(encode(RegionBody{region->asked_as})));
  }
  return state == RemoteRegions::State::kReady && is_up(*peer);
}

void Requester::tell(Event::Kind kind, PeerId peer) {
  Event event;
  event.kind = kind;
  event.peer = peer;
  events_.push_back(event);
}

void Requester::work_link(Peer& peer, std::uint64_t now_ns) {
  const bool good = peer.link->work([&](const ControlHeader& header, auto body) {
    const auto message = decode_body(header, body, false);
    return message && take(peer, *message, now_ns);
  });
  if (!good) return fail_link(peer, now_ns);
  if (!peer.notices_waiting.empty()) pump_later(peer);
}

bool Requester::take(Peer& peer, const Message& message, std::uint64_t now_ns) {
  peer.link.heard(now_ns);
  switch (message.kind) {
    case MessageKind::kDomains:
      on_domains(peer, message.domains, now_ns);
      return true;
    case MessageKind::kDescription:
      pump_later(peer);
      return remote_regions_.on_description(peer.id, message.region.region, message.text);
    case MessageKind::kNotified:
      on_notified(peer, message.notified);
      return true;
    case MessageKind::kPong:
      peer.link.answered();
      return true;
    default:
      return false;
  }
}

void Requester::on_domains(Peer& peer, const std::vector<DomainEntry>& domains,
                           std::uint64_t now_ns) {
  peer.remote.clear();
  peer.epochs = {};
  for (const DomainEntry& domain : domains) {
    peer.epochs[domain.slot] = domain.epoch;
    peer.remote[static_cast<std::uint8_t>(domain.slot)] = domain;
  }
  ++peer.version;
  peer.link.introduce();
  find_places(peer, now_ns);
  release_held(peer);
  pump_later(peer);
  next_look_ns_ = 0;
}

void Requester::on_notified(Peer& peer, const NotifiedBody& notified) {
  if (!peer.notices_sent.contains(notified.number)) return;
  OperationState& operation = *operations_.find(notified.number);
  const auto outcome = static_cast<Outcome>(notified.outcome);
  if (outcome == Outcome::kDone) operation.done_bytes = operation.size_bytes;
  end(operation, outcome);
  pump_later(peer);
}

// Lanes go on: they find out by themselves whether the peer is still there.
void Requester::fail_link(Peer& peer, std::uint64_t now_ns) {
  peer.link.fail(now_ns);
  // They may have arrived.
  for (const OperationId id : std::set(peer.notices_sent)) {
    end(*operations_.find(id), Outcome::kPeerLost);
  }
  next_look_ns_ = 0;
}

void Requester::close_peer(PeerId id) {
  Peer* peer = find(id);
  if (peer == nullptr) return;
  // First the lanes, so that nothing lands in pieces after the events.
  if (peer->link) fail_link(*peer, last_look_ns_);
  fail_lanes(*peer, "closed", last_look_ns_);
  for (OperationState& operation : operations_.slots()) {
    if (operation.id != kNoOperation && operation.peer == id) end(operation, Outcome::kCancelled);
  }
  remote_regions_.forget(id);
  peers_.erase(id);
}

void Requester::lose(Peer& peer, std::uint64_t now_ns) {
  peer.lost = true;
  tell(Event::Kind::kPeerLost, peer.id);
  fail_lanes(peer, "the peer is lost", now_ns);
  for (OperationState& operation : operations_.slots()) {
    if (operation.id != kNoOperation && operation.peer == peer.id) {
      // No lane is open: nothing of it is out.
      end(operation, operation.failure == Outcome::kDone ? Outcome::kPeerLost : operation.failure);
    }
  }
  peer.small_waiting.clear();
  peer.bulk_waiting.clear();
  peer.notices_waiting.clear();
  peer.resend.clear();
  peer.held.clear();
  // Lanes are what tells that it is back.
  peer.dormant = false;
}

// The provider has worked since it had no room.
void Requester::try_again(std::uint64_t now_ns) {
  full_ = false;
  for (auto& [id, peer] : peers_) {
    for (std::size_t at = 0; at < peer->places.size(); ++at) {
      Place& place = peer->places[at];
      if (!std::exchange(place.full, false)) continue;
      pump_later(*peer);
      if (place.state == LaneState::kLooking) look(*peer, at, now_ns);
    }
  }
}

void Requester::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (full_) try_again(now_ns);
  if (now_ns >= next_deadline_ns_) expire(now_ns);
  if (now_ns < next_look_ns_) return;
  // Whoever slept himself cannot blame his peers for that time: what they sent may not have been
  // read yet.
  const bool was_away = last_look_ns_ != 0 && now_ns > last_look_ns_ + kHeartbeatNs;
  const std::uint64_t away_ns = was_away ? now_ns - last_look_ns_ - kLookNs : 0;
  last_look_ns_ = now_ns;
  next_look_ns_ = now_ns + kLookNs;
  for (const auto& [id, peer] : peers_) look_after(*peer, now_ns, away_ns);
}

std::uint64_t Requester::next_tick_ns() const {
  if (full_) return now_ns_ + kFullNs;
  return peers_.empty() ? next_deadline_ns_ : std::min(next_deadline_ns_, next_look_ns_);
}

void Requester::look_after(Peer& peer, std::uint64_t now_ns, std::uint64_t away_ns) {
  switch (peer.link.due(now_ns, away_ns > 0)) {
    case AskingLink::Due::kDial:
      dialer_.dial({peer.id, peer.spec.node, 0, LaneRole::kSmall, LinkProtocol::kFabric});
      break;
    case AskingLink::Due::kPing:
      static_cast<void>(peer.link->send(encode_empty(MessageKind::kPing)));
      break;
    case AskingLink::Due::kFail:
      fail_link(peer, now_ns);
      break;
    case AskingLink::Due::kNothing:
      break;
  }
  look_after_lanes(peer, now_ns, away_ns);
  if (peer.open_operations > 0) peer.used_ns = now_ns;
  if (!peer.dormant && is_up(peer) && now_ns >= peer.used_ns + options_.idle_close_ns) {
    fail_lanes(peer, "nothing to do", now_ns);
    peer.dormant = true;
  }
  const bool is_usable = peer.link.introduced() && (is_up(peer) || peer.dormant);
  const bool is_new = peer.usable_ns == 0;
  peer.usable_ns += away_ns;
  if (is_usable || is_new) {
    peer.usable_ns = now_ns;
  } else if (!peer.lost && now_ns >= peer.usable_ns + kPeerLostNs) {
    lose(peer, now_ns);
  }
  if (peer.lost && is_usable) {
    peer.lost = false;
    tell(Event::Kind::kPeerBack, peer.id);
  }
}

}  // namespace mc::transport::fabric
