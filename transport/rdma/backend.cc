// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/backend.h"

#include "libmc/base/hash.h"

namespace mc::transport::rdma {

std::unique_ptr<one_sided::OneSidedPeer> Backend::make_peer(PeerId id, const PeerSpec& spec) {
  return std::make_unique<RdmaPeer>(requester_, id, spec);
}

std::vector<std::byte> Backend::hello(one_sided::OneSidedPeer& peer) {
  const std::uint64_t words[2] = {options_.incarnation, peer.id};
  const std::uint64_t token = hash_key(words, sizeof words, options_.node) | 1;
  return encode(HelloBody{token, kLinkVersion, 0});
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
    case MessageKind::kDevices:
      lanes_.on_devices(of(peer), message->devices, now_ns);
      return true;
    case MessageKind::kOpened:
      lanes_.on_opened(of(peer), message->opened, now_ns);
      return true;
    case MessageKind::kClosed:
      lanes_.release_held(of(peer), message->lane.serial);
      return true;
    case MessageKind::kDescription:
      return requester_.remote_regions().on_description(peer.id, message->region.region,
                                                        message->text);
    case MessageKind::kPong:
      peer.link.answered();
      return true;
    default:
      return false;
  }
}

Outcome Backend::queue(one_sided::OneSidedPeer& peer, OperationState& operation,
                       std::uint64_t now_ns) {
  return queues_.add(of(peer), operation, now_ns);
}

void Backend::pump(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) {
  queues_.pump(of(peer), now_ns);
}

void Backend::look_after_lanes(one_sided::OneSidedPeer& peer, std::uint64_t now_ns,
                               std::uint64_t away_ns) {
  lanes_.look_after(of(peer), now_ns, away_ns > 0);
}

void Backend::close_lanes(one_sided::OneSidedPeer& peer, const std::string& why,
                          std::uint64_t now_ns) {
  lanes_.fail_all(of(peer), why, now_ns);
}

void Backend::abandon_lanes_of(one_sided::OneSidedPeer& asked, OperationId operation,
                               std::uint64_t now_ns) {
  RdmaPeer& peer = of(asked);
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    const Lane* lane = peer.places[at].lane.get();
    if (lane != nullptr && lane->carries(operation)) {
      lanes_.fail(peer, at, "an operation on the lane did not end by its deadline", now_ns);
    }
  }
}

void Backend::fall_asleep(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) {
  lanes_.rebuild(of(peer), of(peer).paths, now_ns);
}

void Backend::on_link_failed(one_sided::OneSidedPeer& peer, std::uint64_t now_ns) {
  lanes_.fail_all(of(peer), "the link to the peer failed", now_ns);
}

// No lane is up: no slice is out.
void Backend::on_lost(one_sided::OneSidedPeer& asked, std::uint64_t) {
  RdmaPeer& peer = of(asked);
  peer.small_waiting.clear();
  for (auto& waiting : peer.bulk_waiting) waiting.clear();
  peer.resend.clear();
  peer.held.clear();
}

}  // namespace mc::transport::rdma
