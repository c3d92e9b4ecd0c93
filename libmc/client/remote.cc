// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/remote.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "libmc/base/failpoint.h"
#include "libmc/client/reading.h"
#include "libmc/client/writing.h"
#include "shm/pins.h"

namespace mc::client {

namespace {

// Asks about keys, waits, and passes each item's result to take(index, result). MC_BUSY: the question
// was not sent. MC_TIMEOUT: no answer came, and offered slots are freed when the request ends.
template <typename Take>
mc_status ask(Channel& channel, shm::Op op, const mc_slice* keys, std::size_t count,
              const std::uint32_t* slots, std::uint64_t deadline_ns, Take take) {
  const auto ticket = ask_about(channel, op, keys, count, slots, deadline_ns);
  if (!ticket) return ticket.error().code();
  const auto items = static_cast<std::uint32_t>(count);
  if (!channel.wait(*ticket)) {
    if (slots != nullptr) channel.free_pins_after(*ticket, slots, items);
    channel.forget(*ticket);
    return MC_TIMEOUT;
  }
  for (std::uint32_t i = 0; i < items; ++i) take(i, channel.item_result(*ticket, i));
  channel.finish(*ticket);
  return MC_OK;
}

bool find_entry(const Memory& memory, std::uint32_t entry, shm::FoundObject& found) {
  if (entry >= memory.index.header().max_entries) return false;
  const shm::Entry& at = memory.index.entry(entry);
  found.entry = entry;
  found.version = at.version.load_acquire();
  found.key = std::bit_cast<shm::KeyField>(at.key.load_relaxed());
  found.extent = at.extent.load_relaxed();
  found.length = at.length.load_relaxed();
  found.checksum = at.checksum.load_relaxed();
  return true;
}

}  // namespace

Result<Channel::Ticket> ask_about(Channel& channel, shm::Op op, const mc_slice* keys,
                                  std::size_t count, const std::uint32_t* slots,
                                  std::uint64_t deadline_ns) {
  std::uint32_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += encoded_bytes(keys[i].size);
  const auto items = static_cast<std::uint32_t>(count);
  auto ticket = channel.prepare(bytes + shm::result_bytes(items));
  if (!ticket) return ticket;
  unsigned char* at = channel.arguments(*ticket) + shm::result_bytes(items);
  for (std::size_t i = 0; i < count; ++i) {
    shm::PutItem fields{};
    fields.key_bytes = static_cast<std::uint16_t>(keys[i].size);
    fields.pin_slot = slots != nullptr ? slots[i] : 0;
    at += encode_item(at, fields, keys[i]);
  }
  channel.submit(*ticket, op, 0, items, deadline_ns);
  return ticket;
}

FetchedObject take_fetched(const Channel& channel, shm::Word64* pin,
                           const shm::ItemResult& result) {
  FetchedObject object;
  object.status = static_cast<mc_status>(result.status);
  const std::uint64_t pinned = pin->load_acquire();
  const bool whole = object.status == MC_OK &&
                     find_entry(channel.memory(), result.refill_entry, object.found) &&
                     pinned == shm::pin_value(result.refill_entry, object.found.version);
  if (whole) {
    object.pin = pin;
    return object;
  }
  if (object.status == MC_OK) object.status = MC_CORRUPT;
  shm::clear_pin(*pin);
  return object;
}

void fetch_objects(Channel& channel, const mc_slice* keys, std::size_t count,
                   FetchedObject* fetched, std::uint64_t deadline_ns) {
  std::uint32_t slots[kFetchBatch];
  std::size_t held = 0;
  for (; held < count; ++held) {
    shm::Word64* const pin = channel.free_pin();
    if (pin == nullptr) break;
    pin->store_relaxed(shm::kPinWanted);
    fetched[held].pin = pin;
    slots[held] = channel.slot_of(pin);
  }
  for (std::size_t i = held; i < count; ++i) fetched[i].status = MC_BUSY;
  if (held == 0) return;
  // The slots lie there, whichever session the channel joins while it waits.
  const std::shared_ptr<Memory> slots_of = channel.shared_memory();
  const mc_status asked = ask(channel, shm::Op::kFetch, keys, held, slots, deadline_ns,
                              [&](std::uint32_t i, const shm::ItemResult& result) {
                                fetched[i] = take_fetched(channel, fetched[i].pin, result);
                              });
  if (asked == MC_OK) return;
  for (std::size_t i = 0; i < held; ++i) {
    if (asked != MC_TIMEOUT) shm::clear_pin(*fetched[i].pin);
    fetched[i] = {asked, nullptr, {}};
  }
}

void exist_elsewhere(Channel& channel, const mc_slice* keys, std::size_t count, mc_status* statuses,
                     std::uint64_t* lengths, std::uint64_t deadline_ns) {
  const mc_status asked = ask(channel, shm::Op::kExists, keys, count, nullptr, deadline_ns,
                              [&](std::uint32_t i, const shm::ItemResult& result) {
                                statuses[i] = static_cast<mc_status>(result.status);
                                if (lengths != nullptr) lengths[i] = result.refill_offset;
                              });
  if (asked != MC_OK) std::fill(statuses, statuses + count, asked);
}

mc_status read_fetched(Channel& channel, const FetchedObject& fetched, const mc_span* pieces,
                       std::size_t piece_count, std::uint64_t offset, std::uint64_t* length) {
  const mc_status status =
      read_pieces(channel, fetched.found, pieces, piece_count, offset, length, nullptr);
  shm::clear_pin(*fetched.pin);
  return status;
}

mc_status view_fetched(Channel& channel, mc_client* client, const FetchedObject& fetched,
                       mc_view* view) {
  const shm::FoundObject& found = fetched.found;
  view->length = found.length;
  view->version = shm::sequence_of(found.version);
  view->checksum = found.checksum;
  view->entry = found.entry;
  view->pin = reinterpret_cast<std::uint64_t>(fetched.pin);
  view->client = client;
  view->fetched = 1;
  view->span_count = 1;
  if (view_spans(channel.memory(), found, view)) {
    // A single extent covers whole granules; the view ends with the object.
    if (view->span_count == 1) view->size = found.length;
    return MC_OK;
  }
  shm::clear_pin(*fetched.pin);
  return MC_CORRUPT;
}

}  // namespace mc::client
