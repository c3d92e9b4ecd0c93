// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/reading.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"
#include "libmc/base/copy.h"
#include "libmc/base/failpoint.h"
#include "libmc/base/hash.h"
#include "libmc/client/api/errors.h"
#include "libmc/client/caller_memory.h"
#include "libmc/client/client.h"

namespace mc::client {

namespace {

// Calls take(to, from, bytes) for each part of a range of a pinned object's spans and the caller's
// pieces, and before the parts of a piece enter(piece, bytes). REQUIRES: the pieces have room.
template <typename Enter, typename Take>
void for_each_part(const mc_slice* spans, std::size_t span_count, std::uint64_t offset,
                   std::uint64_t length, const mc_span* pieces, Enter enter, Take take) {
  std::size_t span = 0;
  while (span < span_count && offset >= spans[span].size) offset -= spans[span++].size;
  std::size_t piece_at = 0;
  while (length > 0 && span < span_count) {
    if (piece_at == 0) enter(pieces->data, std::min<std::uint64_t>(pieces->size, length));
    const std::uint64_t step =
        std::min({length, spans[span].size - offset, pieces->size - piece_at});
    take(static_cast<std::byte*>(pieces->data) + piece_at,
         static_cast<const std::byte*>(spans[span].data) + offset, step);
    length -= step;
    if ((offset += step) == spans[span].size) offset = 0, ++span;
    if ((piece_at += step) == pieces->size) piece_at = 0, ++pieces;
  }
}

// Copies a range of a pinned object's spans into host memory, and continues the sum if there is one.
void scatter(const mc_slice* spans, std::size_t span_count, std::uint64_t offset,
             std::uint64_t length, const mc_span* pieces, std::uint64_t* sum) {
  for_each_part(
      spans, span_count, offset, length, pieces, [](void*, std::uint64_t) {},
      [sum](std::byte* to, const std::byte* from, std::uint64_t bytes) {
        if (sum == nullptr) {
          std::memcpy(to, from, bytes);
        } else {
          *sum = copy_out_and_checksum(*sum, to, from, bytes);
        }
      });
}

// The same for pieces of which some are memory of devices. Errors: those of CallerCopies.
[[gnu::noinline]] Status scatter_to_devices(Channel& channel, const mc_slice* spans,
                                            std::size_t span_count, std::uint64_t offset,
                                            std::uint64_t length, const mc_span* pieces,
                                            std::uint64_t* sum) {
  CallerCopies copies(channel, device::Direction::kToDevice);
  Status status;
  for_each_part(
      spans, span_count, offset, length, pieces,
      [&](void* piece, std::uint64_t bytes) {
        if (status.ok()) status = copies.enter(piece, bytes);
      },
      [&](std::byte* to, const std::byte* from, std::uint64_t bytes) {
        if (!status.ok()) return;
        if (sum != nullptr) *sum = checksum(*sum, from, bytes);
        copies.give(to, from, bytes);
      });
  return status.ok() ? copies.run() : status;
}

// Continues the sum over a range of a pinned object's spans.
void sum_range(const mc_slice* spans, std::size_t span_count, std::uint64_t offset,
               std::uint64_t length, std::uint64_t* sum) {
  for (; length > 0 && span_count > 0; ++spans, --span_count) {
    if (offset >= spans->size) {
      offset -= spans->size;
      continue;
    }
    const std::uint64_t step = std::min(length, spans->size - offset);
    *sum = checksum(*sum, static_cast<const std::byte*>(spans->data) + offset, step);
    length -= step;
    offset = 0;
  }
}

// The spans of a pinned object; 0 if the extents are invalid.
std::size_t spans_of(const Memory& memory, const shm::FoundObject& found, mc_slice* spans) {
  shm::ExtentRecord extents[MC_MAX_EXTENTS];
  const std::size_t count = memory.index.extents(found, extents);
  for (std::size_t i = 0; i < count; ++i) {
    if (!memory.in_pool(extents[i].offset_bytes, extents[i].length_bytes)) return 0;
    spans[i] = {memory.pool() + extents[i].offset_bytes, extents[i].length_bytes};
  }
  return count;
}

std::uint64_t room_in(const mc_span* pieces, std::size_t count) {
  std::uint64_t room = 0;
  for (std::size_t i = 0; i < count; ++i) room += pieces[i].size;
  return room;
}

}  // namespace

[[gnu::hot]] std::uint64_t hash_of(const Channel& channel, mc_slice key) {
  return hash_key(key.data, key.size, channel.memory().index.hash_seed());
}

mc_status clip_read(std::uint64_t object_bytes, const mc_span* pieces, std::size_t piece_count,
                    std::uint64_t offset, std::uint64_t* length) {
  const std::uint64_t most = object_bytes - std::min(object_bytes, offset);
  const std::uint64_t wanted = *length == 0 ? most : *length;
  if (wanted > most || (offset > 0 && most == 0)) return MC_INVALID_ARGUMENT;
  const bool fits = room_in(pieces, piece_count) >= wanted;
  *length = fits ? wanted : object_bytes;
  return fits ? MC_OK : MC_BUFFER_TOO_SMALL;
}

// The uncommon reads: ranges, several pieces, objects of several extents, buffers that are too
// small, and all reads whose address may be device memory.
[[gnu::noinline]] mc_status read_pieces(Channel& channel, const shm::FoundObject& found,
                                        const mc_span* pieces, std::size_t piece_count,
                                        std::uint64_t offset, std::uint64_t* length,
                                        std::uint64_t* sum) {
  const mc_status bad = clip_read(found.length, pieces, piece_count, offset, length);
  if (bad != MC_OK) return bad;
  const std::uint64_t wanted = *length;
  mc_slice spans[MC_MAX_EXTENTS];
  const std::size_t count = spans_of(channel.memory(), found, spans);
  if (count == 0) return MC_CORRUPT;
  if (sum != nullptr) sum_range(spans, count, 0, offset, sum);
  if (is_any_on_device(pieces, piece_count)) {
    const Status status = scatter_to_devices(channel, spans, count, offset, wanted, pieces, sum);
    if (!status.ok()) return status.code();
  } else {
    scatter(spans, count, offset, wanted, pieces, sum);
  }
  if (sum != nullptr) sum_range(spans, count, offset + wanted, found.length - offset - wanted, sum);
  return MC_OK;
}

[[gnu::noinline]] bool view_spans(const Memory& memory, const shm::FoundObject& found,
                                  mc_view* view) {
  mc_slice spans[MC_MAX_EXTENTS];
  const std::size_t count = spans_of(memory, found, spans);
  if (count == 0) return false;
  view->span_count = static_cast<std::uint32_t>(count);
  view->data = spans[0].data;
  view->size = spans[0].size;
  return true;
}

namespace {

// Reads of an object whose bytes were replaced in the meantime, until the client has its new session.
constexpr int kReadTries = 8;

[[gnu::always_inline]] inline mc_status read_once(Channel& channel, mc_slice key,
                                                  std::uint64_t hash, const mc_span* pieces,
                                                  std::size_t piece_count, std::uint64_t offset,
                                                  std::uint64_t* length) {
  const Memory& memory = channel.memory();
  shm::Word64* pin = channel.scratch_pin();
  shm::FoundObject found;
  const std::uint64_t room = piece_count == 1 && offset == 0 ? pieces->size : 0;
  const std::uint64_t ahead_bytes = std::min(room, kAheadBytes);
  if (!memory.index.find(key.data, key.size, hash, pin, found, ahead_bytes)) return MC_NOT_FOUND;
  MC_FAILPOINT("client.pinned");
  mc_status status = MC_OK;
  const bool verifies = channel.verifies_read();
  std::uint64_t sum = hash;
  const bool whole = piece_count == 1 && found.key.extent_count == 1 && offset == 0 &&
                     *length == 0 && found.length <= pieces->size && !may_be_devices() &&
                     memory.in_pool(found.extent, found.length);
  if (whole) {
    const std::byte* const from = memory.pool() + found.extent;
    if (verifies) [[unlikely]] {
      sum = copy_out_and_checksum(sum, pieces->data, from, found.length);
    } else {
      copy_out(pieces->data, from, found.length);
    }
    *length = found.length;
  } else {
    status =
        read_pieces(channel, found, pieces, piece_count, offset, length, verifies ? &sum : nullptr);
  }
  const bool differs = verifies && status == MC_OK && sum != found.checksum;
  if (!memory.index.holds(found.entry, shm::sequence_of(found.version))) [[unlikely]] {
    status = MC_SESSION_LOST;
  } else if (differs) [[unlikely]] {
    status = MC_CORRUPT;
    channel.report_damage(found.entry);
  }
  shm::clear_pin(*pin);
  MC_FAILPOINT("client.unpinned");
  channel.touch(found.entry);
  return status;
}

[[gnu::always_inline]] inline mc_status read_into(Channel& channel, mc_slice key,
                                                  std::uint64_t hash, const mc_span* pieces,
                                                  std::size_t piece_count, std::uint64_t offset,
                                                  std::uint64_t* length) {
  const std::uint64_t wanted = *length;
  mc_status status = read_once(channel, key, hash, pieces, piece_count, offset, length);
  for (int i = 1; status == MC_SESSION_LOST && i < kReadTries; ++i) [[unlikely]] {
      *length = wanted;
      status = read_once(channel, key, hash, pieces, piece_count, offset, length);
    }
  if (status == MC_OK) {
    channel.count_hit(*length);
  } else if (status == MC_NOT_FOUND) {
    channel.count_miss();
  }
  return status;
}

}  // namespace

mc_status read_object(Channel& channel, mc_slice key, std::uint64_t hash, const mc_span* pieces,
                      std::size_t piece_count, std::uint64_t offset, std::uint64_t* length) {
  return read_into(channel, key, hash, pieces, piece_count, offset, length);
}

mc_status read_whole(Channel& channel, mc_slice key, void* buffer, std::size_t capacity,
                     std::uint64_t* length) {
  const mc_span piece{buffer, capacity};
  *length = 0;
  return read_into(channel, key, hash_of(channel, key), &piece, 1, 0, length);
}

namespace {

// Errors: MC_CORRUPT, MC_SESSION_LOST (another object's bytes).
[[gnu::noinline]] mc_status verify_view(const Memory& memory, const shm::FoundObject& found,
                                        std::uint64_t hash) {
  mc_slice spans[MC_MAX_EXTENTS];
  const std::size_t count = spans_of(memory, found, spans);
  std::uint64_t sum = hash;
  sum_range(spans, count, 0, found.length, &sum);
  if (!memory.index.holds(found.entry, shm::sequence_of(found.version))) return MC_SESSION_LOST;
  return sum == found.checksum ? MC_OK : MC_CORRUPT;
}

}  // namespace

mc_status view_object(Channel& channel, mc_client* client, mc_slice key, std::uint64_t hash,
                      mc_view* view) {
  const Memory& memory = channel.memory();
  shm::Word64* pin = channel.free_pin();
  if (pin == nullptr) return MC_BUSY;
  shm::FoundObject found;
  if (!memory.index.find(key.data, key.size, hash, pin, found)) {
    channel.count_miss();
    return MC_NOT_FOUND;
  }
  view->length = found.length;
  view->version = shm::sequence_of(found.version);
  view->checksum = found.checksum;
  view->entry = found.entry;
  view->pin = reinterpret_cast<std::uint64_t>(pin);
  view->client = client;
  view->fetched = 0;
  view->span_count = 1;
  view->data = memory.pool() + found.extent;
  view->size = found.length;
  const bool whole = found.key.extent_count == 1 && memory.in_pool(found.extent, found.length);
  if (!whole && !view_spans(memory, found, view)) {
    shm::clear_pin(*pin);
    return MC_CORRUPT;
  }
  MC_FAILPOINT("client.pinned");
  if (channel.verifies_views()) [[unlikely]] {
    const mc_status status = verify_view(memory, found, hash);
    if (status != MC_OK) {
      shm::clear_pin(*pin);
      if (status == MC_CORRUPT) channel.report_damage(found.entry);
      return status;
    }
  }
  channel.touch(found.entry);
  channel.count_hit(found.length);
  return MC_OK;
}

[[gnu::hot]] bool object_exists(Channel& channel, mc_slice key, std::uint64_t hash, bool touch) {
  shm::FoundObject found;
  if (!channel.memory().index.find(key.data, key.size, hash, nullptr, found)) return false;
  if (touch) channel.touch(found.entry);
  return true;
}

mc_status stat_object(Channel& channel, mc_slice key, std::uint64_t hash, mc_stat_info* info) {
  const Memory& memory = channel.memory();
  shm::Word64* pin = channel.scratch_pin();
  shm::FoundObject found;
  if (!memory.index.find(key.data, key.size, hash, pin, found)) return MC_NOT_FOUND;
  const shm::Entry& entry = memory.index.entry(found.entry);
  const auto attributes = std::bit_cast<shm::AttributeField>(entry.attributes.load_relaxed());
  info->length = found.length;
  info->version = shm::sequence_of(found.version);
  info->checksum = found.checksum;
  info->extent_count = found.key.extent_count;
  info->pin = found.key.pin <= MC_PIN_HARD ? static_cast<mc_pin>(found.key.pin) : MC_PIN_NONE;
  const std::uint64_t now_s = now_ns() / 1000000000u;
  const std::uint64_t until_s = attributes.soft_pin_until_s;
  info->pin_left_ms = info->pin == MC_PIN_SOFT && until_s > now_s ? (until_s - now_s) * 1000 : 0;
  info->group = attributes.group;
  info->parent_hash = entry.parent_hash.load_relaxed();
  shm::clear_pin(*pin);
  return MC_OK;
}

}  // namespace mc::client

// ---- Views --------------------------------------------------------------------------------------

namespace {
bool inherited(const mc_view& view) {
  return reinterpret_cast<mc::client::Client*>(view.client)->inherited_by_fork();
}
}  // namespace

extern "C" {

size_t mc_view_spans(const mc_view* view, mc_slice* spans, size_t capacity) noexcept try {
  using namespace mc;
  if (view == nullptr || view->pin == 0 || inherited(*view)) return 0;
  if (view->span_count == 1) {
    if (capacity > 0) spans[0] = {view->data, view->size};
    return 1;
  }
  const auto& client = *reinterpret_cast<mc::client::Client*>(view->client);
  const auto memory = client.memory_of_pin(reinterpret_cast<const shm::Word64*>(view->pin));
  if (!memory) return 0;
  const shm::Entry& entry = memory->index.entry(view->entry);
  shm::FoundObject found;
  found.entry = view->entry;
  found.key = std::bit_cast<shm::KeyField>(entry.key.load_relaxed());
  found.extent = entry.extent.load_relaxed();
  found.length = view->length;
  mc_slice all[MC_MAX_EXTENTS];
  const std::size_t count = mc::client::spans_of(*memory, found, all);
  std::copy_n(all, std::min(count, capacity), spans);
  return count;
} catch (...) {
  static_cast<void>(mc::client::caught());
  return 0;
}

mc_status mc_view_check(const mc_view* view) noexcept try {
  using namespace mc;
  if (view == nullptr || view->pin == 0) {
    return client::set_error(Status(MC_INVALID_ARGUMENT, "the view was released"));
  }
  if (inherited(*view)) return client::set_error(MC_FORKED);
  const auto& owner = *reinterpret_cast<mc::client::Client*>(view->client);
  const auto memory = owner.memory_of_pin(reinterpret_cast<const shm::Word64*>(view->pin));
  if (!memory) return client::set_error(Status(MC_INVALID_ARGUMENT, "not a view of this client"));
  if (memory->index.holds(view->entry, view->version)) return MC_OK;
  return client::set_error(Status(
      MC_SESSION_LOST,
      "the agent was replaced by one that does not know this view, and the bytes are another "
      "object's; get the object again"));
} catch (...) {
  return mc::client::caught();
}

mc_status mc_view_copy(const mc_view* view, void* to) noexcept try {
  using namespace mc;
  if (view == nullptr || view->pin == 0 || to == nullptr) {
    return client::set_error(Status(MC_INVALID_ARGUMENT, "the view was released, or to is null"));
  }
  if (inherited(*view)) return client::set_error(MC_FORKED);
  auto& owner = *reinterpret_cast<client::Client*>(view->client);
  const auto memory = owner.memory_of_pin(reinterpret_cast<const shm::Word64*>(view->pin));
  if (!memory) return client::set_error(Status(MC_INVALID_ARGUMENT, "not a view of this client"));
  client::Channel* const channel = owner.quick_channel();
  const bool verifies = view->fetched == 0 && channel != nullptr && channel->verifies_read();
  mc_slice spans[MC_MAX_EXTENTS];
  const std::size_t count = mc_view_spans(view, spans, MC_MAX_EXTENTS);
  std::uint64_t sum = memory->index.entry(view->entry).hash.load_relaxed();
  const mc_span whole{to, view->length};
  client::scatter(spans, count, 0, view->length, &whole, verifies ? &sum : nullptr);
  if (const mc_status status = mc_view_check(view); status != MC_OK) return status;
  if (!verifies || sum == view->checksum) return MC_OK;
  channel->report_damage(view->entry);
  return client::set_error(MC_CORRUPT);
} catch (...) {
  return mc::client::caught();
}

mc_status mc_view_verify(const mc_view* view, mc_slice key) noexcept try {
  using namespace mc;
  if (view == nullptr || view->pin == 0 || client::check_key(key) != MC_OK) {
    return client::set_error(
        Status(MC_INVALID_ARGUMENT, "a released view, or a key that is not 1 to 1024 bytes"));
  }
  if (const mc_status status = mc_view_check(view); status != MC_OK) return status;
  const auto& owner = *reinterpret_cast<mc::client::Client*>(view->client);
  const auto memory = owner.memory_of_pin(reinterpret_cast<const shm::Word64*>(view->pin));
  mc_slice spans[MC_MAX_EXTENTS];
  const std::size_t count = mc_view_spans(view, spans, MC_MAX_EXTENTS);
  std::uint64_t sum = hash_key(key.data, key.size, memory->index.hash_seed());
  for (std::size_t i = 0; i < count; ++i) sum = checksum(sum, spans[i].data, spans[i].size);
  if (sum == view->checksum) return MC_OK;
  // The bytes may have been replaced after the first look.
  const mc_status status = mc_view_check(view);
  return status != MC_OK ? status : client::set_error(MC_CORRUPT);
} catch (...) {
  return mc::client::caught();
}

void mc_view_release(mc_view* view) noexcept {
  if (view == nullptr || view->pin == 0) return;
  // After a fork the pin belongs to the parent, whose memory is not mapped here.
  if (!inherited(*view)) mc::shm::clear_pin(*reinterpret_cast<mc::shm::Word64*>(view->pin));
  view->pin = 0;
}

}  // extern "C"
