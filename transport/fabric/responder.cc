// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/responder.h"

#include "transport/tcp/socket.h"

namespace mc::transport::fabric {

Responder::~Responder() {
  for (auto& [link, owned] : links_) edges_.forget(link->link.socket(), link);
}

Status Responder::attach(Link link) {
  if (links_.size() >= kMaxServedLinks) {
    return {MC_BUSY, "the limit of served peers is reached; the peer tries again"};
  }
  Status status = tcp::prepare_lane(link.socket.get());
  if (!status.ok()) return status;
  auto served = std::make_unique<ServedLink>(*this, std::move(link));
  ServedLink* raw = served.get();
  status = edges_.watch(raw->link.socket(), raw, Edges::Kind::kLink);
  if (!status.ok()) return status;
  links_.emplace(raw, std::move(served));
  return {};
}

void Responder::ServedLink::on_edge(std::uint64_t now_ns) {
  const bool good = link.work([&](const ControlHeader& header, auto body) {
    const auto message = decode_body(header, body, true);
    return message && owner_.take(*this, *message, now_ns);
  });
  if (good) return;
  owner_.edges_.forget(link.socket(), this);
  owner_.links_.erase(this);
}

bool Responder::take(ServedLink& link, const Message& message, std::uint64_t now_ns) {
  if (link.greeted == (message.kind == MessageKind::kHello)) return false;
  switch (message.kind) {
    case MessageKind::kHello:
      if (message.hello.version != kLinkVersion) return false;
      link.greeted = true;
      return link.link.send(encode(entries()));
    case MessageKind::kDescribe: {
      const auto text = regions_.describe(message.region.region);
      return link.link.send(encode(message.region, text ? *text : std::vector<std::byte>()));
    }
    case MessageKind::kNotify:
      return take_notification(link, message);
    case MessageKind::kAttend:
      attentive_until_ns_ = now_ns + kAttentionNs;
      return true;
    case MessageKind::kMove:
      moves_[message.move.slot] = message.move.epoch;
      return true;
    case MessageKind::kPing:
      return link.link.send(encode_empty(MessageKind::kPong));
    default:
      return false;
  }
}

bool Responder::take_notification(ServedLink& link, const Message& message) {
  NotifiedBody answer{};
  answer.number = message.notify.number;
  if (arrived_.is_full()) {
    answer.outcome = static_cast<std::uint8_t>(Outcome::kBusy);
  } else {
    arrived_.add(link.node, {message.text.begin(), message.text.end()});
  }
  return link.link.send(encode(answer));
}

std::vector<DomainEntry> Responder::entries() const {
  std::vector<DomainEntry> list;
  for (std::size_t slot = 0; slot < domains_.size(); ++slot) {
    if (!domains_[slot]) continue;
    list.push_back(domains_[slot]->entry(slot));
    // A domain whose address is longer than a message carries is left out.
    if (list.back().address_bytes == 0) list.pop_back();
  }
  return list;
}

void Responder::announce() {
  const auto message = encode(entries());
  // If the send fails, the next edge ends the link.
  for (auto& [link, owned] : links_) {
    if (link->greeted) static_cast<void>(link->link.send(message));
  }
}

}  // namespace mc::transport::fabric
