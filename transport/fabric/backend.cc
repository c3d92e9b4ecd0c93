// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/backend.h"

namespace mc::transport::fabric {

std::unique_ptr<one_sided::OneSidedPeer> Backend::make_peer(PeerId id, const PeerSpec& spec) {
  return std::make_unique<FabricPeer>(requester_, id, spec);
}

std::vector<std::byte> Backend::hello(one_sided::OneSidedPeer& peer) {
  of(peer).attend_again_ns = 0;
  return encode(HelloBody{kLinkVersion, 0});
}

std::vector<std::byte> Backend::describe(RegionId region) const {
  return encode(RegionBody{region});
}

std::vector<std::byte> Backend::ping() const { return encode_empty(MessageKind::kPing); }

bool Backend::take(one_sided::OneSidedPeer& peer, const ControlHeader& header,
                   std::span<const std::byte> body, std::uint64_t now_ns) {
  const auto message = decode_body(header, body, false);
  if (!message) return false;
  peer.link.heard(now_ns);
  switch (message->kind) {
    case MessageKind::kDomains:
      lanes_.on_domains(of(peer), message->domains, now_ns);
      return true;
    case MessageKind::kDescription:
      return requester_.remote_regions().on_description(peer.id, message->region.region,
                                                        message->text);
    case MessageKind::kNotified:
      on_notified(of(peer), message->notified);
      return true;
    case MessageKind::kPong:
      peer.link.answered();
      return true;
    default:
      return false;
  }
}

void Backend::on_notified(FabricPeer& peer, const NotifiedBody& notified) {
  if (!peer.notices_sent.contains(notified.number)) return;
  one_sided::OperationBook& operations = requester_.operations();
  OperationState& operation = *operations.find(notified.number);
  const auto outcome = static_cast<Outcome>(notified.outcome);
  if (outcome == Outcome::kDone) operation.done_bytes = operation.size_bytes;
  operations.end(operation, outcome);
}

Outcome Backend::queue(one_sided::OneSidedPeer& peer, OperationState& operation,
                       std::uint64_t now_ns) {
  return queues_.add(of(peer), operation, now_ns);
}

void Backend::pump(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) {
  queues_.pump(of(peer), now_ns);
}

void Backend::on_notice_ended(one_sided::OneSidedPeer& peer, OperationId operation) {
  of(peer).notices_sent.erase(operation);
}

void Backend::look_after_lanes(one_sided::OneSidedPeer& peer, std::uint64_t now_ns,
                               std::uint64_t away_ns) {
  lanes_.look_after(of(peer), now_ns, away_ns);
}

void Backend::close_lanes(one_sided::OneSidedPeer& peer, const std::string& why,
                          std::uint64_t now_ns) {
  lanes_.fail_all(of(peer), why, now_ns);
}

void Backend::abandon_lanes_of(one_sided::OneSidedPeer& asked, OperationId operation,
                               std::uint64_t now_ns) {
  FabricPeer& peer = of(asked);
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    const Lane* lane = peer.places[at].lane.get();
    if (lane != nullptr && lane->carries(operation)) {
      lanes_.fail(peer, at, "an operation on the lane did not end by its deadline", now_ns);
    }
  }
}

void Backend::fall_asleep(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) {
  lanes_.fail_all(of(peer), "nothing to do", now_ns);
}

// The lanes stay: each lane detects a dead peer by itself.
void Backend::on_link_failed(one_sided::OneSidedPeer& peer, std::uint64_t) {
  // The notifications may have arrived.
  for (const OperationId id : std::set(of(peer).notices_sent)) {
    requester_.operations().end(*requester_.operations().find(id), Outcome::kPeerLost);
  }
}

void Backend::on_lost(one_sided::OneSidedPeer& asked, std::uint64_t now_ns) {
  FabricPeer& peer = of(asked);
  lanes_.fail_all(peer, "the peer is lost", now_ns);
  peer.small_waiting.clear();
  peer.bulk_waiting.clear();
  peer.notices_waiting.clear();
  peer.resend.clear();
  peer.held.clear();
}

}  // namespace mc::transport::fabric
