// SPDX-License-Identifier: Apache-2.0
//
// The part of Requester that looks after peers: their link, their devices, signs of life.
#include <algorithm>

#include "libmc/base/hash.h"
#include "transport/rdma/requester.h"

namespace mc::transport::rdma {

namespace {
constexpr std::uint64_t kLookNs = 50'000'000;  // between two looks at the peers
}  // namespace

Result<PeerId> Requester::connect(const PeerSpec& spec) {
  if (spec.node == 0) return fail(MC_INVALID_ARGUMENT, "a peer needs a node id");
  std::uint32_t slot = 0;
  while (slot < peers_.size() && peers_[slot]) ++slot;
  if (slot >= kMaxPeers) return fail(MC_BUSY, "4096 peers are connected already; close some");
  if (slot == peers_.size()) {
    peers_.emplace_back();
    peer_generations_.push_back(0);
  }
  peers_[slot] = std::make_unique<Peer>(*this, spec);
  Peer& peer = *peers_[slot];
  peer.id = (std::uint64_t{++peer_generations_[slot]} << 32) | (slot + 1);
  const std::uint64_t words[2] = {options_.incarnation, peer.id};
  peer.token = hash_key(words, sizeof words, options_.node) | 1;
  next_look_ns_ = 0;
  return peer.id;
}

Status Requester::attach(Link link, std::uint64_t now_ns) {
  Peer* peer = find(link.peer);
  if (peer == nullptr || link.lane != 0 || link.node != peer->spec.node) {
    return {MC_INVALID_ARGUMENT, "nobody asked for this link"};
  }
  if (Status status = peer->link.attach(std::move(link.socket), now_ns); !status.ok())
    return status;
  static_cast<void>(peer->link->send(encode(HelloBody{peer->token, kLinkVersion, 0})));
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
  for (const Path& path : peer->paths) slots |= std::uint64_t{1} << path.theirs;
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
  const PeerId id = peer.id;
  const bool good = peer.link->work([&](const ControlHeader& header, auto body) {
    const auto message = decode_body(header, body, false);
    return message && take(peer, *message, now_ns);
  });
  if (!good && find(id) != nullptr) fail_link(peer, now_ns);
}

bool Requester::take(Peer& peer, const Message& message, std::uint64_t now_ns) {
  peer.link.heard(now_ns);
  switch (message.kind) {
    case MessageKind::kDevices:
      on_devices(peer, message.devices, now_ns);
      return true;
    case MessageKind::kOpened:
      on_opened(peer, message.opened, now_ns);
      return true;
    case MessageKind::kClosed:
      release_held(peer, message.lane.serial);
      return true;
    case MessageKind::kDescription:
      pump_later(peer);
      return remote_regions_.on_description(peer.id, message.region.region, message.text);
    case MessageKind::kPong:
      peer.link.answered();
      return true;
    default:
      return false;
  }
}

void Requester::on_devices(Peer& peer, const std::vector<DeviceEntry>& devices,
                           std::uint64_t now_ns) {
  RemoteRegions::Epochs epochs{};
  for (const DeviceEntry& device : devices) {
    epochs[device.slot] = device.epoch;
    peer.remote[device.slot] = {device.gid, static_cast<LinkLayer>(device.layer), device.mtu,
                                device.lid};
  }
  peer.epochs = epochs;
  ++peer.version;
  find_paths(peer, now_ns);
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    const Place& place = peer.places[at];
    if (place.lane != nullptr && place.remote_epoch != epochs[place.path.theirs]) {
      fail_lane(peer, at, "the peer's device is gone", now_ns);
    }
  }
  if (!peer.link.introduced()) {
    // The peer has cut what came on the links before this one.
    peer.link.introduce();
    release_held(peer, std::nullopt);
  }
  pump_later(peer);
  next_look_ns_ = 0;
}

void Requester::fail_link(Peer& peer, std::uint64_t now_ns) {
  peer.link.fail(now_ns);
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    fail_lane(peer, at, "the link to the peer failed", now_ns);
  }
  next_look_ns_ = 0;
}

void Requester::close_peer(PeerId id) {
  Peer* peer = find(id);
  if (peer == nullptr) return;
  // First the lanes, so that nothing lands in pieces after the events.
  if (peer->link) fail_link(*peer, last_look_ns_);
  for (OperationState& operation : operations_.slots()) {
    if (operation.id != kNoOperation && operation.peer == id) end(operation, Outcome::kCancelled);
  }
  remote_regions_.forget(id);
  peers_[static_cast<std::uint32_t>(id) - 1].reset();
}

void Requester::lose(Peer& peer) {
  peer.lost = true;
  tell(Event::Kind::kPeerLost, peer.id);
  for (OperationState& operation : operations_.slots()) {
    if (operation.id != kNoOperation && operation.peer == peer.id) {
      // No lane is up: nothing of it is out.
      end(operation, operation.failure == Outcome::kDone ? Outcome::kPeerLost : operation.failure);
    }
  }
  peer.small_waiting.clear();
  for (auto& waiting : peer.bulk_waiting) waiting.clear();
  peer.resend.clear();
  peer.held.clear();
  // Lanes are what tells that it is back.
  peer.dormant = false;
}

void Requester::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (now_ns >= next_deadline_ns_) expire(now_ns);
  if (now_ns < next_look_ns_) return;
  // Whoever slept himself cannot blame his peers: what they sent may not have been read yet.
  const bool was_away = last_look_ns_ != 0 && now_ns > last_look_ns_ + kHeartbeatNs;
  last_look_ns_ = now_ns;
  next_look_ns_ = now_ns + kLookNs;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i]) look_after(*peers_[i], now_ns, was_away);
  }
}

std::uint64_t Requester::next_tick_ns() const {
  const bool any = std::ranges::any_of(peers_, [](const auto& peer) { return peer != nullptr; });
  return any ? std::min(next_deadline_ns_, next_look_ns_) : next_deadline_ns_;
}

void Requester::look_after(Peer& peer, std::uint64_t now_ns, bool was_away) {
  switch (peer.link.due(now_ns, was_away)) {
    case AskingLink::Due::kDial:
      dialer_.dial({peer.id, peer.spec.node, 0, LaneRole::kSmall, LinkProtocol::kRdma});
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
  look_after_lanes(peer, now_ns, was_away);
  if (peer.open_operations > 0) peer.used_ns = now_ns;
  if (!peer.dormant && is_up(peer) && now_ns >= peer.used_ns + options_.idle_close_ns) {
    rebuild(peer, peer.paths, now_ns);
    peer.dormant = true;
  }
  if (is_up(peer) || (peer.dormant && peer.link.introduced()) || was_away || peer.usable_ns == 0) {
    peer.usable_ns = now_ns;
  } else if (!peer.lost && now_ns >= peer.usable_ns + kPeerLostNs) {
    lose(peer);
  }
}

}  // namespace mc::transport::rdma
