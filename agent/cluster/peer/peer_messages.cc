// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/peer_messages.h"

#include <algorithm>
#include <cstring>

namespace mc::agent {

namespace {

// Bits of Head::flags. Place, Ping and Pong have none; Held has its outcome there.
constexpr std::uint8_t kAskForKeys = 1;
constexpr std::uint8_t kAskForBytes = 2;
constexpr std::uint8_t kHoldUpsert = 1;  // Hold and Seal
constexpr std::uint8_t kHoldStripe = 2;
constexpr std::uint8_t kSealDrop = 2;
constexpr std::uint8_t kOfPart = 1;  // AskStripes and Stripes

struct Head {
  std::uint8_t kind;
  std::uint8_t flags;
  std::uint16_t count;
  std::uint32_t request;
  std::uint64_t name_space;
};
static_assert(sizeof(Head) == 16);

constexpr std::uint64_t kMaxRegionBytes = 1024;

struct RowHead {
  std::uint16_t number;
  std::uint8_t held;  // 0 no, 1 yes, 2 yes, with the bytes, 3 on a disk that cannot be read
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

class Writer {
 public:
  explicit Writer(std::size_t expected_bytes) { out_.reserve(expected_bytes); }
  void put_bytes(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), at, at + bytes);
    out_.resize(padded(out_.size()));
  }
  template <typename T>
  void put(const T& value) {
    put_bytes(&value, sizeof value);
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

std::uint8_t bit(bool is_set, std::uint8_t flag) { return is_set ? flag : std::uint8_t{0}; }

// ---- Rows ---------------------------------------------------------------------------------------

void encode_row(const PlaceRow& row, Writer& out) {
  const RowHead head{row.number,
                     static_cast<std::uint8_t>(row.unreadable      ? 3
                                               : !row.held         ? 0
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
  out.put(head);
  for (const shm::ExtentRecord& extent : row.extents) out.put(extent);
  out.put_bytes(row.key.data(), row.key.size());
  out.put_bytes(row.bytes.data(), row.bytes.size());
}

bool decode_row(Reader& reader, PlaceRow& row) {
  RowHead head{};
  if (!reader.take(head)) return false;
  row.number = head.number;
  row.held = head.held == 1 || head.held == 2;
  row.unreadable = head.held == 3;
  if (head.held > 3 || head.number >= kMaxAskKeys) return false;
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

void encode_region(const std::vector<std::byte>& region, Writer& out) {
  out.put(std::uint64_t{region.size()});
  out.put_bytes(region.data(), region.size());
}

bool decode_region(Reader& reader, std::vector<std::byte>& region) {
  std::uint64_t size = 0;
  std::span<const std::byte> bytes;
  if (!reader.take(size) || size > kMaxRegionBytes || !reader.take_bytes(size, bytes)) return false;
  region.assign(bytes.begin(), bytes.end());
  return true;
}

bool decode_rows(Reader& reader, std::size_t count, std::vector<PlaceRow>& rows) {
  rows.resize(count);
  return std::ranges::all_of(rows, [&](PlaceRow& row) { return decode_row(reader, row); });
}

// Enough for most messages of a kind.
template <typename Message>
std::size_t expected_bytes(const Message&) {
  return 512;
}
std::size_t expected_bytes(const AskAnswer& message) {
  std::size_t bytes = 512;
  for (const PlaceRow& row : message.rows) bytes += encoded_row_bytes(row);
  return bytes;
}

// ---- Kinds of messages: head, encoder and decoder -----------------------------------------------

Head head_of(const AskRequest& message) {
  const auto flags = static_cast<std::uint8_t>(bit(message.wants_keys, kAskForKeys) |
                                               bit(message.wants_bytes, kAskForBytes));
  return {message.kKind, flags, static_cast<std::uint16_t>(message.keys.size()), message.request,
          message.name_space};
}

void encode(const AskRequest& message, Writer& out) {
  for (const metadata::KeyHash& key : message.keys) out.put(key);
}

bool decode(const Head& head, Reader& reader, AskRequest& message) {
  if (head.count == 0 || head.count > kMaxAskKeys || head.flags > (kAskForKeys | kAskForBytes)) {
    return false;
  }
  message.name_space = head.name_space;
  message.wants_keys = (head.flags & kAskForKeys) != 0;
  message.wants_bytes = (head.flags & kAskForBytes) != 0;
  message.keys.resize(head.count);
  return std::ranges::all_of(message.keys,
                             [&](metadata::KeyHash& key) { return reader.take(key); });
}

Head head_of(const AskAnswer& message) {
  return {message.kKind, 0, static_cast<std::uint16_t>(message.rows.size()), message.request,
          message.name_space};
}

void encode(const AskAnswer& message, Writer& out) {
  encode_region(message.region, out);
  for (const PlaceRow& row : message.rows) encode_row(row, out);
}

bool decode(const Head& head, Reader& reader, AskAnswer& message) {
  message.name_space = head.name_space;
  return head.count <= kMaxAskKeys && decode_region(reader, message.region) &&
         decode_rows(reader, head.count, message.rows);
}

Head head_of(const Ping& message) { return {message.kKind, 0, 0, message.request, 0}; }
void encode(const Ping&, Writer&) {}
bool decode(const Head& head, Reader&, Ping&) { return head.count == 0; }

Head head_of(const Pong& message) { return {message.kKind, 0, 0, message.request, 0}; }
void encode(const Pong&, Writer&) {}
bool decode(const Head& head, Reader&, Pong&) { return head.count == 0; }

Head head_of(const HoldRequest& message) {
  const auto flags = static_cast<std::uint8_t>(bit(message.upsert, kHoldUpsert) |
                                               bit(message.stripe.has_value(), kHoldStripe));
  return {message.kKind, flags, 1, message.request, message.name_space};
}

void encode(const HoldRequest& message, Writer& out) {
  encode_region(message.region, out);
  encode_row(message.row, out);
  out.put(HoldTail{message.share_ms, message.pin_ttl_s});
  if (message.stripe) out.put(*message.stripe);
}

bool decode(const Head& head, Reader& reader, HoldRequest& message) {
  HoldTail tail{};
  if (head.count != 1 || head.flags > (kHoldUpsert | kHoldStripe) ||
      !decode_region(reader, message.region) || !decode_row(reader, message.row) ||
      !reader.take(tail)) {
    return false;
  }
  message.name_space = head.name_space;
  message.upsert = (head.flags & kHoldUpsert) != 0;
  message.share_ms = tail.share_ms;
  message.pin_ttl_s = tail.pin_ttl_s;
  const PlaceRow& row = message.row;
  if (!row.held || row.key.empty() || !row.bytes.empty()) return false;
  if ((head.flags & kHoldStripe) == 0) return true;
  StripeFacts& facts = message.stripe.emplace();
  return reader.take(facts) && facts.sound() && facts.number < facts.count &&
         facts.bytes_of(facts.number) == row.length;
}

Head head_of(const HoldAnswer& message) {
  return {message.kKind, static_cast<std::uint8_t>(message.outcome), 0, message.request, 0};
}

void encode(const HoldAnswer& message, Writer& out) { out.put(message.refused_up_to); }

bool decode(const Head& head, Reader& reader, HoldAnswer& message) {
  if (head.count != 0 || head.flags > kLastHoldOutcome) return false;
  message.outcome = static_cast<HoldOutcome>(head.flags);
  return reader.take(message.refused_up_to);
}

Head head_of(const SealRequest& message) {
  const auto flags =
      static_cast<std::uint8_t>(bit(message.upsert, kHoldUpsert) | bit(message.drop, kSealDrop));
  return {message.kKind, flags, 0, message.request, message.name_space};
}

void encode(const SealRequest& message, Writer& out) {
  out.put(SealTail{message.put, message.version, message.stripes, message.parts, message.part, {}});
}

bool decode(const Head& head, Reader& reader, SealRequest& message) {
  SealTail tail{};
  if (head.count != 0 || head.flags > (kHoldUpsert | kSealDrop) || !reader.take(tail)) return false;
  if (tail.put == 0 || tail.version == 0 || tail.stripes == 0 || tail.parts == 0 ||
      tail.parts > metadata::kMaxParts || tail.part >= tail.parts || tail.reserved[0] != 0 ||
      tail.reserved[1] != 0) {
    return false;
  }
  message.name_space = head.name_space;
  message.upsert = (head.flags & kHoldUpsert) != 0;
  message.drop = (head.flags & kSealDrop) != 0;
  message.put = tail.put;
  message.version = tail.version;
  message.stripes = tail.stripes;
  message.parts = static_cast<std::uint8_t>(tail.parts);
  message.part = static_cast<std::uint8_t>(tail.part);
  return true;
}

Head head_of(const StripesRequest& message) {
  return {message.kKind, bit(message.part.has_value(), kOfPart), 1, message.request,
          message.name_space};
}

void encode(const StripesRequest& message, Writer& out) {
  out.put(message.key);
  out.put(message.version);
  if (message.part) out.put(std::uint64_t{*message.part});
}

bool decode(const Head& head, Reader& reader, StripesRequest& message) {
  if (head.count != 1 || head.flags > kOfPart || !reader.take(message.key) ||
      !reader.take(message.version)) {
    return false;
  }
  message.name_space = head.name_space;
  if ((head.flags & kOfPart) == 0) return true;
  std::uint64_t part = 0;
  if (!reader.take(part) || part >= metadata::kMaxParts) return false;
  message.part = static_cast<std::uint8_t>(part);
  return true;
}

Head head_of(const StripesAnswer& message) {
  return {message.kKind, bit(message.of_part, kOfPart),
          static_cast<std::uint16_t>(message.rows.size()), message.request, message.name_space};
}

void encode(const StripesAnswer& message, Writer& out) {
  encode_region(message.region, out);
  for (const PlaceRow& row : message.rows) encode_row(row, out);
  if (!message.rows.empty()) out.put(message.facts);
}

bool decode(const Head& head, Reader& reader, StripesAnswer& message) {
  if (head.count > kMaxStripes || head.flags > kOfPart || !decode_region(reader, message.region) ||
      !decode_rows(reader, head.count, message.rows)) {
    return false;
  }
  message.name_space = head.name_space;
  message.of_part = (head.flags & kOfPart) != 0;
  if (head.count == 0) return true;
  const StripeFacts& facts = message.facts;
  if (!reader.take(message.facts) || !facts.sound() || facts.number < head.count ||
      facts.number > facts.count) {
    return false;
  }
  return std::ranges::all_of(message.rows, [&](const PlaceRow& row) {
    return row.held && row.number < facts.count && row.length == facts.bytes_of(row.number) &&
           row.key.empty() != message.of_part && row.bytes.empty();
  });
}

template <typename Message>
std::optional<PeerMessage> decode_as(const Head& head, Reader& reader) {
  Message message;
  message.request = head.request;
  if (!decode(head, reader, message) || !reader.at_end()) return std::nullopt;
  return message;
}

}  // namespace

std::size_t encoded_row_bytes(const PlaceRow& row) {
  return sizeof(RowHead) + row.extents.size() * sizeof(shm::ExtentRecord) + padded(row.key.size()) +
         padded(row.bytes.size());
}

bool bytes_fit_answer(const PlaceRow& row, std::size_t most_bytes) {
  return row.length <= most_bytes &&
         kAnswerHeadBytes + encoded_row_bytes(row) + padded(row.length) <= most_bytes;
}

template <typename Message>
std::vector<std::byte> encode_peer_message(const Message& message) {
  Writer out(expected_bytes(message));
  out.put(head_of(message));
  encode(message, out);
  return out.take();
}
template std::vector<std::byte> encode_peer_message(const AskRequest&);
template std::vector<std::byte> encode_peer_message(const AskAnswer&);
template std::vector<std::byte> encode_peer_message(const Ping&);
template std::vector<std::byte> encode_peer_message(const Pong&);
template std::vector<std::byte> encode_peer_message(const HoldRequest&);
template std::vector<std::byte> encode_peer_message(const HoldAnswer&);
template std::vector<std::byte> encode_peer_message(const SealRequest&);
template std::vector<std::byte> encode_peer_message(const StripesRequest&);
template std::vector<std::byte> encode_peer_message(const StripesAnswer&);

template <>
std::vector<std::byte> encode_peer_message(const PeerMessage& message) {
  return std::visit([](const auto& kind) { return encode_peer_message(kind); }, message);
}

std::optional<PeerMessage> decode_peer_message(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Head head{};
  if (bytes.size() > transport::kMaxNotificationBytes || !reader.take(head)) return std::nullopt;
  switch (head.kind) {
    case AskRequest::kKind:
      return decode_as<AskRequest>(head, reader);
    case AskAnswer::kKind:
      return decode_as<AskAnswer>(head, reader);
    case Ping::kKind:
      return decode_as<Ping>(head, reader);
    case Pong::kKind:
      return decode_as<Pong>(head, reader);
    case HoldRequest::kKind:
      return decode_as<HoldRequest>(head, reader);
    case HoldAnswer::kKind:
      return decode_as<HoldAnswer>(head, reader);
    case SealRequest::kKind:
      return decode_as<SealRequest>(head, reader);
    case StripesRequest::kKind:
      return decode_as<StripesRequest>(head, reader);
    case StripesAnswer::kKind:
      return decode_as<StripesAnswer>(head, reader);
    default:
      return std::nullopt;
  }
}

}  // namespace mc::agent
