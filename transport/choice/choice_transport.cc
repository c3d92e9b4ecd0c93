// SPDX-License-Identifier: Apache-2.0
#include "transport/choice/choice_transport.h"

#include <algorithm>

namespace mc::transport::choice {

namespace {

// The time between two checks whether reads under way still have a lane.
constexpr std::uint64_t kLookNs = 1'000'000;
// Marks the ids of readings; TCP's ids never have this bit.
constexpr OperationId kOwn = OperationId{1} << 63;

std::uint64_t bytes_of(std::span<const Piece> pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.size_bytes;
  return bytes;
}

}  // namespace

Result<std::unique_ptr<ChoiceTransport>> ChoiceTransport::create(
    std::unique_ptr<Transport> tcp, std::unique_ptr<OneSidedTransport> direct) {
  // The kernel takes at most five epolls inside each other. libfabric has two, the direct transport and its
  // user have one each; one of the choice's own would be one too many.
  if (Status status = direct->also_wait_for(tcp->wait_fd()); !status.ok()) return fail(status);
  return std::unique_ptr<ChoiceTransport>(new ChoiceTransport(std::move(tcp), std::move(direct)));
}

// ---- Regions ------------------------------------------------------------------------------------

Result<RegionId> ChoiceTransport::register_region(const RegionSpec& spec) {
  auto region = tcp_->register_region(spec);
  if (!region) return region;
  RegionSpec named = spec;
  named.name = *region;
  auto direct = direct_->register_region(named);
  Local& local = regions_[*region];
  if (direct) {
    local.direct = *direct;
  } else {
    local.why = direct.error().text();
  }
  return region;
}

void ChoiceTransport::set_backed(RegionId region, std::span<const MemoryRange> ranges) {
  const auto at = regions_.find(region);
  if (at != regions_.end()) direct_->set_backed(at->second.direct, ranges);
}

bool ChoiceTransport::close_region(RegionId region) {
  if (const auto at = regions_.find(region); at != regions_.end()) {
    direct_->close_region(at->second.direct);
    regions_.erase(at);
  }
  return tcp_->close_region(region);
}

Result<RemoteRegionId> ChoiceTransport::import_region(PeerId peer,
                                                      std::span<const std::byte> text) {
  auto region = tcp_->import_region(peer, text);
  if (!region) return region;
  if (const auto name = RegionTable::decode_descriptor(text)) {
    Remote& remote = remote_[*region];
    if (remote.name != *name) remote = {peer, *name, 0};
  }
  return region;
}

std::string ChoiceTransport::obstacles() const {
  std::string text = direct_->obstacles();
  for (const auto& [region, local] : regions_) {
    const Status backing = direct_->backing(local.direct);
    const std::string why = backing.ok() ? local.why : std::string(backing.text());
    if (why.empty()) continue;
    if (!text.empty()) text += "; ";
    text += why;
  }
  return text;
}

// ---- Peers --------------------------------------------------------------------------------------

Result<PeerId> ChoiceTransport::connect(const PeerSpec& spec) {
  auto peer = tcp_->connect(spec);
  if (!peer) return peer;
  peers_[*peer] = {spec.node, kNoPeer};
  if (able_.contains(spec.node)) connect_direct(spec.node);
  return peer;
}

void ChoiceTransport::connect_direct(NodeId node) {
  for (auto& [peer, ways] : peers_) {
    if (ways.node != node || ways.direct != kNoPeer) continue;
    const auto made = direct_->connect({node, 1});
    if (!made) continue;
    ways.direct = *made;
    of_direct_[*made] = peer;
  }
}

void ChoiceTransport::close_direct(NodeId node) {
  for (auto& [peer, ways] : peers_) {
    if (ways.node != node || ways.direct == kNoPeer) continue;
    direct_->close_peer(ways.direct);
    of_direct_.erase(ways.direct);
    ways.direct = kNoPeer;
    for (auto& [region, remote] : remote_) {
      if (remote.peer == peer) remote.direct = 0;
    }
  }
}

Status ChoiceTransport::attach(Link link) {
  const NodeId node = link.node;
  if ((link.features & feature_) != 0) {
    if (able_.insert(node).second) connect_direct(node);
  } else if (able_.erase(node) != 0) {
    // The peer was started anew, without the direct transport.
    close_direct(node);
  }
  return tcp_->attach(std::move(link));
}

void ChoiceTransport::close_peer(PeerId peer) {
  const auto at = peers_.find(peer);
  if (at == peers_.end()) return;
  for (auto& [id, reading] : readings_) {
    if (reading.operation.peer == peer) reading.cancelled = true;
  }
  close_direct(at->second.node);
  peers_.erase(at);
  std::erase_if(remote_, [&](const auto& remote) { return remote.second.peer == peer; });
  tcp_->close_peer(peer);
}

// ---- Operations ---------------------------------------------------------------------------------

const ChoiceTransport::Remote* ChoiceTransport::direct_way(const Operation& operation,
                                                           std::uint64_t now_ns) {
  if (operation.verb != Verb::kRead) return nullptr;
  const std::uint64_t bytes = bytes_of(operation.pieces);
  if (bytes < kOneSidedBytes) return nullptr;
  const auto peer = peers_.find(operation.peer);
  if (peer == peers_.end() || peer->second.direct == kNoPeer) return nullptr;
  const auto at = remote_.find(operation.region);
  if (at == remote_.end() || at->second.peer != operation.peer) return nullptr;
  Remote& remote = at->second;
  if (remote.direct == 0) {
    const auto region = direct_->import_named(peer->second.direct, remote.name);
    if (!region) return nullptr;
    remote.direct = *region;
  }
  return direct_->ready_to_read(remote.direct, operation.offset_bytes, bytes, now_ns) ? &remote
                                                                                      : nullptr;
}

std::size_t ChoiceTransport::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  std::size_t taken = 0;
  while (taken < operations.size()) {
    const Remote* remote = nullptr;
    std::size_t until = taken;
    while (until < operations.size() &&
           (remote = direct_way(operations[until], now_ns_)) == nullptr) {
      ++until;
    }
    if (until > taken) {
      const std::size_t wanted = until - taken;
      const std::size_t got = tcp_->submit(operations.subspan(taken, wanted), now_ns);
      taken += got;
      if (got < wanted) return taken;
    }
    if (remote == nullptr) break;
    if (!begin(operations[taken], *remote, now_ns)) return taken;
    ++taken;
  }
  return taken;
}

// False: no room.
bool ChoiceTransport::begin(Operation& operation, const Remote& remote, std::uint64_t now_ns) {
  const OperationId id = kOwn | next_id_++;
  Reading& reading = readings_[id];
  reading.operation = operation;
  reading.operation.id = id;
  reading.pieces.assign(operation.pieces.begin(), operation.pieces.end());
  reading.operation.pieces = reading.pieces;
  reading.direct_peer = peers_.at(operation.peer).direct;
  const Piece byte{&reading.byte, 1, kNoRegion};
  Operation asking = operation;
  asking.pieces = {&byte, 1};
  if (tcp_->submit({&asking, 1}, now_ns) != 1) {
    readings_.erase(id);
    return false;
  }
  operation.id = id;
  reading.by_tcp = asking.id;
  by_tcp_[asking.id] = id;
  // The direct transport finds the regions of pieces by address.
  std::vector<Piece> pieces = reading.pieces;
  for (Piece& piece : pieces) piece.region = kNoRegion;
  Operation bytes = operation;
  bytes.peer = reading.direct_peer;
  bytes.region = remote.direct;
  bytes.cookie = id;
  bytes.pieces = pieces;
  if (direct_->submit({&bytes, 1}, now_ns) == 1) {
    reading.by_direct = bytes.id;
    ++choices_.reads;
  } else {
    reading.direct_outcome = Outcome::kBusy;
  }
  return true;
}

void ChoiceTransport::cancel(OperationId operation) {
  const auto at = readings_.find(operation);
  if (at == readings_.end()) {
    tcp_->cancel(operation);
    return;
  }
  at->second.cancelled = true;
  if (at->second.by_direct != kNoOperation) direct_->cancel(at->second.by_direct);
  if (at->second.by_tcp != kNoOperation) tcp_->cancel(at->second.by_tcp);
}

void ChoiceTransport::settle(OperationId id, Reading& reading) {
  if (reading.by_tcp != kNoOperation) return;
  if (reading.by_direct != kNoOperation) {
    // The caller no longer wants the bytes. The event waits until no byte lands.
    if (reading.tcp_outcome != Outcome::kDone) direct_->cancel(reading.by_direct);
    return;
  }
  if (reading.detour || reading.tcp_outcome != Outcome::kDone) {
    end(id, reading, reading.tcp_outcome);
  } else if (reading.direct_outcome == Outcome::kDone ||
             reading.direct_outcome == Outcome::kTimedOut) {
    end(id, reading, reading.direct_outcome);
  } else if (reading.cancelled) {
    end(id, reading, Outcome::kCancelled);
  } else {
    ++choices_.detours;
    reading.detour = true;
    const auto remote = remote_.find(reading.operation.region);
    if (remote != remote_.end() && reading.direct_outcome == Outcome::kStale) {
      direct_->doubt(remote->second.direct);
    }
    detour(id, reading);
  }
}

void ChoiceTransport::detour(OperationId id, Reading& reading) {
  if (reading.cancelled) return end(id, reading, Outcome::kCancelled);
  Operation again = reading.operation;
  if (tcp_->submit({&again, 1}, now_ns_) != 1) {
    waiting_.push_back(id);
    return;
  }
  reading.by_tcp = again.id;
  by_tcp_[again.id] = id;
}

void ChoiceTransport::end(OperationId id, const Reading& reading, Outcome outcome) {
  Event event;
  event.outcome = outcome;
  event.verb = reading.operation.verb;
  event.id = id;
  event.cookie = reading.operation.cookie;
  event.bytes = reading.bytes;
  event.peer = reading.operation.peer;
  events_.push_back(event);
  readings_.erase(id);
}

// ---- The loop -----------------------------------------------------------------------------------

// Keeps the events that the caller must see.
void ChoiceTransport::take_tcp(std::vector<Event>& events, std::size_t first) {
  std::size_t kept = first;
  for (std::size_t i = first; i < events.size(); ++i) {
    const auto own =
        events[i].kind == Event::Kind::kCompleted ? by_tcp_.find(events[i].id) : by_tcp_.end();
    if (own == by_tcp_.end()) {
      events[kept++] = events[i];
      continue;
    }
    const OperationId id = own->second;
    by_tcp_.erase(own);
    Reading& reading = readings_.at(id);
    reading.by_tcp = kNoOperation;
    reading.tcp_outcome = events[i].outcome;
    if (reading.detour) reading.bytes = events[i].bytes;
    settle(id, reading);
  }
  events.resize(kept);
}

void ChoiceTransport::take_direct() {
  for (const Event& event : direct_events_) {
    if (event.kind != Event::Kind::kCompleted) continue;
    const auto at = readings_.find(event.cookie);
    if (at == readings_.end()) continue;
    Reading& reading = at->second;
    reading.by_direct = kNoOperation;
    reading.direct_outcome = event.outcome;
    reading.bytes = event.bytes;
    settle(at->first, reading);
  }
}

// TCP takes over at once, without waiting for lanes that may come back.
void ChoiceTransport::leave_dead_ways() {
  for (const auto& [id, reading] : readings_) {
    if (reading.by_direct != kNoOperation && !direct_->is_up(reading.direct_peer)) {
      direct_->cancel(reading.by_direct);
    }
  }
}

void ChoiceTransport::poll(std::uint64_t now_ns, std::vector<Event>& events) {
  now_ns_ = std::max(now_ns_, now_ns);
  const std::size_t first = events.size();
  tcp_->poll(now_ns, events);
  if (!by_tcp_.empty()) take_tcp(events, first);
  direct_events_.clear();
  direct_->poll(now_ns, direct_events_);
  if (!direct_events_.empty()) take_direct();
  if (!readings_.empty() && now_ns_ >= next_look_ns_) {
    next_look_ns_ = now_ns_ + kLookNs;
    leave_dead_ways();
    for (const OperationId id : std::exchange(waiting_, {})) detour(id, readings_.at(id));
  }
  events.insert(events.end(), events_.begin(), events_.end());
  events_.clear();
}

std::uint64_t ChoiceTransport::next_poll_ns() const {
  if (!events_.empty()) return 0;
  const std::uint64_t look_ns = readings_.empty() ? ~std::uint64_t{0} : next_look_ns_;
  return std::min({tcp_->next_poll_ns(), direct_->next_poll_ns(), look_ns});
}

// ---- Reports ------------------------------------------------------------------------------------

const Counters& ChoiceTransport::counters() const {
  counters_ = tcp_->counters();
  const Counters& more = direct_->counters();
  for (const auto member :
       {&Counters::read_bytes, &Counters::written_bytes, &Counters::resent_slices,
        &Counters::lanes_failed, &Counters::send_calls, &Counters::receive_calls}) {
    counters_.*member += more.*member;
  }
  return counters_;
}

void ChoiceTransport::report_rails(std::vector<RailReport>& reports) const {
  tcp_->report_rails(reports);
  const std::size_t first = reports.size();
  direct_->report_rails(reports);
  for (std::size_t i = first; i < reports.size(); ++i) {
    const auto peer = of_direct_.find(reports[i].peer);
    reports[i].peer = peer == of_direct_.end() ? kNoPeer : peer->second;
  }
}

}  // namespace mc::transport::choice
