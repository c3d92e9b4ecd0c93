// SPDX-License-Identifier: Apache-2.0
//
// Messages of an agent's peer: questions, places, offers. A decoded message is within its limits
// and encodes to an equal message.
#include "agent/cluster/peer/peer_messages.h"

#include "bytes.h"
#include "shm/messages.h"

using namespace mc::agent;  // NOLINT: a program's only file
using mc::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto message = decode_peer_message(bytes);
  if (!message) return 0;
  require(size <= mc::transport::kMaxNotificationBytes);
  require(message->keys.size() <= kMaxAskKeys && message->rows.size() <= kMaxAskKeys);
  for (const PlaceRow& row : message->rows) {
    require(row.number < kMaxAskKeys);
    if (!row.held) continue;
    require(row.length >= 1 && row.length <= MC_MAX_OBJECT_BYTES && row.version != 0);
    require(!row.extents.empty() && row.extents.size() <= MC_MAX_EXTENTS);
    require(row.key.size() <= MC_MAX_KEY_BYTES && row.pin <= MC_PIN_HARD);
    require(row.bytes.empty() || row.bytes.size() == row.length);
    std::uint64_t sum = 0;
    for (const auto& extent : row.extents) sum += extent.length_bytes;
    require(sum == row.length);
  }
  if (message->kind == PeerMessageKind::kHold) {
    require(message->rows.size() == 1 && !message->rows.front().key.empty());
  }
  const StripeFacts& stripe = message->stripe;
  if (message->kind == PeerMessageKind::kStripes && !message->rows.empty()) {
    require(stripe.sound() && message->rows.size() <= kMaxStripes);
    for (const PlaceRow& row : message->rows) require(row.length == stripe.bytes_of(row.number));
  }
  if (message->kind == PeerMessageKind::kHold && (message->flags & kHoldStripe) != 0) {
    require(stripe.sound() && message->rows.front().length == stripe.bytes_of(stripe.number));
  }
  if (message->kind == PeerMessageKind::kSeal) {
    require(message->seal.put != 0 && message->seal.stripes != 0);
  }
  const std::vector<std::byte> again = encode_peer_message(*message);
  const auto twice = decode_peer_message(again);
  require(twice.has_value());
  require(twice->rows.size() == message->rows.size() && twice->keys == message->keys);
  require(again == encode_peer_message(*twice));
  return 0;
}
