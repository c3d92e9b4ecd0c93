// SPDX-License-Identifier: Apache-2.0
//
// Messages of an agent's peers. A decoded message is within its limits, and decodes to the same
// message after it is encoded again.
#include "agent/cluster/peer/peer_messages.h"

#include "bytes.h"
#include "shm/messages.h"

using namespace mc::agent;  // NOLINT: a program's only file
using mc::fuzz::require;

namespace {

void check(const PlaceRow& row) {
  require(row.number < kMaxAskKeys);
  if (!row.held) return;
  require(row.length >= 1 && row.length <= MC_MAX_OBJECT_BYTES && row.version != 0);
  require(!row.extents.empty() && row.extents.size() <= MC_MAX_EXTENTS);
  require(row.key.size() <= MC_MAX_KEY_BYTES && row.pin <= MC_PIN_HARD);
  require(row.bytes.empty() || row.bytes.size() == row.length);
  std::uint64_t sum = 0;
  for (const auto& extent : row.extents) sum += extent.length_bytes;
  require(sum == row.length);
}

void check(const AskRequest& message) {
  require(!message.keys.empty() && message.keys.size() <= kMaxAskKeys);
}

void check(const AskAnswer& message) {
  require(message.rows.size() <= kMaxAskKeys);
  for (const PlaceRow& row : message.rows) check(row);
}

void check(const Ping&) {}
void check(const Pong&) {}

void check(const HoldRequest& message) {
  check(message.row);
  require(message.row.held && !message.row.key.empty());
  if (!message.stripe) return;
  require(message.stripe->sound());
  require(message.row.length == message.stripe->bytes_of(message.stripe->number));
}

void check(const HoldAnswer& message) {
  require(static_cast<std::uint8_t>(message.outcome) <= kLastHoldOutcome);
}

void check(const SealRequest& message) {
  require(message.put != 0 && message.stripes != 0 && message.part < message.parts);
}

void check(const StripesRequest& message) {
  require(!message.part || *message.part < mc::metadata::kMaxParts);
}

void check(const StripesAnswer& message) {
  require(message.rows.size() <= kMaxStripes);
  if (!message.rows.empty()) require(message.facts.sound());
  for (const PlaceRow& row : message.rows) {
    check(row);
    require(row.length == message.facts.bytes_of(row.number));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto message = decode_peer_message(bytes);
  if (!message) return 0;
  require(size <= mc::transport::kMaxNotificationBytes);
  std::visit([](const auto& kind) { check(kind); }, *message);
  const std::vector<std::byte> again = encode_peer_message(*message);
  const auto twice = decode_peer_message(again);
  require(twice.has_value() && twice->index() == message->index());
  require(again == encode_peer_message(*twice));
  return 0;
}
