// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/lanes.h"

#include <algorithm>
#include <utility>

#include "transport/rails/rail_pairs.h"

namespace mc::transport::fabric {

namespace {

constexpr std::uint32_t kMostTries = 4;  // of a slice
// Failed requests of a lane in a row. The first failure may be about the request's own key; the
// second says that the endpoint has broken.
constexpr std::uint32_t kMostFailures = 2;

// Polls a lane when the descriptor of its completion queue is readable.
class LaneEvents : public Watched {
 public:
  LaneEvents(Lanes& lanes, FabricPeer& peer, std::size_t place)
      : lanes_(lanes), peer_(peer), place_(place) {}
  void on_edge(std::uint64_t now_ns) override {
    static_cast<void>(lanes_.poll_lane(peer_, place_, now_ns));
  }

 private:
  Lanes& lanes_;
  FabricPeer& peer_;
  const std::size_t place_;
};

}  // namespace

// Makes places for the domains that both sides have now. Closes lanes whose other end has changed.
void Lanes::find_places(FabricPeer& peer, std::uint64_t now_ns) {
  std::vector<std::string> ours, theirs;
  std::vector<std::uint8_t> our_slots, their_slots;
  for (std::size_t slot = 0; slot < domains_.size(); ++slot) {
    if (!domains_[slot]) continue;
    ours.push_back(domains_[slot]->name());
    our_slots.push_back(static_cast<std::uint8_t>(slot));
  }
  for (const auto& [slot, domain] : peer.remote) {
    theirs.emplace_back(domain.name.data());
    their_slots.push_back(slot);
  }
  const auto pairs = pair_rails(ours, theirs);
  const bool same =
      pairs.size() == peer.places.size() &&
      std::ranges::equal(pairs, peer.places, [&](const auto& pair, const auto& old) {
        return our_slots[pair.local] == old.ours && their_slots[pair.remote] == old.theirs;
      });
  if (!same) {
    fail_all(peer, "this host or the peer has other domains now", now_ns);
    peer.places.clear();
    for (const RailPair& pair : pairs) {
      peer.places.emplace_back();
      peer.places.back().ours = our_slots[pair.local];
      peer.places.back().theirs = their_slots[pair.remote];
    }
    peer.rails = Rails(peer.places.size(), 4, Rails::Paths::kSeparate);
    for (std::size_t at = 0; at < peer.places.size(); ++at) {
      const std::uint8_t slot = peer.places[at].ours;
      const double line = domains_[slot]->line_bytes_per_ns();
      RailTraits traits;
      traits.local_nic = slot;
      if (line > 0) traits.bytes_per_ns = line;
      peer.rails.set_traits(at, traits);
    }
    peer.rails.share(&credits_);
  }
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    if (peer.places[at].remote_epoch != peer.epochs[peer.places[at].theirs]) {
      fail(peer, at, "the peer has a new serving endpoint", now_ns);
    }
  }
}

void Lanes::open(FabricPeer& peer, std::size_t at, std::uint64_t now_ns) {
  LaneRecord& place = peer.places[at];
  const auto cannot = [&](std::string why) {
    place.why = std::move(why);
    peer.rails.on_failed(at, now_ns);
  };
  Domain& domain = *domains_[place.ours];
  const DomainEntry& remote = peer.remote.at(place.theirs);
  if (remote.address_format != domain.info().addr_format ||
      remote.protocol != domain.info().ep_attr->protocol) {
    return cannot(
        "the peer uses another provider of libfabric, or another kind of address; "
        "choose the same on both sides");
  }
  auto lane = Lane::open(domain, remote);
  if (!lane) {
    if (domain.is_broken()) broken_.push_back({place.ours, std::string(lane.error().text())});
    return cannot(std::string(lane.error().text()));
  }
  place.events = std::make_unique<LaneEvents>(*this, peer, at);
  if (const int fd = (*lane)->endpoint().wait_fd(); fd >= 0) {
    const Status status = requester_.edges().watch(fd, place.events.get(), Edges::Kind::kReadable);
    if (!status.ok()) return cannot(std::string(status.text()));
  }
  place.lane = std::move(*lane);
  place.state = LaneState::kLooking;
  place.since_ns = now_ns;
  place.remote_epoch = remote.epoch;
  place.failures = 0;
  look(peer, at, now_ns);
}

void Lanes::attend(FabricPeer& peer, const Domain& domain, std::uint64_t now_ns) {
  if (now_ns < peer.attend_again_ns || !domain.wants_attention() || !peer.link.introduced()) return;
  peer.attend_again_ns = now_ns + kAttendAgainNs;
  static_cast<void>(peer.link->send(encode_empty(MessageKind::kAttend)));
}

void Lanes::look(FabricPeer& peer, std::size_t at, std::uint64_t now_ns) {
  LaneRecord& place = peer.places[at];
  attend(peer, place.lane->domain(), now_ns);
  const Lane::Posted posted = place.lane->look(peer.remote.at(place.theirs));
  activate(peer);
  // For example while the provider connects.
  if (posted == Lane::Posted::kLater) on_full(peer, place);
  if (posted == Lane::Posted::kFailed) {
    fail(peer, at, "the provider takes no request", now_ns);
  }
}

void Lanes::on_looked(FabricPeer& peer, std::size_t at, bool came, std::uint64_t now_ns) {
  LaneRecord& place = peer.places[at];
  if (!came || place.lane->beacon() != place.remote_epoch) {
    return fail(peer, at,
                came ? "another process answers at the peer's address"
                     : "the peer's memory cannot be reached; is its network open to this host?",
                now_ns);
  }
  place.state = LaneState::kUp;
  place.why.clear();
  place.measured_ns = now_ns;
  place.measured_bytes = 0;
  peer.rails.on_up(at);
  requester_.look_soon();
}

void Lanes::fail(FabricPeer& peer, std::size_t at, std::string why, std::uint64_t now_ns) {
  LaneRecord& place = peer.places[at];
  if (place.lane == nullptr) return;
  const std::unique_ptr<Lane> lane = std::move(place.lane);
  const std::vector<Slice> slices = lane->outstanding();
  requester_.edges().forget(lane->endpoint().wait_fd(), place.events.get());
  lane->close();
  if (place.state == LaneState::kUp) ++requester_.counters().lanes_failed;
  place.state = LaneState::kDown;
  place.why = std::move(why);
  place.full = false;
  peer.rails.on_failed(at, now_ns);
  requester_.wake_waiting_for_credit();
  for (const Slice& slice : slices) take_back(peer, place, slice);
  requester_.pump_later(peer);
  requester_.look_soon();
}

void Lanes::fail_all(FabricPeer& peer, const std::string& why, std::uint64_t now_ns) {
  for (std::size_t at = 0; at < peer.places.size(); ++at) fail(peer, at, why, now_ns);
}

void Lanes::on_domains(FabricPeer& peer, const std::vector<DomainEntry>& domains,
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
  requester_.pump_later(peer);
  requester_.look_soon();
}

void Lanes::look_after(FabricPeer& peer, std::uint64_t now_ns, std::uint64_t away_ns) {
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    LaneRecord& place = peer.places[at];
    if (place.lane == nullptr) continue;
    place.since_ns += away_ns;
    const bool waits = place.state == LaneState::kLooking || place.lane->posted() > 0;
    if (waits && now_ns >= place.since_ns + kLaneDeadNs) {
      fail(peer, at, "no completion came for too long", now_ns);
    }
  }
  if (peer.dormant || !peer.link.introduced()) return;
  while (const auto at = peer.rails.probe(now_ns)) {
    if (peer.places[*at].lane == nullptr) open(peer, *at, now_ns);
  }
}

void Lanes::take_back(FabricPeer& peer, const LaneRecord& place, Slice slice) {
  one_sided::OperationBook& operations = requester_.operations();
  OperationState* operation = operations.find(slice.operation);
  if (operation == nullptr) return;
  --operation->slices_out;
  if (operation->failure != Outcome::kDone)
    return operations.give_up(*operation, operation->failure);
  RemoteRegion* region = requester_.remote_regions().find(operation->region);
  if (region == nullptr) return operations.give_up(*operation, Outcome::kStale);
  // If the peer has moved, the failure is not the slice's fault.
  const bool has_moved = peer.epochs[place.theirs] != place.remote_epoch;
  if (!has_moved && ++slice.tries >= kMostTries)
    return operations.give_up(*operation, Outcome::kPeerLost);
  region->doubted = true;
  if (operation->verb == Verb::kRead || has_moved) {
    peer.resend.push(slice);
    return;
  }
  const bool is_asked = std::ranges::any_of(peer.held, [&](const HeldWrite& held) {
    return held.slot == place.theirs && held.epoch == place.remote_epoch;
  });
  peer.held.push_back({place.theirs, place.remote_epoch, slice});
  if (!is_asked && peer.link.introduced()) {
    static_cast<void>(peer.link->send(encode(MoveBody{place.remote_epoch, place.theirs, 0})));
  }
}

// Called after the peer has told its serving endpoints.
void Lanes::release_held(FabricPeer& peer) {
  std::map<std::uint8_t, std::uint64_t> open;
  std::erase_if(peer.held, [&](const HeldWrite& held) {
    if (peer.epochs[held.slot] == held.epoch) {
      open[held.slot] = held.epoch;
      return false;
    }
    peer.resend.push(held.slice);
    return true;
  });
  // The peer may not have heard a question on an earlier link.
  for (const auto& [slot, epoch] : open) {
    static_cast<void>(peer.link->send(encode(MoveBody{epoch, slot, 0})));
  }
}

void Lanes::on_completion(FabricPeer& peer, std::size_t at, const Completion& completion,
                          std::uint64_t now_ns) {
  LaneRecord& place = peer.places[at];
  const auto taken = place.lane->take(completion);
  if (!taken) return;
  const Slice slice = *taken;
  place.since_ns = now_ns;
  requester_.pump_later(peer);
  if (slice.operation == kNoOperation) {
    return on_looked(peer, at, completion.error == 0, now_ns);
  }
  peer.rails.on_done(at, slice.size_bytes);
  requester_.wake_waiting_for_credit();
  if (completion.error != 0) {
    const std::string why =
        place.lane->domain().library().error_text("a request failed", completion.error);
    place.why = why;
    take_back(peer, place, slice);
    if (++place.failures >= kMostFailures) fail(peer, at, why, now_ns);
    return;
  }
  place.failures = 0;
  place.measured_bytes += slice.size_bytes;
  requester_.operations().on_slices(slice.operation, 1, slice.size_bytes, Outcome::kDone);
  measure(peer, place, at, now_ns);
}

bool Lanes::poll_lane(FabricPeer& peer, std::size_t at, std::uint64_t now_ns) {
  std::array<Completion, kLaneDepth> completions;
  LaneRecord& place = peer.places[at];
  if (place.lane == nullptr) return false;
  const std::size_t count = place.lane->endpoint().poll(completions);
  // A completion may close the lane, which takes the other slices back.
  for (std::size_t i = 0; i < count && place.lane != nullptr; ++i) {
    on_completion(peer, at, completions[i], now_ns);
  }
  return count > 0;
}

void Lanes::activate(FabricPeer& peer) {
  if (std::exchange(peer.active, true)) return;
  active_.push_back(peer.id);
}

bool Lanes::poll(std::uint64_t now_ns) {
  bool any = false;
  std::erase_if(active_, [&](PeerId id) {
    one_sided::OneSidedPeer* const asked = requester_.peers().find(id);
    if (asked == nullptr) return true;
    FabricPeer* const peer = &of(*asked);
    peer->active = false;
    for (std::size_t at = 0; at < peer->places.size(); ++at) {
      const LaneRecord& place = peer->places[at];
      if (place.lane == nullptr || (place.lane->posted() == 0 && !place.full)) continue;
      any = poll_lane(*peer, at, now_ns) || any;
      peer->active = peer->active || (place.lane != nullptr && place.lane->posted() > 0);
    }
    return !peer->active;
  });
  return any;
}

bool Lanes::may_sleep() {
  return std::ranges::all_of(active_, [&](PeerId id) {
    one_sided::OneSidedPeer* peer = requester_.peers().find(id);
    return peer == nullptr || std::ranges::all_of(of(*peer).places, [](const LaneRecord& place) {
             if (place.lane == nullptr || place.lane->posted() == 0) return true;
             Endpoint& endpoint = place.lane->endpoint();
             return endpoint.wait_fd() >= 0 && endpoint.may_sleep(place.lane->domain().fabric());
           });
  });
}

// Bytes that arrive without a pause measure the bandwidth of the rail.
void Lanes::measure(FabricPeer& peer, LaneRecord& place, std::size_t rail, std::uint64_t now_ns) {
  if (place.measured_bytes < kMinSliceBytes || now_ns <= place.measured_ns) return;
  peer.rails.on_measured(rail, place.measured_bytes, now_ns - place.measured_ns);
  place.measured_bytes = 0;
  place.measured_ns = now_ns;
}

void Lanes::on_full(FabricPeer& peer, LaneRecord& place) {
  place.full = is_full_ = true;
  activate(peer);
}

void Lanes::try_again(std::uint64_t now_ns) {
  is_full_ = false;
  requester_.peers().each([&](one_sided::OneSidedPeer& asked) {
    FabricPeer& peer = of(asked);
    for (std::size_t at = 0; at < peer.places.size(); ++at) {
      LaneRecord& place = peer.places[at];
      if (!std::exchange(place.full, false)) continue;
      requester_.pump_later(peer);
      if (place.state == LaneState::kLooking) look(peer, at, now_ns);
    }
  });
}

// ---- Domains of this host ---------------------------------------------------------------------

void Lanes::on_closing(std::size_t slot, std::uint64_t now_ns) {
  requester_.peers().each([&](one_sided::OneSidedPeer& peer) {
    for (std::size_t at = 0; at < of(peer).places.size(); ++at) {
      if (of(peer).places[at].ours == slot)
        fail(of(peer), at, "the local domain is closed", now_ns);
    }
  });
}

void Lanes::on_domains_changed(std::uint64_t now_ns) {
  requester_.peers().each([&](one_sided::OneSidedPeer& peer) { find_places(of(peer), now_ns); });
  requester_.look_soon();
}

// ---- Reports ----------------------------------------------------------------------------------

void Lanes::report(std::vector<RailReport>& reports) const {
  requester_.peers().each([&](one_sided::OneSidedPeer& asked) {
    const FabricPeer& peer = of(asked);
    for (std::size_t at = 0; at < peer.places.size(); ++at) {
      const LaneRecord& place = peer.places[at];
      RailReport report;
      report.peer = peer.id;
      report.transport = "fabric";
      report.name = domains_[place.ours]->name() + " to their " +
                    std::string(peer.remote.at(place.theirs).name.data());
      report.status = peer.rails.status(at);
      report.note = peer.dormant ? "closed while the peer is idle" : place.why;
      reports.push_back(std::move(report));
    }
  });
}

RailCounts Lanes::count_rails() const {
  RailCounts counts{.transport = "fabric"};
  requester_.peers().each([&](one_sided::OneSidedPeer& asked) {
    const FabricPeer& peer = of(asked);
    const std::size_t up = peer.rails.up_count();
    counts.up += up;
    (peer.dormant ? counts.idle : counts.down) += peer.places.size() - up;
  });
  return counts;
}

std::string Lanes::describe(const FabricPeer& peer) const {
  static constexpr const char* kStates[] = {"down", "looking", "up"};
  std::string text;
  for (const LaneRecord& place : peer.places) {
    text += domains_[place.ours]->name() + " to their " + std::to_string(place.theirs) + ": ";
    text += kStates[static_cast<std::size_t>(place.state)];
    if (!place.why.empty()) text += " (" + place.why + ")";
    text += "\n";
  }
  return text;
}

}  // namespace mc::transport::fabric
