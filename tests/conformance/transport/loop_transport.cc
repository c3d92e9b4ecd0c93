// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/loop_transport.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace mc::transport::testing {

LoopNetwork::LoopNetwork(LoopPath path)
    : path_(path),
      capabilities_{
          .name = "loop",
          .write = true,
          .notify = true,
          .one_sided = true,
          .checks_generation = true,
          .registers_pieces = false,
          .memory_kinds = 1u << static_cast<unsigned>(MemoryKind::kHost),
          .max_operations = kMaxOperations,
          .max_pieces = kMaxPieces,
          .max_notification_bytes = path.max_notification_bytes,
          .max_operation_bytes = kMaxOperationBytes,
      } {}

std::unique_ptr<LoopTransport> LoopNetwork::make(NodeId node, std::uint64_t incarnation) {
  auto transport = std::unique_ptr<LoopTransport>(new LoopTransport(*this, node, incarnation));
  nodes_[node] = transport.get();
  return transport;
}

LoopTransport::LoopTransport(LoopNetwork& network, NodeId node, std::uint64_t incarnation)
    : network_(network), node_(node), regions_(node * 0x9e3779b97f4a7c15u ^ incarnation) {}

LoopTransport::~LoopTransport() {
  const auto at = network_.nodes_.find(node_);
  if (at != network_.nodes_.end() && at->second == this) network_.nodes_.erase(at);
}

const Capabilities& LoopTransport::capabilities() const { return network_.capabilities_; }

Result<RegionId> LoopTransport::register_region(const RegionSpec& spec) {
  if (spec.kind != MemoryKind::kHost) {
    return fail(MC_UNSUPPORTED, "the loop transport copies host memory only");
  }
  return regions_.add(spec);
}

Result<std::vector<std::byte>> LoopTransport::describe(RegionId region) const {
  return regions_.describe(region);
}

Result<RemoteRegionId> LoopTransport::import_region(PeerId, std::span<const std::byte> text) {
  const auto region = RegionTable::decode_descriptor(text);
  if (!region) return fail(MC_INVALID_ARGUMENT, "this does not describe a region of a loop peer");
  return *region;
}

Result<PeerId> LoopTransport::connect(const PeerSpec& spec) {
  if (spec.node == 0 || spec.bulk_lanes == 0 || spec.bulk_lanes >= kMaxLanes) {
    return fail(MC_INVALID_ARGUMENT, "a peer needs a node id and 1 to 16 bulk lanes");
  }
  if (peers_.size() >= kMaxPeers) return fail(MC_BUSY, "4096 peers are connected already");
  const PeerId id = next_peer_++;
  peers_[id].node = spec.node;
  return id;
}

Status LoopTransport::attach(Link) { return {MC_UNSUPPORTED, "the loop transport needs no links"}; }

Outcome LoopTransport::check(const Operation& operation, std::uint64_t now_ns,
                             std::uint64_t* size) const {
  if (operation.pieces.empty() || operation.pieces.size() > kMaxPieces) return Outcome::kInvalid;
  for (const Piece& piece : operation.pieces) {
    if (piece.data == nullptr || piece.size_bytes == 0 ||
        piece.size_bytes > kMaxOperationBytes - *size) {
      return Outcome::kInvalid;
    }
    *size += piece.size_bytes;
  }
  if (operation.verb == Verb::kNotify && *size > capabilities().max_notification_bytes) {
    return Outcome::kInvalid;
  }
  const auto peer = peers_.find(operation.peer);
  if (peer == peers_.end()) return Outcome::kInvalid;
  if (operation.deadline_ns <= now_ns) return Outcome::kTimedOut;
  return peer->second.lost ? Outcome::kPeerLost : Outcome::kDone;
}

std::size_t LoopTransport::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  std::size_t taken = 0;
  for (Operation& operation : operations) {
    if (flights_.size() >= kMaxOperations) break;
    ++taken;
    operation.id = next_operation_++;
    Flight flight;
    flight.outcome = check(operation, now_ns, &flight.size_bytes);
    flight.operation = operation;
    flight.operation.pieces = {};
    flight.due_ns = now_ns;
    if (flight.outcome == Outcome::kDone) {
      flight.pieces.assign(operation.pieces.begin(), operation.pieces.end());
      Peer& peer = peers_[operation.peer];
      const auto carried_ns = static_cast<std::uint64_t>(static_cast<double>(flight.size_bytes) /
                                                         network_.path_.bytes_per_ns);
      peer.free_at_ns = std::max(peer.free_at_ns, now_ns) + carried_ns;
      flight.due_ns = peer.free_at_ns + network_.path_.latency_ns;
    }
    flights_.emplace(operation.id, std::move(flight));
  }
  return taken;
}

void LoopTransport::copy(Flight& flight, std::byte* remote) {
  for (const Piece& piece : flight.pieces) {
    if (flight.operation.verb == Verb::kRead) {
      std::memcpy(piece.data, remote, piece.size_bytes);
    } else {
      std::memcpy(remote, piece.data, piece.size_bytes);
    }
    remote += piece.size_bytes;
  }
}

Outcome LoopTransport::carry_out(Flight& flight) {
  const Operation& operation = flight.operation;
  LoopTransport* other = network_.find(peers_[operation.peer].node);
  if (other == nullptr) return Outcome::kPeerLost;
  if (operation.verb == Verb::kNotify) {
    if (other->arrived_.is_full()) return Outcome::kBusy;
    std::vector<std::byte> payload(flight.size_bytes);
    copy(flight, payload.data());
    other->arrived_.add(node_, std::move(payload));
    return Outcome::kDone;
  }
  const bool write = operation.verb == Verb::kWrite;
  RegionTable::Grant grant;
  const Outcome outcome = other->regions_.admit({node_, operation.region, operation.generation,
                                                 operation.offset_bytes, flight.size_bytes, write},
                                                &grant);
  if (outcome != Outcome::kDone) {
    ++other->counters_.refused_requests;
    return outcome;
  }
  copy(flight, grant.data);
  const Outcome settled = write ? other->regions_.settle(grant) : Outcome::kDone;
  other->regions_.release(grant);
  if (settled != Outcome::kDone) return settled;
  (write ? counters_.written_bytes : counters_.read_bytes) += flight.size_bytes;
  (write ? other->counters_.taken_bytes : other->counters_.served_bytes) += flight.size_bytes;
  return Outcome::kDone;
}

void LoopTransport::finish(Flight& flight, Outcome outcome) {
  Event event;
  event.outcome = outcome;
  event.verb = flight.operation.verb;
  event.id = flight.operation.id;
  event.cookie = flight.operation.cookie;
  event.bytes = outcome == Outcome::kDone ? flight.size_bytes : 0;
  event.peer = flight.operation.peer;
  events_.push_back(event);
}

void LoopTransport::watch_peers() {
  for (auto& [id, peer] : peers_) {
    const bool gone = network_.find(peer.node) == nullptr;
    if (gone == peer.lost) continue;
    peer.lost = gone;
    Event event;
    event.kind = gone ? Event::Kind::kPeerLost : Event::Kind::kPeerBack;
    event.peer = id;
    events_.push_back(event);
    for (auto& [operation, flight] : flights_) {
      if (gone && flight.operation.peer == id && flight.outcome == Outcome::kDone) {
        flight.outcome = Outcome::kPeerLost;
        flight.due_ns = 0;
      }
    }
  }
}

void LoopTransport::poll(std::uint64_t now_ns, std::vector<Event>& events) {
  watch_peers();
  for (auto at = flights_.begin(); at != flights_.end();) {
    Flight& flight = at->second;
    Outcome outcome = flight.outcome;
    if (outcome == Outcome::kDone && flight.operation.deadline_ns < flight.due_ns &&
        flight.operation.deadline_ns <= now_ns) {
      outcome = Outcome::kTimedOut;
    } else if (flight.due_ns > now_ns) {
      ++at;
      continue;
    }
    if (outcome == Outcome::kDone) outcome = carry_out(flight);
    finish(flight, outcome);
    at = flights_.erase(at);
  }
  events.insert(events.end(), events_.begin(), events_.end());
  events_.clear();
  arrived_.take(events);
}

std::uint64_t LoopTransport::next_poll_ns() const {
  if (!events_.empty() || !arrived_.empty()) return 0;
  std::uint64_t next = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [id, flight] : flights_) {
    next = std::min({next, flight.due_ns, flight.operation.deadline_ns});
  }
  return next;
}

void LoopTransport::cancel(OperationId operation) {
  const auto at = flights_.find(operation);
  if (at == flights_.end()) return;
  finish(at->second, Outcome::kCancelled);
  flights_.erase(at);
}

void LoopTransport::close_peer(PeerId peer) {
  if (peers_.erase(peer) == 0) return;
  for (auto at = flights_.begin(); at != flights_.end();) {
    if (at->second.operation.peer != peer) {
      ++at;
      continue;
    }
    finish(at->second, Outcome::kCancelled);
    at = flights_.erase(at);
  }
}

}  // namespace mc::transport::testing
