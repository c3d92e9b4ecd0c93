// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/responder.h"

#include <algorithm>

#include "transport/tcp/socket.h"

namespace mc::transport::rdma {

Responder::~Responder() {
  for (auto& [link, owned] : links_) edges_.forget(link->link.socket(), link);
}

Status Responder::attach(Link link) {
  if (links_.size() >= kMaxServedLinks) {
    return {MC_BUSY, "the limit of served peers is reached; the peer tries again"};
  }
  Status status = tcp::prepare_lane(link.socket.get());
  if (!status.ok()) return status;
  auto served = std::make_unique<ServedLink>(*this, next_link_++, std::move(link));
  ServedLink* raw = served.get();
  status = edges_.watch(raw->link.socket(), raw, Edges::Kind::kLink);
  if (!status.ok()) return status;
  links_.emplace(raw, std::move(served));
  return {};
}

void Responder::ServedLink::on_edge(std::uint64_t) {
  const bool good = link.work([this](const ControlHeader& header, auto body) {
    const auto message = decode_body(header, body, true);
    return message && owner_.take(*this, *message);
  });
  if (!good) owner_.close_link(*this);
}

bool Responder::take(ServedLink& link, const Message& message) {
  if ((link.token == 0) != (message.kind == MessageKind::kHello)) return false;
  switch (message.kind) {
    case MessageKind::kHello:
      return greet(link, message.hello);
    case MessageKind::kOpen:
      return open(link, message.open);
    case MessageKind::kClose: {
      const auto at = link.pairs.find(message.lane.lane);
      if (at != link.pairs.end() && at->second.serial <= message.lane.serial) {
        close_pair(link, message.lane.lane);
      }
      const auto opening = link.opening.find(message.lane.lane);
      if (opening != link.opening.end() && opening->second <= message.lane.serial) {
        link.opening.erase(opening);
      }
      return link.link.send(encode(MessageKind::kClosed, message.lane));
    }
    case MessageKind::kDescribe: {
      const auto text = regions_.describe(message.region.region);
      return link.link.send(encode(message.region, text ? *text : std::vector<std::byte>()));
    }
    case MessageKind::kPing:
      return link.link.send(encode_empty(MessageKind::kPong));
    default:
      return false;
  }
}

bool Responder::greet(ServedLink& link, const HelloBody& hello) {
  if (hello.version != kLinkVersion) return false;
  // No request of an earlier link of this peer lands any more once the peer has the answer.
  std::vector<ServedLink*> earlier;
  for (const auto& [other, owned] : links_) {
    if (other != &link && other->node == link.node && other->token == hello.token) {
      earlier.push_back(other);
    }
  }
  for (ServedLink* other : earlier) close_link(*other);
  link.token = hello.token;
  return link.link.send(encode(entries()));
}

std::vector<DeviceEntry> Responder::entries() const {
  std::vector<DeviceEntry> list;
  for (std::size_t slot = 0; slot < kMaxDevices; ++slot) {
    if (devices_[slot]) known_[slot] = devices_[slot]->address();
    if (!known_[slot]) continue;
    DeviceEntry entry{};
    entry.epoch = devices_[slot] ? devices_[slot]->epoch() : 0;
    entry.gid = known_[slot]->gid;
    entry.lid = known_[slot]->lid;
    entry.slot = static_cast<std::uint8_t>(slot);
    entry.layer = static_cast<std::uint8_t>(known_[slot]->layer);
    entry.mtu = known_[slot]->mtu;
    list.push_back(entry);
  }
  return list;
}

// False: the link has failed.
bool Responder::open(ServedLink& link, const OpenBody& open) {
  OpenedBody answer{};
  answer.lane = open.lane;
  answer.serial = open.serial;
  const auto refuse = [&](Outcome outcome) {
    answer.outcome = static_cast<std::uint8_t>(outcome);
    return link.link.send(encode(answer));
  };
  Device* device = devices_[open.device].get();
  if (device == nullptr || device->epoch() != open.device_epoch) return refuse(Outcome::kStale);
  RemoteEnd asker;
  asker.address.gid = open.gid;
  asker.address.lid = open.lid;
  asker.address.layer = static_cast<LinkLayer>(open.layer);
  asker.pair_number = open.pair_number;
  asker.packet_number = open.packet_number;
  asker.mtu = std::min(open.mtu, device->address().mtu);
  asker.read_depth = std::min(open.read_depth, device->reads_in());
  if (!can_reach(device->address(), asker.address)) return refuse(Outcome::kUnsupported);
  close_pair(link, open.lane);
  if (senders_.size() + opening_count_ >= kMaxServedPairs) return refuse(Outcome::kBusy);
  auto pair = QueuePair::create_serving(*device, options_);
  if (!pair) return refuse(Outcome::kBusy);
  answer.gid = device->address().gid;
  answer.lid = device->address().lid;
  answer.mtu = asker.mtu;
  answer.read_depth = asker.read_depth;
  answer.pair_number = pair->number();
  answer.packet_number = next_packet_number_++ & kPacketNumberMask;
  link.opening[open.lane] = open.serial;
  ++opening_count_;
  opener_.open(
      std::move(*pair), [asker](QueuePair& serving) { return serving.answer_to(asker); },
      [this, id = link.id, answer](QueuePair ready, const Status& status) {
        on_ready(id, answer, std::move(ready), status);
      });
  return !link.link.failed();
}

void Responder::on_ready(std::uint64_t link_id, OpenedBody answer, QueuePair pair,
                         const Status& status) {
  --opening_count_;
  const auto at =
      std::ranges::find_if(links_, [&](const auto& entry) { return entry.first->id == link_id; });
  if (at == links_.end()) return;
  ServedLink& link = *at->first;
  const auto opening = link.opening.find(answer.lane);
  // The lane was closed, or opened anew, meanwhile.
  if (opening == link.opening.end() || opening->second != answer.serial) return;
  link.opening.erase(opening);
  if (status.ok()) {
    senders_[{&pair.device(), pair.number()}] = link.node;
    link.pairs.emplace(answer.lane, Served{std::move(pair), answer.serial});
  } else {
    answer.outcome = static_cast<std::uint8_t>(Outcome::kUnsupported);
  }
  // If the send fails, the next edge ends the link.
  static_cast<void>(link.link.send(encode(answer)));
}

void Responder::close_pair(ServedLink& link, std::uint32_t lane) {
  const auto at = link.pairs.find(lane);
  if (at == link.pairs.end()) return;
  // No notification arrives after this call. Earlier notifications are taken while the sender is
  // known.
  at->second.pair.stop();
  drain_(at->second.pair.device());
  senders_.erase({&at->second.pair.device(), at->second.pair.number()});
  link.pairs.erase(at);
}

void Responder::close_link(ServedLink& link) {
  while (!link.pairs.empty()) close_pair(link, link.pairs.begin()->first);
  edges_.forget(link.link.socket(), &link);
  links_.erase(&link);
}

void Responder::announce() {
  const auto message = encode(entries());
  // If the send fails, the next edge ends the link.
  for (auto& [link, owned] : links_) {
    if (link->token != 0) static_cast<void>(link->link.send(message));
  }
}

void Responder::on_closing(const Device& device) {
  for (auto& [link, owned] : links_) {
    std::vector<std::uint32_t> lanes;
    for (auto& [lane, served] : link->pairs) {
      if (&served.pair.device() == &device) lanes.push_back(lane);
    }
    for (const std::uint32_t lane : lanes) close_pair(*link, lane);
  }
}

}  // namespace mc::transport::rdma
