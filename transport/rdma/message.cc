// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/message.h"

#include <algorithm>
#include <cstring>

namespace mc::transport::rdma {

namespace {

std::vector<std::byte> start(MessageKind kind, std::size_t body_bytes) {
  return start_control_message(kMessageMagic, static_cast<std::uint16_t>(kind), body_bytes);
}

template <typename Body>
std::vector<std::byte> encode_one(MessageKind kind, const Body& body) {
  std::vector<std::byte> bytes = start(kind, sizeof body);
  append_value(bytes, body);
  return bytes;
}

bool is_layer(std::uint8_t layer) {
  return layer == static_cast<std::uint8_t>(LinkLayer::kInfiniBand) ||
         layer == static_cast<std::uint8_t>(LinkLayer::kEthernet);
}
bool is_mtu(std::uint8_t mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096; }
bool is_number(std::uint32_t number) { return number <= kPacketNumberMask; }
bool is_depth(std::uint8_t depth) { return depth >= 1 && depth <= kMaxReadDepth; }

bool is_good(const OpenBody& open) {
  return open.lane < kMaxPairs && open.serial != 0 && open.device_epoch != 0 &&
         open.device < kMaxDevices && open.reserved == 0 && is_layer(open.layer) &&
         is_mtu(open.mtu) && is_number(open.pair_number) && is_number(open.packet_number) &&
         is_depth(open.read_depth);
}

bool is_good(const OpenedBody& opened) {
  if (opened.lane >= kMaxPairs || opened.serial == 0 || opened.outcome > kLastOutcome ||
      std::ranges::any_of(opened.reserved, [](std::uint8_t byte) { return byte != 0; })) {
    return false;
  }
  return opened.outcome != 0 || (is_mtu(opened.mtu) && is_depth(opened.read_depth) &&
                                 is_number(opened.pair_number) && is_number(opened.packet_number));
}

bool take_devices(std::span<const std::byte> bytes, std::vector<DeviceEntry>& devices) {
  if (bytes.size() % sizeof(DeviceEntry) != 0 || bytes.size() / sizeof(DeviceEntry) > kMaxDevices) {
    return false;
  }
  std::uint32_t seen = 0;
  devices.resize(bytes.size() / sizeof(DeviceEntry));
  if (!devices.empty()) std::memcpy(devices.data(), bytes.data(), bytes.size());
  for (const DeviceEntry& device : devices) {
    if (device.slot >= kMaxDevices || (seen & 1u << device.slot) != 0 || !is_layer(device.layer) ||
        !is_mtu(device.mtu) ||
        std::ranges::any_of(device.reserved, [](std::uint8_t byte) { return byte != 0; })) {
      return false;
    }
    seen |= 1u << device.slot;
  }
  return true;
}

}  // namespace

std::vector<std::byte> encode_empty(MessageKind kind) { return start(kind, 0); }
std::vector<std::byte> encode(const HelloBody& body) {
  return encode_one(MessageKind::kHello, body);
}
std::vector<std::byte> encode(const OpenBody& body) { return encode_one(MessageKind::kOpen, body); }
std::vector<std::byte> encode(const OpenedBody& body) {
  return encode_one(MessageKind::kOpened, body);
}
std::vector<std::byte> encode(MessageKind kind, const LaneBody& body) {
  return encode_one(kind, body);
}
std::vector<std::byte> encode(const RegionBody& body) {
  return encode_one(MessageKind::kDescribe, body);
}

std::vector<std::byte> encode(std::span<const DeviceEntry> devices) {
  std::vector<std::byte> bytes = start(MessageKind::kDevices, devices.size_bytes());
  for (const DeviceEntry& device : devices) append_value(bytes, device);
  return bytes;
}

std::vector<std::byte> encode(const RegionBody& body, std::span<const std::byte> text) {
  std::vector<std::byte> bytes = start(MessageKind::kDescription, sizeof body + text.size());
  append_value(bytes, body);
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

std::optional<Message> decode_body(const ControlHeader& header, std::span<const std::byte> bytes,
                                   bool from_asker) {
  if (bytes.size() != header.body_bytes) return std::nullopt;
  Message message;
  message.kind = static_cast<MessageKind>(header.kind);
  const bool is_question = header.kind < static_cast<std::uint16_t>(MessageKind::kDevices);
  if (is_question != from_asker) return std::nullopt;
  bool good = false;
  switch (message.kind) {
    case MessageKind::kHello:
      good = take_whole(bytes, message.hello) && message.hello.reserved == 0 &&
             message.hello.token != 0;
      break;
    case MessageKind::kOpen:
      good = take_whole(bytes, message.open) && is_good(message.open);
      break;
    case MessageKind::kOpened:
      good = take_whole(bytes, message.opened) && is_good(message.opened);
      break;
    case MessageKind::kClose:
    case MessageKind::kClosed:
      good = take_whole(bytes, message.lane) && message.lane.lane < kMaxPairs &&
             message.lane.serial != 0;
      break;
    case MessageKind::kDescribe:
      good = take_whole(bytes, message.region);
      break;
    case MessageKind::kDescription:
      good = bytes.size() >= sizeof message.region &&
             take_whole(bytes.first(sizeof message.region), message.region);
      if (good) message.text = bytes.subspan(sizeof message.region);
      break;
    case MessageKind::kDevices:
      good = take_devices(bytes, message.devices);
      break;
    case MessageKind::kPing:
    case MessageKind::kPong:
      good = bytes.empty();
      break;
  }
  if (!good) return std::nullopt;
  return message;
}

}  // namespace mc::transport::rdma
