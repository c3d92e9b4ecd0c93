// SPDX-License-Identifier: Apache-2.0
//
// What it is: what agents say to each other beside the bytes of objects: short notifications of the
//   transport, so that a question costs one message each way and no connection of its own.
//
//     asker ── Ask: names of keys ───────────────────────────► holder
//           ◄── Place: where each lies, its version and sum ──
//           ══ reads of the transport, under that generation ═►
//
//   A question about one object may ask for its bytes too: if they fit into the answer they come
//   with it, which saves the read's round trip for one more copy of a few KiB at each end.
//
//     writer ── Hold: an object's key and where its bytes lie ──► chosen host
//            ◄═ reads of the transport ═ … ◄── Held: what became of it
//
//   head   0      1       2       4         8             16
//          │ kind │ flags │ count │ request │ namespace id │
//   Ask    head, count x (hash.hi, hash.lo)
//   Place  head, descriptor of the pool's region (length, bytes), count x row
//   row    0        2         3         4           8        16       24           32        40
//          │ number │ outcome │ extents │ key bytes │ version│ length │ generation │ checksum │ …
//          parent hash, pin, extents x (offset, length), key, bytes; padded to 8
//   Hold   as Place, of one row with its key, then for how long (ms) and the soft pin (s): 4 bytes
//          each
//   Held   head, its flags a HoldOutcome, then the version it was too old for, of 8 bytes
//
//   Of objects in stripes (stripe holder.h, gatherer.h):
//     writer ── Hold, of one stripe ─► each chosen host ══ reads ═ … ◄── Held
//            ── Seal: all stripes are held ─► each ── Held: the master knows, and it can be read
//     reader ── AskStripes: a key, a version ─► each holder ── Stripes: where those it has lie
//     host that a part is moved to ── AskStripes: and a part ─► holder ── Stripes: and the key
//   Hold        of a stripe: then StripeFacts (stripe.h), 40 bytes
//   Seal        head, put, version, stripes there (bits), parts, which of them these are: 8, 8, 8,
//               2, 2 bytes, 4 of nothing
//   AskStripes  head, hash.hi, hash.lo, version; of a part: its number, 8 bytes
//   Stripes     as Place, then StripeFacts whose number says how many stripes are there; without
//               rows: none are, and no facts follow
//   Little-endian, as the hosts are.
// Threads: values. Trusts: nothing: decode_peer_message() copies and checks, or gives nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/cluster/stripe/stripe.h"
#include "mc/limits.h"
#include "metadata/directory/key_hash.h"
#include "shm/layout.h"
#include "transport/limits.h"

namespace mc::agent {

enum class PeerMessageKind : std::uint8_t {
  kAsk = 1,
  kPlace = 2,
  kPing = 3,
  kPong = 4,
  kHold = 5,
  kHeld = 6,
  kSeal = 7,
  kAskStripes = 8,
  kStripes = 9,
};
inline constexpr std::uint8_t kAskForKeys = 1;   // Ask: the answer names the keys too
inline constexpr std::uint8_t kAskForBytes = 2;  // and brings the bytes, if there is room for all
inline constexpr std::uint8_t kHoldUpsert = 1;   // Hold, Seal: replaces what there is
inline constexpr std::uint8_t kHoldStripe =
    2;  // Hold: a stripe, known to nobody until it is sealed
inline constexpr std::uint8_t kAskForPart = 1;  // AskStripes, Stripes: of one part, with the key
inline constexpr std::uint8_t kSealDrop = 2;    // Seal: no, the put has failed; drop what there is
inline constexpr std::size_t kMaxAskKeys = 128;

enum class HoldOutcome : std::uint8_t {
  kHeld,    // and the master knows; or an earlier put of the key is held, and this one changes
            // nothing
  kNoRoom,  // ask another host
  kBehind,  // a put with a later version came first, or was removed: try again with one still later
  kFailed,
};
inline constexpr auto kLastHoldOutcome = static_cast<std::uint8_t>(HoldOutcome::kFailed);

struct PlaceRow {
  std::uint16_t number = 0;  // which of the keys asked for
  bool held = false;
  std::uint64_t version = 0;
  std::uint64_t length = 0;
  std::uint64_t generation = 0;
  std::uint64_t checksum = 0;
  std::uint64_t parent_hash = 0;
  std::uint8_t pin = 0;
  std::uint8_t replicas = 1;
  std::vector<shm::ExtentRecord> extents;  // of exactly length bytes
  std::string key;                         // if asked for
  std::vector<std::byte> bytes;            // none, or all
};

struct Seal {
  std::uint64_t put = 0;
  std::uint64_t version = 0;
  std::uint64_t stripes = 0;  // at the host that is told: a bit for each, by number
  std::uint8_t parts = 0;     // that the object is in
  std::uint8_t part = 0;      // and which of them these stripes are
};

struct PeerMessage {
  PeerMessageKind kind = PeerMessageKind::kPing;
  std::uint8_t flags = 0;
  std::uint32_t request = 0;
  std::uint64_t name_space = 0;  // 0 in an Ask, or an AskStripes for a part: look in all of them
  std::vector<metadata::KeyHash> keys;  // Ask; AskStripes: one
  std::vector<std::byte> region;        // Place, Hold, Stripes
  std::vector<PlaceRow> rows;           // Place, Stripes; Hold: one
  std::uint32_t share_ms = 0;           // Hold: what is not held by then need not be
  std::uint32_t pin_ttl_s = 0;          // Hold
  std::uint64_t refused_up_to = 0;      // Held, kBehind: a later version is wanted
  StripeFacts stripe;                   // Hold of a stripe, Stripes
  Seal seal;                            // Seal; AskStripes: its version and part
};

// Bytes that a row takes.
std::size_t encoded_row_bytes(const PlaceRow& row);
// REQUIRES: it fits in transport::kMaxNotificationBytes.
std::vector<std::byte> encode_peer_message(const PeerMessage& message);
std::optional<PeerMessage> decode_peer_message(std::span<const std::byte> bytes);

}  // namespace mc::agent
