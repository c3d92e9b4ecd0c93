// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/fault_transport.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace mc::transport::testing {

// Vigna's SplitMix64.
std::uint64_t FaultTransport::next() {
  std::uint64_t z = random_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t FaultTransport::some_delay_ns() {
  const std::uint64_t span = plan_.max_delay_ns - std::min(plan_.min_delay_ns, plan_.max_delay_ns);
  return plan_.min_delay_ns + next() % (span + 1);
}

bool FaultTransport::is_parted(NodeId node, std::uint64_t now_ns) const {
  const auto out = out_until_ns_.find(node);
  return parted_.contains(node) || (out != out_until_ns_.end() && now_ns < out->second);
}

Result<PeerId> FaultTransport::connect(const PeerSpec& spec) {
  auto peer = inner_->connect(spec);
  if (peer) nodes_[*peer] = spec.node;
  return peer;
}

void FaultTransport::part(NodeId node) {
  parted_.insert(node);
  for (auto& [id, flight] : flights_) {
    const auto at = nodes_.find(flight.operation.peer);
    if (at != nodes_.end() && at->second == node) cut_off(flight, now_ns_);
  }
}

void FaultTransport::join(NodeId node) {
  parted_.erase(node);
  out_until_ns_.erase(node);
}

// Ends the operation with kPeerLost, after the time that the discovery of a real loss takes.
void FaultTransport::cut_off(Flight& flight, std::uint64_t now_ns) {
  if (flight.never_starts) return;
  ++counts_.cut_off;
  flight.never_starts = true;
  flight.end_ns = std::min(flight.operation.deadline_ns, now_ns + kPeerLostNs);
  flight.end_outcome =
      flight.end_ns == flight.operation.deadline_ns ? Outcome::kTimedOut : Outcome::kPeerLost;
  for (const OperationId inner : std::vector(flight.inner_ids)) inner_->cancel(inner);
}

std::size_t FaultTransport::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  std::size_t taken = 0;
  for (Operation& operation : operations) {
    if (flights_.size() >= capabilities().max_operations / 2) break;
    ++taken;
    operation.id = next_id_++;
    Flight& flight = flights_[operation.id];
    flight.operation = operation;
    flight.pieces.assign(
        operation.pieces.begin(),
        operation.pieces.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                       operation.pieces.size(), capabilities().max_pieces + 1)));
    flight.operation.pieces = flight.pieces;
    plan(flight, now_ns);
  }
  start_due(now_ns);
  return taken;
}

void FaultTransport::plan(Flight& flight, std::uint64_t now_ns) {
  flight.start_ns = now_ns;
  flight.end_ns = flight.operation.deadline_ns;
  const auto node = nodes_.find(flight.operation.peer);
  if (node != nodes_.end() && chance() < plan_.break_link) {
    ++counts_.broken_links;
    out_until_ns_[node->second] = now_ns + plan_.outage_ns;
  }
  if (node != nodes_.end() && is_parted(node->second, now_ns)) {
    cut_off(flight, now_ns);
    return;
  }
  if (chance() < plan_.lose) {
    ++counts_.lost;
    flight.never_starts = true;
    return;
  }
  if (chance() < plan_.delay) {
    ++counts_.delayed;
    flight.start_ns += some_delay_ns();
  }
  if (flight.operation.verb != Verb::kNotify && chance() < plan_.duplicate) {
    ++counts_.duplicated;
    flight.copies = 2;
  }
  flight.event_is_late = chance() < plan_.reorder;
  flight.flips = flight.operation.verb != Verb::kNotify && chance() < plan_.flip_bit;
}

void FaultTransport::flip_a_bit(std::span<const Piece> pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.size_bytes;
  if (bytes == 0) return;
  ++counts_.flipped;
  const std::uint64_t bit = next() % (bytes * 8);
  std::uint64_t at = bit / 8;
  for (const Piece& piece : pieces) {
    if (at < piece.size_bytes) {
      piece.data[at] ^= static_cast<std::byte>(1u << (bit % 8));
      return;
    }
    at -= piece.size_bytes;
  }
}

bool FaultTransport::start(Flight& flight, std::uint64_t now_ns) {
  Operation inner = flight.operation;
  const OperationId own = flight.operation.id;
  inner.cookie = own;
  inner.pieces = flight.pieces;
  Piece flipped;
  if (flight.flips && inner.verb == Verb::kWrite) {
    if (flight.flipped.empty()) {
      for (const Piece& piece : flight.pieces) {
        flight.flipped.insert(flight.flipped.end(), piece.data, piece.data + piece.size_bytes);
      }
      flipped = {flight.flipped.data(), flight.flipped.size(), kNoRegion};
      flip_a_bit({&flipped, 1});
    }
    flipped = {flight.flipped.data(), flight.flipped.size(), kNoRegion};
    inner.pieces = {&flipped, 1};
  }
  if (inner_->submit({&inner, 1}, now_ns) == 0) return false;
  flight.inner_ids.push_back(inner.id);
  --flight.copies;
  return true;
}

void FaultTransport::start_due(std::uint64_t now_ns) {
  for (auto& [id, flight] : flights_) {
    if (flight.never_starts || flight.start_ns > now_ns) continue;
    while (flight.copies > 0 && start(flight, now_ns)) continue;
  }
}

void FaultTransport::end(Flight& flight, Outcome outcome, std::uint64_t now_ns) {
  if (flight.flips && outcome == Outcome::kDone && flight.operation.verb == Verb::kRead) {
    flip_a_bit(flight.pieces);
  }
  Event event;
  event.outcome = outcome;
  event.verb = flight.operation.verb;
  event.id = flight.operation.id;
  event.cookie = flight.operation.cookie;
  event.bytes = flight.bytes;
  event.peer = flight.operation.peer;
  std::uint64_t due_ns = now_ns;
  if (flight.event_is_late) {
    ++counts_.reordered;
    due_ns = std::min(now_ns + some_delay_ns(), std::max(flight.operation.deadline_ns, now_ns));
  }
  late_.push_back({due_ns, event});
  flights_.erase(flight.operation.id);
}

void FaultTransport::on_inner(const Event& event, std::uint64_t now_ns,
                              std::vector<Event>& events) {
  if (event.kind == Event::Kind::kNotified) {
    if (!is_parted(event.from, now_ns)) events.push_back(event);
    return;
  }
  if (event.kind != Event::Kind::kCompleted) {
    events.push_back(event);
    return;
  }
  const auto at = flights_.find(event.cookie);
  if (at == flights_.end()) return;
  Flight& flight = at->second;
  std::erase(flight.inner_ids, event.id);
  flight.bytes = std::max(flight.bytes, event.bytes);
  if (event.outcome != Outcome::kDone) flight.outcome = event.outcome;
  // An operation that was doubled or cut off ends only when no copy moves any more.
  if (!flight.inner_ids.empty() || (flight.copies > 0 && !flight.never_starts)) return;
  if (flight.never_starts && flight.outcome == Outcome::kCancelled) return;
  end(flight, flight.outcome, now_ns);
}

void FaultTransport::poll(std::uint64_t now_ns, std::vector<Event>& events) {
  now_ns_ = std::max(now_ns_, now_ns);
  start_due(now_ns);
  inner_events_.clear();
  inner_->poll(now_ns, inner_events_);
  for (const Event& event : inner_events_) on_inner(event, now_ns, events);
  for (auto at = flights_.begin(); at != flights_.end();) {
    Flight& flight = (at++)->second;
    if (now_ns < flight.end_ns || !flight.inner_ids.empty()) continue;
    end(flight, flight.never_starts ? flight.end_outcome : Outcome::kTimedOut, now_ns);
  }
  std::stable_sort(late_.begin(), late_.end(),
                   [](const LateEvent& a, const LateEvent& b) { return a.due_ns < b.due_ns; });
  std::size_t due = 0;
  for (; due < late_.size() && late_[due].due_ns <= now_ns; ++due) {
    events.push_back(late_[due].event);
  }
  late_.erase(late_.begin(), late_.begin() + static_cast<std::ptrdiff_t>(due));
}

std::uint64_t FaultTransport::next_poll_ns() const {
  std::uint64_t next = inner_->next_poll_ns();
  for (const LateEvent& late : late_) next = std::min(next, late.due_ns);
  for (const auto& [id, flight] : flights_) {
    next = std::min(next, flight.end_ns);
    if (flight.copies > 0 && !flight.never_starts) next = std::min(next, flight.start_ns);
  }
  return next;
}

void FaultTransport::cancel(OperationId operation) {
  const auto at = flights_.find(operation);
  if (at == flights_.end()) return;
  Flight& flight = at->second;
  flight.copies = 0;
  flight.never_starts = true;
  flight.end_outcome = Outcome::kCancelled;
  flight.end_ns = 0;
  for (const OperationId inner : std::vector(flight.inner_ids)) inner_->cancel(inner);
}

void FaultTransport::close_peer(PeerId peer) {
  for (auto& [id, flight] : flights_) {
    if (flight.operation.peer == peer) cancel(id);
  }
  inner_->close_peer(peer);
  nodes_.erase(peer);
}

}  // namespace mc::transport::testing
