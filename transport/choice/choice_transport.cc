// SPDX-License-Identifier: Apache-2.0
#include "transport/choice/choice_transport.h"

#include <algorithm>

namespace mc::transport::choice {

namespace {

// The time between two checks whether operations under way still have a lane.
constexpr std::uint64_t kLookNs = 1'000'000;
// The same for direct ways that are being opened, and the time for one.
constexpr std::uint64_t kOpeningLookNs = 5'000'000;
constexpr std::uint64_t kOpeningNs = 2'000'000'000;
constexpr std::size_t kMaxOpening = 64;
// Marks the ids of operations that were begun directly; TCP's ids never have this bit.
constexpr OperationId kOwn = OperationId{1} << 63;

std::uint64_t bytes_of(std::span<const Piece> pieces) {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.size_bytes;
  return bytes;
}

}  // namespace

Result<std::unique_ptr<ChoiceTransport>> ChoiceTransport::create(
    std::unique_ptr<Transport> tcp, std::unique_ptr<OneSidedTransport> direct,
    std::uint64_t direct_bytes) {
  // The kernel takes at most five epolls inside each other. libfabric has two, the direct transport and its
  // user have one each; one of the choice's own would be one too many.
  if (Status status = direct->also_wait_for(tcp->wait_fd()); !status.ok()) return fail(status);
  return std::unique_ptr<ChoiceTransport>(
      new ChoiceTransport(std::move(tcp), std::move(direct), direct_bytes));
}

// ---- Regions ------------------------------------------------------------------------------------

Result<RegionId> ChoiceTransport::register_region(const RegionSpec& spec) {
  auto region = tcp_->register_region(spec);
  if (!region) return region;
  if (spec.two_sided_only) return region;
  RegionSpec named = spec;
  named.name = *region;
  auto direct = direct_->register_region(named);
  Local& local = regions_[*region];
  if (direct) {
    local.direct = *direct;
  } else {
    local.why = direct.error();
  }
  return region;
}

void ChoiceTransport::set_backed(RegionId region, std::span<const MemoryRange> ranges) {
  const auto at = regions_.find(region);
  if (at != regions_.end()) direct_->set_backed(at->second.direct, ranges);
}

bool ChoiceTransport::close_region(RegionId region) {
  // TCP knows no region that was closed before.
  const bool by_tcp = tcp_->close_region(region);
  const auto at = regions_.find(region);
  if (at != regions_.end()) {
    if (!direct_->close_region(at->second.direct)) return false;
    regions_.erase(at);
  }
  return by_tcp;
}

Status ChoiceTransport::backing(RegionId region) const {
  const auto at = regions_.find(region);
  if (at == regions_.end()) return {};
  if (at->second.direct == kNoRegion) return at->second.why;
  return direct_->backing(at->second.direct);
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
    const Status backed = backing(region);
    if (backed.ok() || backed.code() == MC_BUSY) continue;
    if (!text.empty()) text += "; ";
    text += backed.text();
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
  for (auto& [id, begun] : begun_) {
    if (begun.operation.peer == peer) begun.cancelled = true;
  }
  close_direct(at->second.node);
  peers_.erase(at);
  std::erase_if(remote_, [&](const auto& remote) { return remote.second.peer == peer; });
  tcp_->close_peer(peer);
}

// ---- Operations ---------------------------------------------------------------------------------

const ChoiceTransport::Remote* ChoiceTransport::direct_way(const Operation& operation,
                                                           std::uint64_t now_ns) {
  if (operation.verb == Verb::kNotify) return nullptr;
  const std::uint64_t bytes = bytes_of(operation.pieces);
  if (bytes < direct_bytes_) return nullptr;
  if (!direct_->holds(operation.pieces)) return nullptr;
  const auto at = remote_.find(operation.region);
  if (at == remote_.end() || at->second.peer != operation.peer) return nullptr;
  Remote& remote = at->second;
  const MemoryRange range{operation.offset_bytes, bytes};
  if (!is_reachable(remote, range, now_ns)) {
    if (opening_.empty()) next_opening_ns_ = now_ns + kOpeningLookNs;
    if (opening_.size() < kMaxOpening || opening_.contains(operation.region)) {
      opening_[operation.region] = {range, now_ns + kOpeningNs};
    }
    return nullptr;
  }
  const bool worth_a_probe = operation.verb == Verb::kRead && bytes >= kProbedBytes;
  return worth_a_probe || !direct_->is_guarded(remote.direct) ? &remote : nullptr;
}

bool ChoiceTransport::is_reachable(Remote& remote, const MemoryRange& range, std::uint64_t now_ns) {
  const auto peer = peers_.find(remote.peer);
  if (peer == peers_.end() || peer->second.direct == kNoPeer) return false;
  if (remote.direct == 0) {
    const auto region = direct_->import_named(peer->second.direct, remote.name);
    if (!region) return false;
    remote.direct = *region;
  }
  return direct_->is_reachable(remote.direct, range.offset_bytes, range.size_bytes, now_ns);
}

// The next operation shall not find the lanes closed or the keys unknown.
void ChoiceTransport::open_ways() {
  std::erase_if(opening_, [this](const auto& each) {
    const auto remote = remote_.find(each.first);
    return remote == remote_.end() || now_ns_ >= each.second.until_ns ||
           is_reachable(remote->second, each.second.range, now_ns_);
  });
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
  Begun& begun = begun_[id];
  begun.operation = operation;
  begun.operation.id = id;
  begun.pieces.assign(operation.pieces.begin(), operation.pieces.end());
  begun.operation.pieces = begun.pieces;
  begun.direct_peer = peers_.at(operation.peer).direct;
  if (direct_->is_guarded(remote.direct) && !probe(id, begun, now_ns)) {
    begun_.erase(id);
    return false;
  }
  operation.id = id;
  // The direct transport finds the regions of pieces by address.
  std::vector<Piece> pieces = begun.pieces;
  for (Piece& piece : pieces) piece.region = kNoRegion;
  Operation bytes = operation;
  bytes.peer = begun.direct_peer;
  bytes.region = remote.direct;
  bytes.cookie = id;
  bytes.pieces = pieces;
  if (direct_->submit({&bytes, 1}, now_ns) == 1) {
    begun.by_direct = bytes.id;
    ++choices_.begun;
  } else {
    begun.direct_outcome = Outcome::kBusy;
    settle(id, begun);
  }
  return true;
}

// False: no room.
bool ChoiceTransport::probe(OperationId id, Begun& begun, std::uint64_t now_ns) {
  const Piece byte{&begun.byte, 1, kNoRegion};
  Operation asking = begun.operation;
  asking.pieces = {&byte, 1};
  if (tcp_->submit({&asking, 1}, now_ns) != 1) return false;
  begun.by_tcp = asking.id;
  by_tcp_[asking.id] = id;
  return true;
}

void ChoiceTransport::cancel(OperationId operation) {
  const auto at = begun_.find(operation);
  if (at == begun_.end()) {
    tcp_->cancel(operation);
    return;
  }
  at->second.cancelled = true;
  if (at->second.by_direct != kNoOperation) direct_->cancel(at->second.by_direct);
  if (at->second.by_tcp != kNoOperation) tcp_->cancel(at->second.by_tcp);
}

void ChoiceTransport::settle(OperationId id, Begun& begun) {
  if (begun.by_tcp != kNoOperation) return;
  if (begun.by_direct != kNoOperation) {
    // The caller no longer wants the bytes. The event waits until no byte lands.
    if (begun.tcp_outcome != Outcome::kDone) direct_->cancel(begun.by_direct);
    return;
  }
  if (begun.detour || begun.tcp_outcome != Outcome::kDone) {
    end(id, begun, begun.tcp_outcome);
  } else if (begun.direct_outcome == Outcome::kDone || begun.direct_outcome == Outcome::kTimedOut) {
    end(id, begun, begun.direct_outcome);
  } else if (begun.cancelled) {
    end(id, begun, Outcome::kCancelled);
  } else {
    ++choices_.detours;
    begun.detour = true;
    const auto remote = remote_.find(begun.operation.region);
    if (remote != remote_.end() && begun.direct_outcome == Outcome::kStale) {
      direct_->doubt(remote->second.direct);
    }
    detour(id, begun);
  }
}

void ChoiceTransport::detour(OperationId id, Begun& begun) {
  if (begun.cancelled) return end(id, begun, Outcome::kCancelled);
  Operation again = begun.operation;
  if (tcp_->submit({&again, 1}, now_ns_) != 1) {
    waiting_.push_back(id);
    return;
  }
  begun.by_tcp = again.id;
  by_tcp_[again.id] = id;
}

void ChoiceTransport::end(OperationId id, const Begun& begun, Outcome outcome) {
  Event event;
  event.outcome = outcome;
  event.verb = begun.operation.verb;
  event.id = id;
  event.cookie = begun.operation.cookie;
  event.bytes = begun.bytes;
  event.peer = begun.operation.peer;
  events_.push_back(event);
  begun_.erase(id);
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
    Begun& begun = begun_.at(id);
    begun.by_tcp = kNoOperation;
    begun.tcp_outcome = events[i].outcome;
    if (begun.detour) begun.bytes = events[i].bytes;
    settle(id, begun);
  }
  events.resize(kept);
}

void ChoiceTransport::take_direct() {
  for (const Event& event : direct_events_) {
    if (event.kind != Event::Kind::kCompleted) continue;
    const auto at = begun_.find(event.cookie);
    if (at == begun_.end()) continue;
    Begun& begun = at->second;
    begun.by_direct = kNoOperation;
    begun.direct_outcome = event.outcome;
    begun.bytes = event.bytes;
    settle(at->first, begun);
  }
}

// TCP takes over reads at once, without waiting for lanes that may come back. A write that was posted to a dead
// lane may still arrive, after the peer has reused the memory: only the direct transport knows when it cannot.
void ChoiceTransport::leave_dead_ways() {
  for (const auto& [id, begun] : begun_) {
    if (begun.operation.verb == Verb::kWrite) continue;
    if (begun.by_direct != kNoOperation && !direct_->is_up(begun.direct_peer)) {
      direct_->cancel(begun.by_direct);
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
  if (!begun_.empty() && now_ns_ >= next_look_ns_) {
    next_look_ns_ = now_ns_ + kLookNs;
    leave_dead_ways();
    for (const OperationId id : std::exchange(waiting_, {})) detour(id, begun_.at(id));
  }
  if (!opening_.empty() && now_ns_ >= next_opening_ns_) {
    next_opening_ns_ = now_ns_ + kOpeningLookNs;
    open_ways();
  }
  events.insert(events.end(), events_.begin(), events_.end());
  events_.clear();
}

std::uint64_t ChoiceTransport::next_poll_ns() const {
  if (!events_.empty()) return 0;
  const std::uint64_t look_ns = begun_.empty() ? ~std::uint64_t{0} : next_look_ns_;
  const std::uint64_t opening_ns = opening_.empty() ? ~std::uint64_t{0} : next_opening_ns_;
  return std::min({tcp_->next_poll_ns(), direct_->next_poll_ns(), look_ns, opening_ns});
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
