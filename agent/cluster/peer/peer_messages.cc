// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/peer_messages.h"

#include <cstring>

namespace mc::agent {

namespace {

struct Head {
  std::uint8_t kind;
  std::uint8_t flags;
  std::uint16_t count;
  std::uint32_t request;
  std::uint64_t name_space;
};
static_assert(sizeof(Head) == 16);

struct RowHead {
  std::uint16_t number;
  std::uint8_t held;  // 0 no, 1 yes, 2 and its bytes come with it
  std::uint8_t extent_count;
  std::uint16_t key_bytes;
  std::uint8_t pin;
  std::uint8_t replicas;
  std::uint64_t version;
  std::uint64_t length;
  std::uint64_t generation;
  std::uint64_t checksum;
  std::uint64_t parent_hash;
};
static_assert(sizeof(RowHead) == 48);

struct HoldTail {
  std::uint32_t share_ms;
  std::uint32_t pin_ttl_s;
};

struct SealTail {
  std::uint64_t put;
  std::uint64_t version;
  std::uint64_t stripes;
  std::uint16_t parts;
  std::uint16_t part;
  std::uint16_t reserved[2];
};
static_assert(sizeof(SealTail) == 32);
static_assert(kMaxStripes == 64);

std::size_t padded(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <typename T>
  bool take(T& value) {
    if (left_.size() < sizeof value) return false;
    std::memcpy(static_cast<void*>(&value), left_.data(), sizeof value);
    left_ = left_.subspan(sizeof value);
    return true;
  }
  bool take_bytes(std::size_t count, std::span<const std::byte>& bytes) {
    if (left_.size() < padded(count)) return false;
    bytes = left_.first(count);
    left_ = left_.subspan(padded(count));
    return true;
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

void put(std::vector<std::byte>& out, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  out.insert(out.end(), at, at + bytes);
  out.resize(padded(out.size()));
}

bool decode_row(Reader& reader, PlaceRow& row) {
  RowHead head{};
  if (!reader.take(head)) return false;
  row.number = head.number;
  row.held = head.held != 0;
  if (head.held > 2 || head.number >= kMaxAskKeys) return false;
  if (!row.held) return head.extent_count == 0 && head.key_bytes == 0;
  const bool sound = head.length >= 1 && head.length <= MC_MAX_OBJECT_BYTES &&
                     head.extent_count >= 1 && head.extent_count <= MC_MAX_EXTENTS &&
                     head.key_bytes <= MC_MAX_KEY_BYTES && head.version != 0 && head.pin <= 2 &&
                     head.replicas >= 1 && head.replicas <= 8;
  if (!sound) return false;
  row.version = head.version;
  row.length = head.length;
  row.generation = head.generation;
  row.checksum = head.checksum;
  row.parent_hash = head.parent_hash;
  row.pin = head.pin;
  row.replicas = head.replicas;
  std::uint64_t sum = 0;
  for (unsigned i = 0; i < head.extent_count; ++i) {
    shm::ExtentRecord extent{};
    if (!reader.take(extent)) return false;
    if (extent.length_bytes == 0 || extent.length_bytes > MC_MAX_OBJECT_BYTES ||
        extent.offset_bytes > UINT64_MAX - extent.length_bytes) {
      return false;
    }
    sum += extent.length_bytes;
    row.extents.push_back(extent);
  }
  if (sum != head.length) return false;
  std::span<const std::byte> key;
  if (!reader.take_bytes(head.key_bytes, key)) return false;
  row.key.assign(reinterpret_cast<const char*>(key.data()), key.size());
  if (head.held < 2) return true;
  std::span<const std::byte> object;
  if (head.length > transport::kMaxNotificationBytes || !reader.take_bytes(head.length, object)) {
    return false;
  }
  row.bytes.assign(object.begin(), object.end());
  return true;
}

bool decode_places(Reader& reader, std::size_t count, PeerMessage& message) {
  std::uint64_t region_bytes = 0;
  std::span<const std::byte> region;
  if (!reader.take(region_bytes) || region_bytes > 1024 ||
      !reader.take_bytes(region_bytes, region)) {
    return false;
  }
  message.region.assign(region.begin(), region.end());
  message.rows.resize(count);
  for (PlaceRow& row : message.rows) {
    if (!decode_row(reader, row)) return false;
  }
  return true;
}

// Rows of stripes, of one object.
bool decode_stripes(Reader& reader, std::size_t count, PeerMessage& message) {
  if (count > kMaxStripes || message.flags > kAskForPart || !decode_places(reader, count, message))
    return false;
  if (count == 0) return true;
  const StripeFacts& facts = message.stripe;
  if (!reader.take(message.stripe) || !facts.sound() || facts.number < count ||
      facts.number > facts.count) {
    return false;
  }
  for (const PlaceRow& row : message.rows) {
    const bool names_key = (message.flags & kAskForPart) != 0;
    if (!row.held || row.number >= facts.count || row.length != facts.bytes_of(row.number) ||
        row.key.empty() == names_key || !row.bytes.empty()) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::size_t encoded_row_bytes(const PlaceRow& row) {
  return sizeof(RowHead) + row.extents.size() * sizeof(shm::ExtentRecord) + padded(row.key.size()) +
         padded(row.bytes.size());
}

std::vector<std::byte> encode_peer_message(const PeerMessage& message) {
  using Kind = PeerMessageKind;
  const bool ask = message.kind == Kind::kAsk || message.kind == Kind::kAskStripes;
  Head head{static_cast<std::uint8_t>(message.kind), message.flags,
            static_cast<std::uint16_t>(ask ? message.keys.size() : message.rows.size()),
            message.request, message.name_space};
  std::vector<std::byte> out;
  out.reserve(transport::kMaxNotificationBytes);
  put(out, &head, sizeof head);
  for (const metadata::KeyHash& key : message.keys) put(out, &key, sizeof key);
  const bool hold = message.kind == Kind::kHold;
  const bool stripes = message.kind == Kind::kStripes;
  if (hold || stripes || message.kind == Kind::kPlace) {
    const std::uint64_t region_bytes = message.region.size();
    put(out, &region_bytes, sizeof region_bytes);
    put(out, message.region.data(), message.region.size());
  }
  for (const PlaceRow& row : message.rows) {
    const RowHead fields{row.number,
                         static_cast<std::uint8_t>(!row.held           ? 0
                                                   : row.bytes.empty() ? 1
                                                                       : 2),
                         static_cast<std::uint8_t>(row.extents.size()),
                         static_cast<std::uint16_t>(row.key.size()),
                         row.pin,
                         row.replicas,
                         row.version,
                         row.length,
                         row.generation,
                         row.checksum,
                         row.parent_hash};
    put(out, &fields, sizeof fields);
    for (const shm::ExtentRecord& extent : row.extents) put(out, &extent, sizeof extent);
    put(out, row.key.data(), row.key.size());
    put(out, row.bytes.data(), row.bytes.size());
  }
  if (hold) {
    const HoldTail tail{message.share_ms, message.pin_ttl_s};
    put(out, &tail, sizeof tail);
  }
  if ((hold && (message.flags & kHoldStripe) != 0) || (stripes && !message.rows.empty())) {
    put(out, &message.stripe, sizeof message.stripe);
  }
  if (message.kind == Kind::kHeld) {
    put(out, &message.refused_up_to, sizeof message.refused_up_to);
  }
  if (message.kind == Kind::kAskStripes) {
    put(out, &message.seal.version, sizeof message.seal.version);
    const std::uint64_t part = message.seal.part;
    if ((message.flags & kAskForPart) != 0) put(out, &part, sizeof part);
  }
  if (message.kind == Kind::kSeal) {
    const SealTail tail{message.seal.put,   message.seal.version, message.seal.stripes,
                        message.seal.parts, message.seal.part,    {}};
    put(out, &tail, sizeof tail);
  }
  return out;
}

std::optional<PeerMessage> decode_peer_message(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Head head{};
  if (bytes.size() > transport::kMaxNotificationBytes || !reader.take(head)) return std::nullopt;
  PeerMessage message;
  message.kind = static_cast<PeerMessageKind>(head.kind);
  message.flags = head.flags;
  message.request = head.request;
  message.name_space = head.name_space;
  switch (message.kind) {
    case PeerMessageKind::kAsk: {
      if (head.count == 0 || head.count > kMaxAskKeys ||
          head.flags > (kAskForKeys | kAskForBytes)) {
        return std::nullopt;
      }
      message.keys.resize(head.count);
      for (metadata::KeyHash& key : message.keys) {
        if (!reader.take(key)) return std::nullopt;
      }
      break;
    }
    case PeerMessageKind::kPlace:
      if (head.count > kMaxAskKeys || !decode_places(reader, head.count, message)) {
        return std::nullopt;
      }
      break;
    case PeerMessageKind::kHold: {
      HoldTail tail{};
      if (head.count != 1 || head.flags > (kHoldUpsert | kHoldStripe) ||
          !decode_places(reader, 1, message) || !reader.take(tail)) {
        return std::nullopt;
      }
      const PlaceRow& row = message.rows.front();
      if (!row.held || row.key.empty() || !row.bytes.empty()) return std::nullopt;
      if ((head.flags & kHoldStripe) != 0) {
        const StripeFacts& facts = message.stripe;
        if (!reader.take(message.stripe) || !facts.sound() || facts.number >= facts.count ||
            facts.bytes_of(facts.number) != row.length) {
          return std::nullopt;
        }
      }
      message.share_ms = tail.share_ms;
      message.pin_ttl_s = tail.pin_ttl_s;
      break;
    }
    case PeerMessageKind::kHeld:
      if (head.count != 0 || head.flags > kLastHoldOutcome || !reader.take(message.refused_up_to)) {
        return std::nullopt;
      }
      break;
    case PeerMessageKind::kSeal: {
      SealTail tail{};
      if (head.count != 0 || head.flags > (kHoldUpsert | kSealDrop) || !reader.take(tail)) {
        return std::nullopt;
      }
      if (tail.put == 0 || tail.version == 0 || tail.parts == 0 ||
          tail.parts > metadata::kMaxParts || tail.part >= tail.parts || tail.stripes == 0 ||
          tail.reserved[0] != 0 || tail.reserved[1] != 0) {
        return std::nullopt;
      }
      message.seal = {tail.put, tail.version, tail.stripes, static_cast<std::uint8_t>(tail.parts),
                      static_cast<std::uint8_t>(tail.part)};
      break;
    }
    case PeerMessageKind::kAskStripes: {
      message.keys.resize(1);
      std::uint64_t part = 0;
      if (head.count != 1 || head.flags > kAskForPart || !reader.take(message.keys.front()) ||
          !reader.take(message.seal.version) ||
          ((head.flags & kAskForPart) != 0 && !reader.take(part)) || part >= metadata::kMaxParts) {
        return std::nullopt;
      }
      message.seal.part = static_cast<std::uint8_t>(part);
      break;
    }
    case PeerMessageKind::kStripes:
      if (!decode_stripes(reader, head.count, message)) return std::nullopt;
      break;
    case PeerMessageKind::kPing:
    case PeerMessageKind::kPong:
      if (head.count != 0) return std::nullopt;
      break;
    default:
      return std::nullopt;
  }
  return reader.at_end() ? std::optional(std::move(message)) : std::nullopt;
}

}  // namespace mc::agent
