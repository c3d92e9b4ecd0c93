// SPDX-License-Identifier: Apache-2.0
//
// The messages between agents: short notifications over the transport, beside the reads
//   of objects' bytes. PROTOCOL.md has the conversations and the byte layout. Each kind of message
//   is a struct; PeerMessage holds any kind.
// Threads: Values.
// Trusts: Nothing. decode_peer_message() copies and checks the bytes, or returns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "agent/cluster/peer/stripe.h"
#include "mc/limits.h"
#include "metadata/directory/key_hash.h"
#include "shm/layout.h"
#include "transport/limits.h"

namespace mc::agent {

inline constexpr std::size_t kMaxAskKeys = 128;

// An object at its holder.
struct PlaceRow {
  std::uint16_t number = 0;  // position of the key in the question
  bool held = false;
  bool unreadable = false;  // not held now: the object is on a disk that cannot be read
  std::uint64_t version = 0;
  std::uint64_t length = 0;
  std::uint64_t generation = 0;
  std::uint64_t checksum = 0;
  std::uint64_t parent_hash = 0;
  std::uint8_t pin = 0;
  std::uint8_t replicas = 1;
  std::vector<shm::ExtentRecord> extents;  // of exactly length bytes
  std::string key;                         // if the question asks for keys
  std::vector<std::byte> bytes;            // empty, or the whole object
};

// Asks a holder where objects are.
struct AskRequest {
  static constexpr std::uint8_t kKind = 1;
  std::uint32_t request = 0;
  std::uint64_t name_space = 0;  // 0: look in all namespaces
  bool wants_keys = false;
  bool wants_bytes = false;  // of each object whose bytes fit into an answer
  std::vector<metadata::KeyHash> keys;
};

struct AskAnswer {
  static constexpr std::uint8_t kKind = 2;
  std::uint32_t request = 0;
  std::uint64_t name_space = 0;
  std::vector<std::byte> region;  // the pool's descriptor
  std::vector<PlaceRow> rows;
};

struct Ping {
  static constexpr std::uint8_t kKind = 3;
  std::uint32_t request = 0;
};

struct Pong {
  static constexpr std::uint8_t kKind = 4;
  std::uint32_t request = 0;
};

// Asks another host to hold an object, or a stripe, that a client of the sender puts.
struct HoldRequest {
  static constexpr std::uint8_t kKind = 5;
  std::uint32_t request = 0;
  std::uint64_t name_space = 0;
  bool upsert = false;
  std::vector<std::byte> region;  // descriptor of the memory with the bytes
  PlaceRow row;                   // with its key
  std::uint32_t share_ms = 0;     // after this time the sender asks another host
  std::uint32_t pin_ttl_s = 0;
  std::optional<StripeFacts> stripe;  // a stripe, which no reader knows until the Seal
};

enum class HoldOutcome : std::uint8_t {
  kHeld,    // the master knows the object; or an earlier put of the key is held and stays
  kNoRoom,  // ask another host
  kBehind,  // a put with a later version came first, or was removed: try again with a later version
  kFailed,
};
inline constexpr auto kLastHoldOutcome = static_cast<std::uint8_t>(HoldOutcome::kFailed);

// Answers HoldRequest and SealRequest.
struct HoldAnswer {
  static constexpr std::uint8_t kKind = 6;
  std::uint32_t request = 0;
  HoldOutcome outcome = HoldOutcome::kHeld;
  std::uint64_t refused_up_to = 0;  // kBehind: a later version is needed
};

// Tells a holder that all stripes of a put are held, or that the put has failed.
struct SealRequest {
  static constexpr std::uint8_t kKind = 7;
  std::uint32_t request = 0;
  std::uint64_t name_space = 0;
  bool upsert = false;
  bool drop = false;  // the put has failed: drop the stripes
  std::uint64_t put = 0;
  std::uint64_t version = 0;
  std::uint64_t stripes = 0;  // at this host: a bit for each, by number
  std::uint8_t parts = 0;     // of the object
  std::uint8_t part = 0;      // number of this host's part
};

// Asks a holder for the places of its stripes of an object.
struct StripesRequest {
  static constexpr std::uint8_t kKind = 8;
  std::uint32_t request = 0;
  std::uint64_t name_space = 0;  // 0 with `part`: look in all namespaces
  metadata::KeyHash key;
  std::uint64_t version = 0;
  std::optional<std::uint8_t> part;  // only this part, with the object's key in each row
};

struct StripesAnswer {
  static constexpr std::uint8_t kKind = 9;
  std::uint32_t request = 0;
  std::uint64_t name_space = 0;
  bool of_part = false;
  std::vector<std::byte> region;
  std::vector<PlaceRow> rows;  // empty: the host has no stripes of the object
  StripeFacts facts;           // with rows; number: count of the stripes that the host has
};

using PeerMessage = std::variant<AskRequest, AskAnswer, Ping, Pong, HoldRequest, HoldAnswer,
                                 SealRequest, StripesRequest, StripesAnswer>;

// The most bytes of an AskAnswer without its rows: the head, and the descriptor of the holder's pool.
inline constexpr std::size_t kAnswerHeadBytes = 256;
// Size of an encoded row.
std::size_t encoded_row_bytes(const PlaceRow& row);
// Whether an answer of at most this size has room for the row and the bytes of the row's object. The row has no bytes
// yet.
bool bytes_fit_answer(const PlaceRow& row, std::size_t most_bytes);
// Message: PeerMessage or one of its kinds. REQUIRES: it fits in transport::kMaxNotificationBytes.
template <typename Message>
std::vector<std::byte> encode_peer_message(const Message& message);
template <>
std::vector<std::byte> encode_peer_message(const PeerMessage& message);
std::optional<PeerMessage> decode_peer_message(std::span<const std::byte> bytes);

}  // namespace mc::agent
