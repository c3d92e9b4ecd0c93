// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/message.h"

#include <algorithm>
#include <cstring>

namespace mc::transport::fabric {

namespace {

std::vector<std::byte> start(MessageKind kind, std::size_t body_bytes) {
  return start_control_message(kMessageMagic, static_cast<std::uint16_t>(kind), body_bytes);
}

template <typename Body>
std::vector<std::byte> encode_one(MessageKind kind, const Body& body,
                                  std::span<const std::byte> tail = {}) {
  std::vector<std::byte> bytes = start(kind, sizeof body + tail.size());
  append_value(bytes, body);
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return bytes;
}

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

bool is_good(const DomainEntry& domain) {
  return domain.epoch != 0 && domain.slot < kMaxDomains && domain.reserved == 0 &&
         domain.address_bytes > 0 && domain.address_bytes <= kMaxAddressBytes &&
         domain.name.back() == 0 &&
         is_zero(std::span(domain.address).subspan(domain.address_bytes));
}

bool take_domains(std::span<const std::byte> bytes, std::vector<DomainEntry>& domains) {
  if (bytes.size() % sizeof(DomainEntry) != 0 || bytes.size() / sizeof(DomainEntry) > kMaxDomains) {
    return false;
  }
  std::uint64_t seen = 0;
  domains.resize(bytes.size() / sizeof(DomainEntry));
  if (!domains.empty()) std::memcpy(domains.data(), bytes.data(), bytes.size());
  for (const DomainEntry& domain : domains) {
    if (!is_good(domain) || (seen & std::uint64_t{1} << domain.slot) != 0) return false;
    seen |= std::uint64_t{1} << domain.slot;
  }
  return true;
}

}  // namespace

std::vector<std::byte> encode_empty(MessageKind kind) { return start(kind, 0); }
std::vector<std::byte> encode(const HelloBody& body) {
  return encode_one(MessageKind::kHello, body);
}
std::vector<std::byte> encode(const RegionBody& body) {
  return encode_one(MessageKind::kDescribe, body);
}
std::vector<std::byte> encode(const RegionBody& body, std::span<const std::byte> text) {
  return encode_one(MessageKind::kDescription, body, text);
}
std::vector<std::byte> encode(const NotifyBody& body, std::span<const std::byte> payload) {
  return encode_one(MessageKind::kNotify, body, payload);
}
std::vector<std::byte> encode(const NotifiedBody& body) {
  return encode_one(MessageKind::kNotified, body);
}

std::vector<std::byte> encode(const MoveBody& body) { return encode_one(MessageKind::kMove, body); }

std::vector<std::byte> encode(std::span<const DomainEntry> domains) {
  std::vector<std::byte> bytes = start(MessageKind::kDomains, domains.size_bytes());
  for (const DomainEntry& domain : domains) append_value(bytes, domain);
  return bytes;
}

std::optional<Message> decode_body(const ControlHeader& header, std::span<const std::byte> bytes,
                                   bool from_asker) {
  if (bytes.size() != header.body_bytes) return std::nullopt;
  Message message;
  message.kind = static_cast<MessageKind>(header.kind);
  const bool is_question = header.kind < static_cast<std::uint16_t>(MessageKind::kDomains);
  if (is_question != from_asker) return std::nullopt;
  bool good = false;
  switch (message.kind) {
    case MessageKind::kHello:
      good = take_whole(bytes, message.hello) && message.hello.reserved == 0;
      break;
    case MessageKind::kDescribe:
      good = take_whole(bytes, message.region);
      break;
    case MessageKind::kDescription:
      good = take_front(bytes, message.region) && bytes.size() <= kMaxDescriptorBytes;
      message.text = bytes;
      break;
    case MessageKind::kNotify:
      good = take_front(bytes, message.notify) && !bytes.empty() &&
             bytes.size() <= kMaxOneSidedNotificationBytes;
      message.text = bytes;
      break;
    case MessageKind::kNotified:
      good = take_whole(bytes, message.notified) && message.notified.outcome <= kLastOutcome &&
             is_zero(message.notified.reserved);
      break;
    case MessageKind::kMove:
      good = take_whole(bytes, message.move) && message.move.epoch != 0 &&
             message.move.slot < kMaxDomains && message.move.reserved == 0;
      break;
    case MessageKind::kDomains:
      good = take_domains(bytes, message.domains);
      break;
    case MessageKind::kPing:
    case MessageKind::kAttend:
    case MessageKind::kPong:
      good = bytes.empty();
      break;
  }
  if (!good) return std::nullopt;
  return message;
}

}  // namespace mc::transport::fabric
