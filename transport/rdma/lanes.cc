// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/lanes.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace mc::transport::rdma {

namespace {

// A lane that owes a completion for so long is left, if another lane is up.
constexpr std::uint64_t kLaneSilentNs = 300'000'000;

// The outcome that a failed completion means for the request. kDone: only the path failed.
Outcome outcome_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return Outcome::kStale;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
      return Outcome::kInvalid;
    default:
      return Outcome::kDone;
  }
}
}  // namespace

void Lanes::on_completion(const ibv_wc& completion, std::uint64_t now_ns) {
  const std::uint32_t index = Lane::index_of(completion.wr_id);
  if (index >= lanes_.size() || lanes_[index].peer == nullptr) return;
  RdmaPeer& peer = *lanes_[index].peer;
  const std::size_t at = lanes_[index].place;
  LaneRecord& place = peer.places[at];
  Lane& lane = *place.lane;
  if (!lane.is_mine(completion.wr_id)) return;
  if (completion.status != IBV_WC_SUCCESS) {
    fail(peer, at, "a request failed: status " + std::to_string(completion.status), now_ns,
         &completion);
    return;
  }
  const std::uint32_t count = lane.done_by(completion.wr_id);
  for (std::uint32_t i = 0; i < count;) {
    // The slices of the same operation are handled together.
    const Slice& first = lane.at(i);
    const std::uint32_t begin = i;
    std::uint64_t bytes = 0;
    for (; i < count && lane.at(i).operation == first.operation; ++i) {
      bytes += lane.at(i).size_bytes;
    }
    if (first.operation == kNoOperation) continue;
    place.rails->on_done(place.rail, {bytes, first.sent_ns, first.priority}, i - begin, now_ns);
    requester_.operations().on_slices(first.operation, i - begin, bytes, Outcome::kDone);
  }
  lane.pop(count);
  requester_.wake_waiting_for_credit();
  place.since_ns = now_ns;
  if (place.state == LaneState::kProbing) {
    place.state = LaneState::kUp;
    place.why.clear();
    place.rails->on_up(place.rail);
    requester_.welcome_back(peer);
  }
  requester_.pump_later(peer);
}

void Lanes::open(RdmaPeer& peer, std::size_t at, std::uint64_t now_ns) {
  LaneRecord& place = peer.places[at];
  const auto cannot = [&](std::string why) {
    place.why = std::move(why);
    place.rails->on_failed(place.rail, now_ns);
  };
  Device* device = devices_[place.path.ours].get();
  if (device == nullptr) return cannot("the local device is gone");
  if (peer.epochs[place.path.theirs] == 0) return cannot("the peer's device is gone");
  auto pair = QueuePair::create_asking(*device, options_);
  if (!pair) return cannot(std::string(pair.error().text()));
  if (free_lanes_.empty()) {
    free_lanes_.push_back(static_cast<std::uint32_t>(lanes_.size()));
    lanes_.emplace_back();
  }
  const std::uint32_t index = free_lanes_.back();
  free_lanes_.pop_back();
  lanes_[index].peer = &peer;
  lanes_[index].place = static_cast<std::uint32_t>(at);
  place.lane = std::make_unique<Lane>(std::move(*pair), index, ++lanes_[index].generation);
  place.state = LaneState::kOpening;
  place.since_ns = now_ns;
  place.serial = next_serial_++;
  place.packet_number = (place.serial * 0x9e3779b1u) & kPacketNumberMask;
  place.remote_epoch = peer.epochs[place.path.theirs];
  OpenBody open{};
  open.lane = static_cast<std::uint32_t>(at);
  open.serial = place.serial;
  open.device_epoch = place.remote_epoch;
  open.gid = device->address().gid;
  open.pair_number = place.lane->pair().number();
  open.packet_number = place.packet_number;
  open.lid = device->address().lid;
  open.device = place.path.theirs;
  open.layer = static_cast<std::uint8_t>(device->address().layer);
  open.mtu = device->address().mtu;
  open.read_depth = device->reads_out();
  static_cast<void>(peer.link->send(encode(open)));
}

void Lanes::on_devices(RdmaPeer& peer, const std::vector<DeviceEntry>& devices,
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
    const LaneRecord& place = peer.places[at];
    if (place.lane != nullptr && place.remote_epoch != epochs[place.path.theirs]) {
      fail(peer, at, "the peer's device is gone", now_ns);
    }
  }
  if (!peer.link.introduced()) {
    // The peer has cut the lanes of earlier links.
    peer.link.introduce();
    release_held(peer, std::nullopt);
  }
  requester_.pump_later(peer);
  requester_.look_soon();
}

void Lanes::on_opened(RdmaPeer& peer, const OpenedBody& opened, std::uint64_t now_ns) {
  if (opened.lane >= peer.places.size()) return;
  LaneRecord& place = peer.places[opened.lane];
  if (place.state != LaneState::kOpening || place.serial != opened.serial) return;
  if (opened.outcome != 0) {
    const auto outcome = static_cast<Outcome>(opened.outcome);
    return fail(peer, opened.lane,
                outcome == Outcome::kBusy ? "the peer is out of queue pairs"
                : outcome == Outcome::kUnsupported
                    ? "the peer's device cannot reach ours; are their GIDs of one kind?"
                    : "the peer's device changed meanwhile",
                now_ns);
  }
  RemoteEnd end;
  end.address = *peer.remote[place.path.theirs];
  end.address.gid = opened.gid;
  end.address.lid = opened.lid;
  end.pair_number = opened.pair_number;
  end.packet_number = opened.packet_number;
  const Device& device = place.lane->device();
  end.mtu = std::min(opened.mtu, device.address().mtu);
  end.read_depth = std::min(opened.read_depth, device.reads_out());
  if (!can_reach(device.address(), end.address)) {
    return fail(peer, opened.lane, "the peer's device has an address of another kind", now_ns);
  }
  place.state = LaneState::kReadying;
  place.since_ns = now_ns;
  opener_.open(
      place.lane->lend(),
      [end, number = place.packet_number](QueuePair& pair) { return pair.open_to(end, number); },
      [this, index = place.lane->index(), generation = place.lane->generation()](
          QueuePair pair, const Status& status) {
        on_ready(index, generation, std::move(pair), status);
      });
}

void Lanes::on_ready(std::uint32_t index, std::uint32_t generation, QueuePair pair,
                     const Status& status) {
  RdmaPeer* peer = lanes_[index].peer;
  if (peer == nullptr || (lanes_[index].generation & kPacketNumberMask) != generation) return;
  const std::size_t at = lanes_[index].place;
  LaneRecord& place = peer->places[at];
  place.lane->give_back(std::move(pair));
  if (!status.ok()) return fail(*peer, at, std::string(status.text()), requester_.now_ns());
  place.state = LaneState::kProbing;
  place.since_ns = requester_.now_ns();
  place.lane->add_probe();
  if (!place.lane->flush()) fail(*peer, at, "the device takes no request", requester_.now_ns());
}

void Lanes::fail(RdmaPeer& peer, std::size_t at, std::string why, std::uint64_t now_ns,
                 const ibv_wc* error) {
  LaneRecord& place = peer.places[at];
  if (place.lane == nullptr) return;
  const std::unique_ptr<Lane> lane = std::move(place.lane);
  const bool was_up = place.state == LaneState::kUp;
  lane->end();
  lanes_[lane->index()].peer = nullptr;
  free_lanes_.push_back(lane->index());
  place.state = LaneState::kDown;
  place.why = std::move(why);
  place.must_flush = false;
  if (was_up) {
    ++requester_.counters().lanes_failed;
    // usable_ns is not updated while a lane is up.
    peer.usable_ns = now_ns;
  }
  place.rails->on_failed(place.rail, now_ns);
  requester_.wake_waiting_for_credit();
  if (error != nullptr) {
    // Requests end in order: the requests before the failed request are done.
    for (std::uint32_t count = lane->done_by(error->wr_id); count > 0; --count) {
      const Slice slice = lane->at(0);
      const Outcome outcome = count > 1 ? Outcome::kDone : outcome_of(error->status);
      if (count == 1 && outcome == Outcome::kDone) break;
      lane->pop(1);
      requester_.operations().on_slices(slice.operation, 1, slice.size_bytes, outcome);
    }
  }
  for (std::uint32_t i = 0; i < lane->posted(); ++i) take_back(peer, place, lane->at(i));
  if (peer.link && !peer.link->failed()) {
    const LaneBody close{static_cast<std::uint32_t>(at), place.serial};
    static_cast<void>(peer.link->send(encode(MessageKind::kClose, close)));
  }
  if (was_up && peer.is_up()) suspect(peer, place.path, now_ns);
  requester_.pump_later(peer);
  requester_.look_soon();
}

void Lanes::suspect(RdmaPeer& peer, const Path& path, std::uint64_t now_ns) {
  for (LaneRecord& place : peer.places) {
    if (place.path != path || place.state != LaneState::kUp || place.lane->posted() > 0) continue;
    place.since_ns = now_ns;
    place.lane->add_probe();
    place.must_flush = true;
  }
}

void Lanes::take_back(RdmaPeer& peer, const LaneRecord& place, const Slice& slice) {
  OperationState* operation = requester_.operations().find(slice.operation);
  if (operation == nullptr) return;
  --operation->slices_out;
  if (operation->failure != Outcome::kDone) {
    if (operation->slices_out == 0) requester_.operations().end(*operation, operation->failure);
  } else if (operation->verb == Verb::kRead) {
    peer.resend.push(slice);
  } else if (operation->verb == Verb::kWrite) {
    peer.held.push_back({place.serial, slice});
  } else {
    // The notification may have arrived.
    requester_.operations().give_up(*operation, Outcome::kPeerLost);
  }
}

void Lanes::release_held(RdmaPeer& peer, std::optional<std::uint32_t> serial) {
  std::erase_if(peer.held, [&](const HeldWrite& held) {
    if (serial && held.serial != *serial) return false;
    peer.resend.push(held.slice);
    return true;
  });
  requester_.pump_later(peer);
}

void Lanes::find_paths(RdmaPeer& peer, std::uint64_t now_ns) {
  std::vector<Path> paths = pair_devices(own_addresses_, peer.remote);
  const std::size_t most = kMaxPairs / (1 + options_.bulk_pairs);
  if (paths.size() > most) paths.resize(most);
  if (paths != peer.paths) rebuild(peer, std::move(paths), now_ns);
}

void Lanes::rebuild(RdmaPeer& peer, std::vector<Path> paths, std::uint64_t now_ns) {
  fail_all(peer, "closed", now_ns);
  peer.paths = std::move(paths);
  peer.places.clear();
  peer.small = Rails(peer.paths.size());
  // Several queue pairs of a path share the line.
  peer.bulk = Rails(peer.paths.size() * options_.bulk_pairs, 4,
                    options_.bulk_pairs == 1 ? Rails::Paths::kSeparate : Rails::Paths::kOne);
  for (std::uint32_t round = 0; round <= options_.bulk_pairs; ++round) {
    for (std::uint32_t i = 0; i < peer.paths.size(); ++i) {
      LaneRecord& place = peer.places.emplace_back();
      place.path = peer.paths[i];
      place.role = round == 0 ? LaneRole::kSmall : LaneRole::kBulk;
      place.rails = round == 0 ? &peer.small : &peer.bulk;
      place.rail = static_cast<std::uint32_t>(peer.places.size() - 1);
      if (round > 0) place.rail -= static_cast<std::uint32_t>(peer.paths.size());
      const Device* const device = devices_[place.path.ours].get();
      RailTraits traits;
      traits.local_nic = place.path.ours;
      if (device != nullptr && device->line_bytes_per_ns() > 0) {
        traits.bytes_per_ns = device->line_bytes_per_ns();
      }
      place.rails->set_traits(place.rail, traits);
    }
  }
  peer.bulk.share(&credits_);
  requester_.look_soon();
}

void Lanes::look_after(RdmaPeer& peer, std::uint64_t now_ns, bool was_away) {
  // Slices on the only lane have nowhere else to go, so that lane gets more time.
  const bool one = peer.small.up_count() + peer.bulk.up_count() <= 1;
  for (std::size_t at = 0; at < peer.places.size(); ++at) {
    LaneRecord& place = peer.places[at];
    if (place.lane == nullptr) continue;
    if (was_away) place.since_ns = now_ns;
    const bool waits = place.state != LaneState::kUp || place.lane->posted() > 0;
    const std::uint64_t limit_ns = place.state == LaneState::kOpening      ? kHandshakeTimeoutNs
                                   : place.state == LaneState::kUp && !one ? kLaneSilentNs
                                                                           : kLaneDeadNs;
    if (waits && now_ns >= place.since_ns + limit_ns) {
      fail(peer, at,
           place.state == LaneState::kOpening ? "the peer did not answer"
                                              : "no completion came for too long",
           now_ns);
    }
  }
  if (peer.dormant || !peer.link.introduced()) return;
  for (const std::size_t base : {std::size_t{0}, peer.paths.size()}) {
    Rails& rails = base == 0 ? peer.small : peer.bulk;
    while (const auto rail = rails.probe(now_ns)) {
      const std::size_t at = *rail + base;
      if (at < peer.places.size() && peer.places[at].lane == nullptr) open(peer, at, now_ns);
    }
    if (peer.paths.empty()) break;
  }
}

void Lanes::fail_all(RdmaPeer& peer, const std::string& why, std::uint64_t now_ns) {
  for (std::size_t at = 0; at < peer.places.size(); ++at) fail(peer, at, why, now_ns);
}

void Lanes::on_closing(const Device& device, std::uint64_t now_ns) {
  requester_.peers().each([&](one_sided::OneSidedPeer& asked) {
    RdmaPeer& peer = of(asked);
    for (std::size_t at = 0; at < peer.places.size(); ++at) {
      const Lane* lane = peer.places[at].lane.get();
      if (lane != nullptr && &lane->device() == &device) {
        fail(peer, at, "the local device or its port went down", now_ns);
      }
    }
  });
}

void Lanes::on_devices_changed() {
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
    if (!devices_[slot]) continue;
    own_addresses_[slot] = devices_[slot]->address();
    own_names_[slot] = devices_[slot]->name();
  }
  requester_.peers().each([&](one_sided::OneSidedPeer& peer) {
    if (peer.link.introduced()) find_paths(of(peer), requester_.last_look_ns());
  });
  requester_.look_soon();
}

void Lanes::report(std::vector<RailReport>& reports) const {
  requester_.peers().each([&](one_sided::OneSidedPeer& peer) {
    for (const LaneRecord& place : of(peer).places) {
      const Device* device = devices_[place.path.ours].get();
      RailReport report;
      report.peer = peer.id;
      report.transport = "rdma";
      report.name = (device != nullptr ? device->name() : std::to_string(place.path.ours)) + " " +
                    std::to_string(place.path.theirs) +
                    (place.role == LaneRole::kSmall ? " small" : " bulk");
      report.status = place.rails->status(place.rail);
      report.note = peer.dormant ? "closed while the peer is idle" : place.why;
      reports.push_back(std::move(report));
    }
  });
}

RailCounts Lanes::count_rails() const {
  RailCounts counts{.transport = "rdma"};
  requester_.peers().each([&](one_sided::OneSidedPeer& asked) {
    const RdmaPeer& peer = of(asked);
    const std::size_t up = peer.small.up_count() + peer.bulk.up_count();
    counts.up += up;
    (peer.dormant ? counts.idle : counts.down) += peer.places.size() - up;
  });
  return counts;
}

std::string Lanes::describe(const RdmaPeer& peer) const {
  static constexpr const char* kStates[] = {"down", "opening", "getting ready", "probing", "up"};
  std::string text;
  for (const LaneRecord& place : peer.places) {
    const Device* device = devices_[place.path.ours].get();
    text += device != nullptr ? device->name() : "device " + std::to_string(place.path.ours);
    text += " to their " + std::to_string(place.path.theirs);
    text += place.role == LaneRole::kSmall ? ", small: " : ", bulk: ";
    text += kStates[static_cast<std::size_t>(place.state)];
    if (!place.why.empty()) text += " (" + place.why + ")";
    text += "\n";
  }
  return text;
}

}  // namespace mc::transport::rdma
