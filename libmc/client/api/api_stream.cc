// SPDX-License-Identifier: Apache-2.0
//
// The C ABI over Client: copies in the order of a stream.
#include <algorithm>
#include <array>
#include <span>

#include "libmc/client/api/api.h"
#include "libmc/client/api/reservation.h"
#include "libmc/client/device/device_gets.h"
#include "libmc/client/device/part_copies.h"

using namespace mc;
using namespace mc::client;

namespace {

using device::Direction;

constexpr const char* kBadPart =
    "a part ends beyond its object or reservation, or has a null piece";

// session: of the reservations; null: any.
Status copy_parts(mc_client* client, const PartCopies& copies, mc_stream stream,
                  const StreamCopies::Ending& ending, const Memory* session) {
  if (copies.empty()) return {};
  if (stream == nullptr && copies.is_of_host()) {
    copies.run_on_host();
    return {};
  }
  auto channel = channel_of(client);
  if (!channel) return channel.error();
  if (session != nullptr && session != &(*channel)->memory()) {
    return {MC_SESSION_LOST, "the agent lost the session of this reservation"};
  }
  if (stream == nullptr) return copies.run(**channel);
  return copies.begin(of(client), **channel, stream, ending);
}

}  // namespace

extern "C" {

mc_status mc_get_batch_on_stream(mc_client* client, mc_get_item* items, size_t count,
                                 mc_stream stream) noexcept try {
  if (stream == nullptr) return mc_get_batch(client, items, count);
  if (client == nullptr || items == nullptr) return invalid("client and items must not be null");
  if (bad_count(count)) return invalid(kBadCount);
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  if (std::any_of(items, items + count, bad_item)) {
    return invalid("an item has a bad key, a null piece, or too many pieces (MC_MAX_PIECES)");
  }
  const Status status = get_in_order(client, {items, count}, stream);
  if (!status.ok()) return set_error(status);
  const mc_status first = first_failure(items, count);
  return first == MC_OK ? MC_OK : set_error(first);
} catch (...) {
  return caught();
}

mc_status mc_read_views(mc_client* client, const mc_read_item* items, size_t count,
                        mc_stream stream) noexcept try {
  if (client == nullptr || items == nullptr) return invalid("client and items must not be null");
  if (bad_count(count)) return invalid(kBadCount);
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  PartCopies copies(Direction::kToDevice);
  for (std::size_t i = 0; i < count; ++i) {
    const mc_read_item& item = items[i];
    if (item.view == nullptr || item.view->pin == 0 || item.view->client != client) {
      return invalid("an item has no view of this client");
    }
    if (item.pieces == nullptr && item.piece_count > 0) return invalid(kBadPart);
    std::array<mc_slice, MC_MAX_EXTENTS> spans;
    const std::size_t held = mc_view_spans(item.view, spans.data(), spans.size());
    if (!copies.add(std::span<const mc_slice>(spans.data(), held), item.view->length, item.offset,
                    std::span(item.pieces, item.piece_count))) {
      return invalid(kBadPart);
    }
  }
  const auto& reads = of(client).stream_reads();
  Status status = copy_parts(client, copies, stream, {{reads}, nullptr}, nullptr);
  if (status.ok()) status = reads->take_failure();
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_write_reservations(mc_client* client, const mc_write_item* items, size_t count,
                                mc_stream stream) noexcept try {
  if (client == nullptr || items == nullptr) return invalid("client and items must not be null");
  if (bad_count(count)) return invalid(kBadCount);
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  PartCopies copies(Direction::kFromDevice);
  StreamCopies::Ending ending;
  for (std::size_t i = 0; i < count; ++i) {
    const mc_write_item& item = items[i];
    if (item.reservation == nullptr || item.reservation->client != &of(client)) {
      return invalid("an item has no reservation of this client");
    }
    if (item.reservation->memory != items[0].reservation->memory) {
      return set_error(Status(MC_SESSION_LOST, "the agent lost the session of a reservation"));
    }
    if (item.pieces == nullptr && item.piece_count > 0) return invalid(kBadPart);
    std::array<mc_span, MC_MAX_EXTENTS> spans;
    const std::size_t held = mc_reservation_spans(item.reservation, spans.data(), spans.size());
    if (!copies.add(std::span<const mc_span>(spans.data(), held), item.reservation->size,
                    item.offset, std::span(item.pieces, item.piece_count))) {
      return invalid(kBadPart);
    }
    if (ending.groups.empty() || ending.groups.back() != item.reservation->copies) {
      ending.groups.push_back(item.reservation->copies);
    }
  }
  const Status status =
      copy_parts(client, copies, stream, ending, items[0].reservation->memory.get());
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

}  // extern "C"
