// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/device_gets.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/client/caller_memory.h"
#include "libmc/client/client.h"
#include "libmc/client/device/part_copies.h"
#include "libmc/client/reading.h"

namespace mc::client {

using device::Direction;

namespace {

// A channel has room for more views (MC_MAX_VIEWS_PER_CHANNEL), of which the caller may hold some.
constexpr std::size_t kViewsAtOnce = 256;
using Views = std::array<mc_view, kViewsAtOnce>;

// Releases the views after the copies in the order of a stream.
struct KeptViews {
  explicit KeptViews(std::shared_ptr<CopyGroup> group) : reads(std::move(group)) {}
  KeptViews(const KeptViews&) = delete;
  KeptViews& operator=(const KeptViews&) = delete;
  ~KeptViews() {
    for (mc_view& view : views) {
      if (view.pin == 0) continue;
      if (mc_view_check(&view) != MC_OK) reads->fail(Status(MC_SESSION_LOST));
      mc_view_release(&view);
    }
  }

  const std::shared_ptr<CopyGroup> reads;
  Views views{};
};

// Adds the wanted range of the object. Sets the item's length.
mc_status add_item(PartCopies& copies, mc_get_item& item, const mc_view& view) {
  const mc_status bad =
      clip_read(view.length, item.pieces, item.piece_count, item.offset, &item.length);
  if (bad != MC_OK) return bad;
  std::array<mc_slice, MC_MAX_EXTENTS> spans;
  const std::size_t held = mc_view_spans(&view, spans.data(), spans.size());
  const std::span<const mc_span> pieces(item.pieces, item.piece_count);
  const bool added = copies.add(std::span<const mc_slice>(spans.data(), held), view.length,
                                item.offset, pieces, item.length);
  return added ? MC_OK : MC_INVALID_ARGUMENT;
}

// Compares the bytes of one in so many objects with their checksum.
mc_status check_sometimes(Channel& channel, const mc_get_item& item, const mc_view& view) {
  if (view.fetched != 0 || channel.verifies_views() || !channel.verifies_read()) return MC_OK;
  const mc_status status = mc_view_verify(&view, item.key);
  if (status == MC_CORRUPT) channel.report_damage(view.entry);
  return status;
}

void get_some_to_devices(mc_client* client, Channel& channel, std::span<mc_get_item> items) {
  Views views{};
  std::array<std::uint64_t, kViewsAtOnce> wanted{};
  PartCopies copies(Direction::kToDevice);
  for (std::size_t i = 0; i < items.size(); ++i) {
    mc_get_item& item = items[i];
    wanted[i] = item.length;
    const std::uint64_t hash = hash_of(channel, item.key);
    item.status = view_object(channel, client, item.key, hash, &views[i]);
    if (item.status != MC_OK) views[i].pin = 0;
    if (item.status == MC_OK) item.status = check_sometimes(channel, item, views[i]);
    if (item.status == MC_OK) item.status = add_item(copies, item, views[i]);
  }
  const bool copied = copies.run(channel).ok();
  for (std::size_t i = 0; i < items.size(); ++i) {
    mc_get_item& item = items[i];
    const bool lost = item.status == MC_OK && (!copied || mc_view_check(&views[i]) != MC_OK);
    mc_view_release(&views[i]);
    // Alone, the item gets the status that is its own.
    if (!lost && item.status != MC_BUSY && item.status != MC_SESSION_LOST) continue;
    item.length = wanted[i];
    item.status = read_object(channel, item.key, hash_of(channel, item.key), item.pieces,
                              item.piece_count, item.offset, &item.length);
  }
}

// Waits for earlier copies if their views leave no room.
void view_items(mc_client* client, std::span<mc_get_item> items, Views& views) {
  std::array<mc_slice, kViewsAtOnce> keys{};
  std::array<mc_status, kViewsAtOnce> statuses{};
  for (std::size_t i = 0; i < items.size(); ++i) keys[i] = items[i].key;
  static_cast<void>(
      mc_get_view_batch(client, keys.data(), items.size(), views.data(), statuses.data()));
  auto& owner = *reinterpret_cast<Client*>(client);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (statuses[i] == MC_BUSY) {
      static_cast<void>(owner.stream_reads()->wait().ok());
      statuses[i] = mc_get_view(client, keys[i], &views[i]);
    }
    items[i].status = statuses[i];
  }
}

Status get_some_in_order(mc_client* client, std::span<mc_get_item> items, mc_stream stream) {
  auto& owner = *reinterpret_cast<Client*>(client);
  const auto& reads = owner.stream_reads();
  const auto kept = std::make_shared<KeptViews>(reads);
  view_items(client, items, kept->views);
  PartCopies copies(Direction::kToDevice);
  auto channel = owner.channel(now_ns() + owner.default_timeout_ns());
  Status status = channel ? Status() : channel.error();
  for (std::size_t i = 0; status.ok() && i < items.size(); ++i) {
    mc_get_item& item = items[i];
    if (item.status == MC_OK) item.status = check_sometimes(**channel, item, kept->views[i]);
    if (item.status == MC_OK) item.status = add_item(copies, item, kept->views[i]);
  }
  if (status.ok() && !copies.empty()) {
    status = copies.begin(owner, **channel, stream, {{reads}, kept});
  }
  for (mc_get_item& item : items) {
    if (!status.ok() && item.status == MC_OK) item.status = status.code();
  }
  return status;
}

}  // namespace

bool begins_on_device(std::span<const mc_get_item> items) {
  return !items.empty() && items[0].piece_count > 0 && is_any_on_device(items[0].pieces, 1);
}

void get_to_devices(mc_client* client, Channel& channel, std::span<mc_get_item> items) {
  while (!items.empty()) {
    const auto some = items.first(std::min(items.size(), kViewsAtOnce));
    get_some_to_devices(client, channel, some);
    items = items.subspan(some.size());
  }
}

Status get_in_order(mc_client* client, std::span<mc_get_item> items, mc_stream stream) {
  Status status;
  while (!items.empty()) {
    const auto some = items.first(std::min(items.size(), kViewsAtOnce));
    const Status copied = get_some_in_order(client, some, stream);
    if (status.ok()) status = copied;
    items = items.subspan(some.size());
  }
  const Status earlier = reinterpret_cast<Client*>(client)->stream_reads()->take_failure();
  return status.ok() ? earlier : status;
}

}  // namespace mc::client
