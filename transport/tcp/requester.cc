// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/requester.h"

#include <algorithm>
#include <string>

#include "transport/tcp/socket.h"

namespace mc::transport::tcp {

namespace {

constexpr std::uint64_t kLookNs = 50'000'000;  // between two looks at the peers
constexpr std::uint64_t kSuspectNs = kHeartbeatNs / 2;
constexpr std::size_t kMaxCuts = 4 * kMaxLanes;  // open at a peer; beyond, writes are lost

}  // namespace

Requester::Requester(LaneLoop& loop, Dialer& dialer, Counters& counters,
                     std::uint64_t max_asked_bytes)
    : loop_(loop), dialer_(dialer), counters_(counters), credits_(1, max_asked_bytes) {}

Requester::~Requester() {
  peers_.each([&](TcpPeer& peer) {
    for (auto& lane : peer.lanes) {
      if (lane) loop_.forget(lane.get());
    }
  });
}

// ---- Operations -------------------------------------------------------------------------------

Outcome Requester::check(const Operation& operation, std::uint64_t now_ns,
                         std::uint64_t* size) const {
  const auto bytes = size_of(operation.pieces);
  if (!bytes) return Outcome::kInvalid;
  if (operation.verb == Verb::kNotify && *bytes > kMaxNotificationBytes) return Outcome::kInvalid;
  if (operation.verb != Verb::kNotify && operation.offset_bytes > ~std::uint64_t{0} - *bytes) {
    return Outcome::kInvalid;
  }
  *size = *bytes;
  return operation.deadline_ns <= now_ns ? Outcome::kTimedOut : Outcome::kDone;
}

std::size_t Requester::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  std::size_t taken = 0;
  for (Operation& operation : operations) {
    std::uint64_t size = 0;
    Outcome outcome = check(operation, now_ns, &size);
    TcpPeer* peer = peers_.find(operation.peer);
    if (outcome == Outcome::kDone && peer == nullptr) outcome = Outcome::kInvalid;
    if (outcome == Outcome::kDone && peer->lost) outcome = Outcome::kPeerLost;
    OperationState* state = operations_.open();
    if (state == nullptr) break;
    ++taken;
    Operations::start(operation, *state, size);
    if (outcome != Outcome::kDone) {
      end(*state, outcome);
      continue;
    }
    next_deadline_ns_ = std::min(next_deadline_ns_, operation.deadline_ns);
    if (size <= kSmallBytes) {
      peer->small_waiting.push(state->id);
    } else {
      auto& waiting = peer->bulk_waiting[static_cast<std::size_t>(state->priority)];
      if (waiting.empty()) peer->turns.arrived(state->priority);
      waiting.push(state->id);
    }
    pump_later(*peer);
  }
  pump_all(now_ns);
  return taken;
}

void Requester::end(OperationState& operation, Outcome outcome) {
  events_.push_back(ended(operation, outcome));
  operations_.close(operation);
}

void Requester::give_up(OperationState& operation, Outcome outcome) {
  if (operation.verb == Verb::kRead || operation.slices_out == 0) {
    end(operation, outcome);
  } else if (operation.failure == Outcome::kDone) {
    operation.failure = outcome;
  }
}

void Requester::cancel(OperationId id) {
  if (OperationState* operation = operations_.find(id)) give_up(*operation, Outcome::kCancelled);
}

void Requester::on_slice(AskingLane& lane, const Slice& slice, Outcome outcome,
                         std::uint64_t now_ns) {
  TcpPeer* peer = peers_.find(lane.peer());
  const RailSlice done{slice.size_bytes, slice.asked_ns, slice.priority};
  rails_of(*peer, lane.index()).on_done(rail_of(lane.index()), done, now_ns);
  wake_waiting_for_credit();
  pump_later(*peer);
  OperationState* operation = operations_.find(slice.operation);
  if (operation == nullptr) return;
  --operation->slices_out;
  if (outcome == Outcome::kDone) {
    operation->done_bytes += slice.size_bytes;
    if (operation->verb == Verb::kRead) counters_.read_bytes += slice.size_bytes;
    if (operation->verb == Verb::kWrite) counters_.written_bytes += slice.size_bytes;
  }
  if (operation->done_bytes == operation->size_bytes) {
    end(*operation, Outcome::kDone);
  } else if (outcome != Outcome::kDone) {
    give_up(*operation, outcome);
  } else if (operation->failure != Outcome::kDone && operation->slices_out == 0) {
    end(*operation, operation->failure);
  }
}

// ---- From queues to lanes ---------------------------------------------------------------------

void Requester::pump_all(std::uint64_t now_ns) {
  due_.take([&](PeerId id) { return peers_.find(id); }, [&](TcpPeer& peer) { pump(peer, now_ns); });
}

void Requester::pump(TcpPeer& peer, std::uint64_t now_ns) {
  if (!is_up(peer)) return;
  if (!peer.cuts.empty()) ask_cuts(peer, now_ns);
  pump_small(peer, now_ns);
  if (resend(peer, now_ns)) pump_bulk(peer, now_ns);
  for (auto& lane : peer.lanes) {
    // The next turn of the lane finds a failed flush.
    if (lane && (!lane->flush() || lane->can_send())) loop_.wake(lane.get());
  }
}

AskingLane* Requester::choose(TcpPeer& peer, std::uint64_t bytes, bool small, Priority priority) {
  const bool small_up = peer.small.is_up(0);
  if (small_up && (small || peer.bulk.up_count() == 0)) {
    AskingLane* lane = peer.lanes[0].get();
    const std::uint64_t outstanding = peer.small.outstanding_bytes(0);
    const bool fits = outstanding == 0 || outstanding + bytes <= kSmallLaneBytes;
    return fits && lane->open_requests() + 2 < kMaxLaneRequests ? lane : nullptr;
  }
  const auto rail = peer.bulk.choose(bytes, Rails::kAllNear, priority);
  if (!rail) {
    if (peer.bulk.lacks_credit(bytes, priority)) waiting_for_credit_.add(peer);
    return nullptr;
  }
  AskingLane* lane = peer.lanes[*rail + 1].get();
  return lane->open_requests() + 2 < kMaxLaneRequests ? lane : nullptr;
}

void Requester::ask(TcpPeer& peer, AskingLane& lane, OperationState& operation, const Slice& slice,
                    std::uint64_t now_ns) {
  ++operation.slices_out;
  const RailSlice sent{slice.size_bytes, now_ns, slice.priority};
  rails_of(peer, lane.index()).on_sent(rail_of(lane.index()), sent);
  lane.ask(operation, slice, now_ns);
}

Slice Requester::cut(OperationState& operation, std::uint64_t bytes) {
  Slice slice;
  slice.operation = operation.id;
  slice.offset_bytes = operation.cut_bytes;
  slice.size_bytes = static_cast<std::uint32_t>(bytes);
  slice.start = operation.cut_at;
  slice.priority = operation.priority;
  advance(operation.pieces, operation.cut_at, bytes);
  operation.cut_bytes += bytes;
  return slice;
}

void Requester::pump_small(TcpPeer& peer, std::uint64_t now_ns) {
  for (; !peer.small_waiting.empty(); peer.small_waiting.pop()) {
    OperationState* operation = operations_.find(peer.small_waiting.front());
    if (operation == nullptr) continue;
    AskingLane* lane = choose(peer, operation->size_bytes, true, operation->priority);
    if (lane == nullptr) return;
    ask(peer, *lane, *operation, cut(*operation, operation->size_bytes), now_ns);
  }
}

// False: a slice must wait for room.
bool Requester::resend(TcpPeer& peer, std::uint64_t now_ns) {
  for (; !peer.resend.empty(); peer.resend.pop()) {
    const Slice& slice = peer.resend.front();
    OperationState* operation = operations_.find(slice.operation);
    if (operation == nullptr || operation->failure != Outcome::kDone) continue;
    AskingLane* lane =
        choose(peer, slice.size_bytes, operation->size_bytes <= kSmallBytes, slice.priority);
    if (lane == nullptr) return false;
    ++counters_.resent_slices;
    ask(peer, *lane, *operation, slice, now_ns);
  }
  return true;
}

void Requester::pump_bulk(TcpPeer& peer, std::uint64_t now_ns) {
  std::uint32_t waiting = 0;
  for (std::uint32_t i = 0; i < kPriorityCount; ++i) {
    if (!peer.bulk_waiting[i].empty()) waiting |= 1u << i;
  }
  while (const auto priority = peer.turns.next(waiting)) {
    const auto i = static_cast<std::size_t>(*priority);
    // A rail that is full for one class may have room for a higher class.
    if (!ask_next(peer, *priority, now_ns) || peer.bulk_waiting[i].empty()) waiting &= ~(1u << i);
  }
}

// Asks for a slice of the class's first operation, which then goes to the end. False: no room.
bool Requester::ask_next(TcpPeer& peer, Priority priority, std::uint64_t now_ns) {
  Queue<OperationId>& queue = peer.bulk_waiting[static_cast<std::size_t>(priority)];
  const OperationId id = queue.front();
  OperationState* operation = operations_.find(id);
  if (operation == nullptr || operation->failure != Outcome::kDone) {
    queue.pop();
    return true;
  }
  const std::uint64_t left = operation->size_bytes - operation->cut_bytes;
  std::uint64_t bytes = std::min<std::uint64_t>(left, peer.bulk.slice_bytes(operation->size_bytes));
  // A tail below a quarter of a slice joins the slice before it.
  if (left - bytes < bytes / 4 && left <= kMaxSliceBytes) bytes = left;
  AskingLane* lane = choose(peer, bytes, false, priority);
  if (lane == nullptr) return false;
  ask(peer, *lane, *operation, cut(*operation, bytes), now_ns);
  peer.turns.took(priority, bytes);
  queue.pop();
  if (operation->cut_bytes < operation->size_bytes) queue.push(id);
  return true;
}

// Freed credit goes first to the waiting peers.
void Requester::wake_waiting_for_credit() {
  waiting_for_credit_.take([&](PeerId id) { return peers_.find(id); },
                           [&](TcpPeer& peer) { pump_later(peer); });
}

// ---- Peers --------------------------------------------------------------------------------------

// Lanes that come and go, deadlines, signs of life.

Result<PeerId> Requester::connect(const PeerSpec& spec) {
  if (spec.node == 0 || spec.bulk_lanes == 0 || spec.bulk_lanes >= kMaxLanes) {
    return fail(MC_INVALID_ARGUMENT, "a peer needs a node id and 1 to 16 bulk lanes");
  }
  TcpPeer* peer = peers_.add([&](PeerId id) { return std::make_unique<TcpPeer>(id, spec); });
  if (peer == nullptr) return fail(MC_BUSY, "4096 peers are connected already; close some");
  peer->bulk.share(&credits_);
  next_look_ns_ = 0;
  return peer->id;
}

Status Requester::attach(Link link, std::uint64_t now_ns) {
  TcpPeer* peer = peers_.find(link.peer);
  if (peer == nullptr || link.lane >= peer->lanes.size() || link.node != peer->spec.node) {
    return {MC_INVALID_ARGUMENT, "this transport did not dial this lane"};
  }
  if (peer->lanes[link.lane]) return {MC_BUSY, "this lane is up already"};
  Status status = prepare_lane(link.socket.get());
  if (!status.ok()) return status;
  auto lane = std::make_unique<AskingLane>(std::move(link.socket), std::move(link.tls), *this,
                                           peer->id, link.lane, next_serial_++, now_ns);
  status = loop_.watch(lane.get());
  if (!status.ok()) return status;
  if (peer->lost) {
    peer->lost = false;
    tell(Event::Kind::kPeerBack, peer->id);
  }
  peer->lanes[link.lane] = std::move(lane);
  rails_of(*peer, link.lane).on_up(rail_of(link.lane));
  pump_later(*peer);
  return {};
}

void Requester::dial_failed(PeerId id, std::uint32_t lane, std::uint64_t now_ns) {
  TcpPeer* peer = peers_.find(id);
  if (peer == nullptr || lane >= peer->lanes.size() || peer->lanes[lane]) return;
  rails_of(*peer, lane).on_failed(rail_of(lane), now_ns);
}

void Requester::tell(Event::Kind kind, PeerId peer) {
  Event event;
  event.kind = kind;
  event.peer = peer;
  events_.push_back(event);
}

void Requester::on_lane_failed(AskingLane& lane, std::uint64_t now_ns) {
  TcpPeer* peer = peers_.find(lane.peer());
  const std::uint32_t index = lane.index();
  ++counters_.lanes_failed;
  if (peer->small.up_count() + peer->bulk.up_count() == 1) peer->heard_ns = lane.heard_ns();
  rails_of(*peer, index).on_failed(rail_of(index), now_ns);
  loop_.forget(&lane);
  const std::unique_ptr<AskingLane> owned = std::move(peer->lanes[index]);
  take_back(*peer, *owned);
  wake_waiting_for_credit();
  pump_later(*peer);
  next_look_ns_ = 0;
}

// Takes the slices of a failed lane back. Other lanes ask for reads and for requests that had not
// begun to leave. Writes follow as soon as the lane is cut at the peer too. A notification may have
// arrived already.
void Requester::take_back(TcpPeer& peer, AskingLane& lane) {
  for (Cut& cut : peer.cuts) {
    if (cut.asked_on == lane.index()) cut.asked_on = kMaxLanes;
  }
  bool must_cut = false;
  for (; !lane.open().empty(); lane.open().pop()) {
    const Slice& slice = lane.open().front();
    OperationState* operation = operations_.find(slice.operation);
    if (operation == nullptr) continue;
    --operation->slices_out;
    if (operation->failure != Outcome::kDone) {
      // The sent bytes of a write that was given up must not land late either.
      must_cut = must_cut || (operation->verb == Verb::kWrite && lane.has_begun(slice));
      if (operation->slices_out == 0) end(*operation, operation->failure);
    } else if (operation->verb == Verb::kRead || !lane.has_begun(slice)) {
      peer.resend.push(slice);
    } else if (operation->verb == Verb::kWrite && peer.cuts.size() < kMaxCuts) {
      must_cut = true;
      peer.uncut_writes.push(slice);
    } else {
      give_up(*operation, Outcome::kPeerLost);
    }
  }
  if (must_cut && peer.cuts.size() < kMaxCuts) peer.cuts.push_back({lane.index(), lane.serial()});
}

void Requester::ask_cuts(TcpPeer& peer, std::uint64_t now_ns) {
  const auto up =
      std::ranges::find_if(peer.lanes, [](const auto& lane) { return lane != nullptr; });
  for (Cut& cut : peer.cuts) {
    if (cut.asked_on != kMaxLanes) continue;
    cut.asked_on = (*up)->index();
    (*up)->cut_lane(cut.lane, cut.serial, now_ns);
  }
}

void Requester::on_cut(AskingLane& lane, Outcome outcome) {
  TcpPeer& peer = *peers_.find(lane.peer());
  const auto cut = std::ranges::find(peer.cuts, lane.index(), &Cut::asked_on);
  if (cut == peer.cuts.end()) return;
  peer.cuts.erase(cut);
  for (; outcome != Outcome::kDone && !peer.uncut_writes.empty(); peer.uncut_writes.pop()) {
    // These writes may be of the lane that was not cut.
    OperationState* operation = operations_.find(peer.uncut_writes.front().operation);
    if (operation != nullptr) give_up(*operation, Outcome::kPeerLost);
  }
  if (!peer.cuts.empty()) return;
  for (; !peer.uncut_writes.empty(); peer.uncut_writes.pop()) {
    peer.resend.push(peer.uncut_writes.front());
  }
  pump_later(peer);
}

void Requester::close_peer(PeerId id) {
  TcpPeer* peer = peers_.find(id);
  if (peer == nullptr) return;
  // First the lanes, so that no byte leaves from pieces after the events.
  for (auto& lane : peer->lanes) {
    if (!lane) continue;
    loop_.forget(lane.get());
    // Returns the credits of the lane.
    rails_of(*peer, lane->index()).on_failed(rail_of(lane->index()), lane->heard_ns());
    lane.reset();
  }
  wake_waiting_for_credit();
  for (OperationState& operation : operations_.slots()) {
    if (operation.id != kNoOperation && operation.peer == id) end(operation, Outcome::kCancelled);
  }
  peers_.remove(id);
}

void Requester::lose(TcpPeer& peer) {
  peer.lost = true;
  tell(Event::Kind::kPeerLost, peer.id);
  for (OperationState& operation : operations_.slots()) {
    if (operation.id != kNoOperation && operation.peer == peer.id) {
      end(operation, Outcome::kPeerLost);
    }
  }
  peer.small_waiting.clear();
  for (auto& waiting : peer.bulk_waiting) waiting.clear();
  peer.resend.clear();
  peer.uncut_writes.clear();
  peer.cuts.clear();
}

// A write past its deadline still has slices on lanes, which send from the caller's pieces. Only
// cutting these lanes makes the end final.
void Requester::abandon_lanes_of(OperationId operation, PeerId id, std::uint64_t now_ns) {
  TcpPeer* peer = peers_.find(id);
  for (std::size_t i = 0; i < peer->lanes.size(); ++i) {
    AskingLane* lane = peer->lanes[i].get();
    if (lane == nullptr) continue;
    bool carries = false;
    for (std::size_t k = 0; k < lane->open().size(); ++k) {
      carries = carries || lane->open()[k].operation == operation;
    }
    if (carries) on_lane_failed(*lane, now_ns);
  }
}

void Requester::expire(std::uint64_t now_ns) {
  next_deadline_ns_ = operations_.expire(now_ns, [&](OperationState& operation) {
    const OperationId id = operation.id;
    const PeerId peer = operation.peer;
    give_up(operation, Outcome::kTimedOut);
    if (operations_.find(id) != nullptr) abandon_lanes_of(id, peer, now_ns);
  });
}

void Requester::tick(std::uint64_t now_ns) {
  if (now_ns >= next_deadline_ns_) expire(now_ns);
  if (now_ns < next_look_ns_) return;
  // If this side slept, messages of peers may be unread. Silence in that time does not count.
  const bool was_away = last_look_ns_ != 0 && now_ns > last_look_ns_ + kHeartbeatNs;
  last_look_ns_ = now_ns;
  next_look_ns_ = now_ns + kLookNs;
  peers_.each([&](TcpPeer& peer) { look_after(peer, now_ns, was_away); });
}

std::uint64_t Requester::next_tick_ns() const {
  return peers_.empty() ? next_deadline_ns_ : std::min(next_deadline_ns_, next_look_ns_);
}

void Requester::look_after(TcpPeer& peer, std::uint64_t now_ns, bool was_away) {
  const PeerId id = peer.id;
  bool first = true;
  // If a lane owes an answer for long, the other lanes are probed: a dead peer must not be
  // discovered lane by lane.
  bool suspected = false;
  for (const auto& lane : peer.lanes) {
    if (!lane || was_away) continue;
    const std::uint64_t silent_ns = lane->silent_since_ns();
    suspected = suspected || (silent_ns != 0 && now_ns >= silent_ns + kSuspectNs);
  }
  for (std::size_t i = 0; i < peer.lanes.size(); ++i) {
    AskingLane* lane = peer.lanes[i].get();
    if (lane == nullptr) continue;
    if (was_away) lane->forgive(now_ns);
    const std::uint64_t silent_ns = lane->silent_since_ns();
    if (silent_ns != 0 && now_ns >= silent_ns + kLaneDeadNs) {
      on_lane_failed(*lane, now_ns);
      continue;
    }
    // A single lane pings for an idle peer. Each lane that owes an answer pings too.
    const bool wanted = first || suspected || lane->open_requests() > 0;
    first = false;
    if (wanted && !lane->pinging() && now_ns >= lane->pinged_ns() + kHeartbeatNs) {
      lane->ping(now_ns);
      loop_.wake(lane);
    }
  }
  if (!is_up(peer)) {
    if (peer.heard_ns == 0 || was_away) peer.heard_ns = now_ns;
    if (!peer.lost && now_ns >= peer.heard_ns + kPeerLostNs) lose(peer);
  }
  for (Rails* rails : {&peer.small, &peer.bulk}) {
    const std::uint32_t base = rails == &peer.small ? 0 : 1;
    while (const auto rail = rails->probe(now_ns)) {
      const auto lane = static_cast<std::uint32_t>(*rail) + base;
      dialer_.dial({id, peer.spec.node, lane, lane == 0 ? LaneRole::kSmall : LaneRole::kBulk});
    }
  }
}

void Requester::report_rails(std::vector<RailReport>& reports) const {
  peers_.each([&](const TcpPeer& peer) {
    reports.push_back({peer.id, "tcp", "small", peer.small.status(0)});
    for (std::size_t i = 0; i < peer.bulk.count(); ++i) {
      reports.push_back({peer.id, "tcp", "bulk " + std::to_string(i + 1), peer.bulk.status(i)});
    }
  });
}

RailCounts Requester::count_rails() const {
  RailCounts counts{.transport = "tcp"};
  peers_.each([&](const TcpPeer& peer) {
    const std::size_t up = peer.small.up_count() + peer.bulk.up_count();
    counts.up += up;
    counts.down += peer.small.count() + peer.bulk.count() - up;
  });
  return counts;
}

}  // namespace mc::transport::tcp
