// SPDX-License-Identifier: Apache-2.0
//
// The part of Requester that looks after lanes: opened, looked at, watched, closed.
#include <algorithm>

#include "transport/fabric/requester.h"
#include "transport/rails/rail_pairs.h"

namespace mc::transport::fabric {

// Lanes for the domains that both sides have now. Those whose other end is another one are closed.
void Requester::find_places(Peer& peer, std::uint64_t now_ns) {
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
    fail_lanes(peer, "this host or the peer has other domains now", now_ns);
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
      fail_lane(peer, at, "the peer serves elsewhere now", now_ns);
    }
  }
}

void Requester::open_lane(Peer& peer, std::size_t at, std::uint64_t now_ns) {
  Place& place = peer.places[at];
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
  place.events = std::make_unique<LaneEvents>(*this, peer.id, at);
  if (const int fd = (*lane)->endpoint().wait_fd(); fd >= 0) {
    const Status status = edges_.watch(fd, place.events.get(), Edges::Kind::kReadable);
    if (!status.ok()) return cannot(std::string(status.text()));
  }
  place.lane = std::move(*lane);
  place.state = LaneState::kLooking;
  place.since_ns = now_ns;
  place.remote_epoch = remote.epoch;
  place.failures = 0;
  look(peer, at, now_ns);
}

void Requester::attend(Peer& peer, const Domain& domain, std::uint64_t now_ns) {
  if (now_ns < peer.attend_again_ns || !domain.wants_attention() || !peer.link.introduced()) return;
  peer.attend_again_ns = now_ns + kAttendAgainNs;
  static_cast<void>(peer.link->send(encode_empty(MessageKind::kAttend)));
}

void Requester::look(Peer& peer, std::size_t at, std::uint64_t now_ns) {
  Place& place = peer.places[at];
  attend(peer, place.lane->domain(), now_ns);
  const Lane::Posted posted = place.lane->look(peer.remote.at(place.theirs));
  activate(peer);
  // As while it connects.
  if (posted == Lane::Posted::kLater) place.full = full_ = true;
  if (posted == Lane::Posted::kFailed) {
    fail_lane(peer, at, "the provider takes no request", now_ns);
  }
}

void Requester::on_looked(Peer& peer, std::size_t at, bool came, std::uint64_t now_ns) {
  Place& place = peer.places[at];
  if (!came || place.lane->beacon() != place.remote_epoch) {
    return fail_lane(peer, at,
                     came
                         ? "somebody else answers at the peer's address"
                         : "the peer's memory cannot be reached; is its network open to this host?",
                     now_ns);
  }
  place.state = LaneState::kUp;
  place.why.clear();
  place.measured_ns = now_ns;
  place.measured_bytes = 0;
  peer.rails.on_up(at);
  next_look_ns_ = 0;
}

void Requester::fail_lane(Peer& peer, std::size_t at, std::string why, std::uint64_t now_ns) {
  Place& place = peer.places[at];
  if (place.lane == nullptr) return;
  const std::unique_ptr<Lane> lane = std::move(place.lane);
  const std::vector<Slice> slices = lane->outstanding();
  edges_.forget(lane->endpoint().wait_fd(), place.events.get());
  lane->close();
  if (place.state == LaneState::kUp) ++counters_.lanes_failed;
  place.state = LaneState::kDown;
  place.why = std::move(why);
  place.full = false;
  peer.rails.on_failed(at, now_ns);
  wake_waiting_for_credit();
  for (const Slice& slice : slices) take_back(peer, place, slice);
  pump_later(peer);
  next_look_ns_ = 0;
}

void Requester::fail_lanes(Peer& peer, const std::string& why, std::uint64_t now_ns) {
  for (std::size_t at = 0; at < peer.places.size(); ++at) fail_lane(peer, at, why, now_ns);
}

void Requester::on_closing(std::size_t slot, std::uint64_t now_ns) {
  for (auto& [id, peer] : peers_) {
    for (std::size_t at = 0; at < peer->places.size(); ++at) {
      if (peer->places[at].ours == slot) fail_lane(*peer, at, "our domain is closed", now_ns);
    }
  }
}

void Requester::on_domains_changed(std::uint64_t now_ns) {
  for (auto& [id, peer] : peers_) find_places(*peer, now_ns);
  next_look_ns_ = 0;
}

void Requester::look_after_lanes(Peer& peer, std::uint64_t now_ns, std::uint64_t away_ns) {
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    Place& place = peer.places[at];
    if (place.lane == nullptr) continue;
    place.since_ns += away_ns;
    const bool waits = place.state == LaneState::kLooking || place.lane->posted() > 0;
    if (waits && now_ns >= place.since_ns + kLaneDeadNs) {
      fail_lane(peer, at, "nothing came back for too long", now_ns);
    }
  }
  if (peer.dormant || !peer.link.introduced()) return;
  while (const auto at = peer.rails.probe(now_ns)) {
    if (peer.places[*at].lane == nullptr) open_lane(peer, *at, now_ns);
  }
}

void Requester::report_rails(std::vector<RailReport>& reports) const {
  for (const auto& [id, peer] : peers_) {
    for (std::size_t at = 0; at < peer->places.size(); ++at) {
      const Place& place = peer->places[at];
      RailReport report;
      report.peer = id;
      report.transport = "fabric";
      report.name = domains_[place.ours]->name() + " to their " +
                    std::string(peer->remote.at(place.theirs).name.data());
      report.status = peer->rails.status(at);
      report.note = place.why;
      if (peer->dormant) report.note = "closed while there is nothing for it";
      reports.push_back(std::move(report));
    }
  }
}

std::string Requester::describe_rails(PeerId id) const {
  static constexpr const char* kStates[] = {"down", "looking", "up"};
  std::string text;
  const Peer* peer = find(id);
  if (peer == nullptr) return text;
  for (const Place& place : peer->places) {
    text += domains_[place.ours]->name() + " to their " + std::to_string(place.theirs) + ": ";
    text += kStates[static_cast<std::size_t>(place.state)];
    if (!place.why.empty()) text += " (" + place.why + ")";
    text += "\n";
  }
  return text;
}

}  // namespace mc::transport::fabric
