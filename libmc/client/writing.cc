// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/writing.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "libmc/client/caller_memory.h"
#include "libmc/client/device/device_values.h"
#include "libmc/client/reading.h"
#include "libmc/client/remote.h"

namespace mc::client {

namespace {

// Between two looks at the requests that hold staging.
constexpr std::uint64_t kStagingNs = 20'000'000;

}  // namespace

[[gnu::hot]] std::uint64_t value_bytes(const mc_put_item& item) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < item.piece_count; ++i) bytes += item.pieces[i].size;
  return bytes;
}

[[gnu::hot]] mc_status check_item(const mc_put_item& item) {
  if (check_key(item.key) != MC_OK || item.pieces == nullptr || item.piece_count == 0 ||
      item.piece_count > MC_MAX_PIECES || item.parent.size > MC_MAX_KEY_BYTES) {
    return MC_INVALID_ARGUMENT;
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < item.piece_count; ++i) {
    if (item.pieces[i].size > MC_MAX_OBJECT_BYTES) return MC_TOO_LARGE;
    if (item.pieces[i].data == nullptr && item.pieces[i].size > 0) return MC_INVALID_ARGUMENT;
    bytes += item.pieces[i].size;
  }
  if (bytes == 0) return MC_INVALID_ARGUMENT;
  return bytes > MC_MAX_OBJECT_BYTES ? MC_TOO_LARGE : MC_OK;
}

[[gnu::hot]] Put put_of(const Channel& channel, const mc_put_item& item, const PutRules& rules) {
  const mc_slice parent = item.parent.size > 0 ? item.parent : rules.parent;
  Put put;
  put.key = item.key;
  put.fields.length = value_bytes(item);
  put.fields.key_bytes = static_cast<std::uint16_t>(item.key.size);
  put.fields.parent_hash = parent.size > 0 ? hash_of(channel, parent) : 0;
  put.fields.pin = static_cast<std::uint8_t>(rules.pin);
  put.fields.pin_ttl_s = rules.pin_ttl_s;
  put.fields.replicas = rules.replicas;
  return put;
}

// ---- Room ---------------------------------------------------------------------------------------

Result<Channel::Ticket> send_reserve(Channel& channel, std::uint64_t bytes, std::uint32_t count,
                                     bool elsewhere, std::uint64_t deadline_ns) {
  auto ticket = channel.prepare(static_cast<std::uint32_t>(count * sizeof(shm::ReservedItem)));
  if (!ticket) return ticket;
  channel.submit(*ticket, shm::Op::kReserve, elsewhere ? shm::kFlagElsewhere : std::uint16_t{0},
                 count, deadline_ns, bytes);
  return ticket;
}

Status take_reserved(Channel& channel, Channel::Ticket ticket, std::vector<Reserved>& granted) {
  const auto status = static_cast<mc_status>(channel.completion(ticket).status);
  if (status == MC_OK) {
    channel.take_granted(ticket, granted);
    return granted.empty() ? Status(MC_INTERNAL, "the agent granted nothing") : Status();
  }
  channel.finish(ticket);
  if (status == MC_TOO_LARGE) {
    return {MC_TOO_LARGE,
            "the value is larger than the pool, its capacity or this session's quota; raise "
            "pool_bytes or session_quota_bytes"};
  }
  return Status(status);
}

Status reserve(Channel& channel, std::uint64_t bytes, std::uint64_t deadline_ns,
               Reserved& reserved) {
  Status status(MC_SESSION_LOST);
  for (int tries = 0; tries < kSessionTries && status.code() == MC_SESSION_LOST; ++tries) {
    const auto ticket = send_reserve(channel, bytes, 1, channel.memory().clustered, deadline_ns);
    if (!ticket) return ticket.error();
    if (Status late = channel.wait_or_forget(*ticket); !late.ok()) return late;
    std::vector<Reserved> granted;
    status = take_reserved(channel, *ticket, granted);
    if (status.ok()) reserved = granted.front();
  }
  return status;
}

bool may_offer_elsewhere(const Channel& channel, mc_status status) {
  return channel.memory().clustered && !channel.memory().isolated &&
         (status == MC_NO_SPACE || status == MC_TOO_LARGE);
}

std::optional<std::uint64_t> allocate_staging(Channel& channel, Staging& staging,
                                              std::uint64_t bytes, std::uint64_t deadline_ns) {
  for (;;) {
    channel.reap();
    const std::uint64_t now = now_ns();
    if (const auto offset = staging.allocate(bytes, std::min(deadline_ns, now + kStagingNs))) {
      return offset;
    }
    if (now >= deadline_ns || bytes > staging.size_bytes()) return std::nullopt;
  }
}

// ---- The steps of a put -------------------------------------------------------------------------

namespace {

// The places of a value in the extents of a reservation, in order.
class Places {
 public:
  Places(const Memory& memory, const Reserved& reserved)
      : pool_(memory.pool_for_writing()), extent_(reserved.extents) {}

  struct Place {
    std::byte* to;
    std::uint64_t bytes;
  };
  // At most so many bytes.
  Place next(std::uint64_t most) {
    const std::uint64_t step = std::min(most, extent_->length_bytes - at_);
    const Place place{pool_ + extent_->offset_bytes + at_, step};
    if ((at_ += step) == extent_->length_bytes) at_ = 0, ++extent_;
    return place;
  }

 private:
  std::byte* const pool_;
  const shm::ExtentRecord* extent_;
  std::uint64_t at_ = 0;
};

// The sum is of the bytes in the pool, which only the copies' end brings.
[[gnu::noinline]] Status write_from_devices(Channel& channel, const Reserved& reserved,
                                            std::uint64_t hash, const mc_slice* pieces,
                                            std::size_t piece_count, std::uint64_t* sum) {
  DeviceValues value;
  value.add(0, room_of(channel.memory(), reserved), hash, pieces, piece_count);
  if (Status status = value.run(channel); !status.ok()) return status;
  *sum = value.sum(0);
  return {};
}

void prepare(const Memory& memory, const Reserved& reserved) {
  for (std::uint32_t i = 0; i < reserved.extent_count; ++i) {
    memory.prepare_write(reserved.extents[i].offset_bytes, reserved.extents[i].length_bytes);
  }
}

}  // namespace

std::vector<mc_span> room_of(const Memory& memory, const Reserved& reserved) {
  prepare(memory, reserved);
  std::vector<mc_span> room;
  for (std::uint32_t i = 0; i < reserved.extent_count; ++i) {
    const shm::ExtentRecord& extent = reserved.extents[i];
    room.push_back({memory.pool_for_writing() + extent.offset_bytes, extent.length_bytes});
  }
  return room;
}

[[gnu::hot]] void locate(const Memory& memory, const Reserved& reserved, Put& put) {
  put.fields.entry = reserved.id.entry;
  put.fields.generation = reserved.id.generation;
  put.session = memory.serial;
  put.reserved_bytes = reserved.length;
}

[[gnu::hot]] Status write_to_pool(Channel& channel, const Reserved& reserved, std::uint64_t hash,
                                  const mc_slice* pieces, std::size_t piece_count, Put& put) {
  const Memory& memory = channel.memory();
  std::uint64_t sum = hash;
  if (is_any_on_device(pieces, piece_count)) [[unlikely]] {
    if (Status copied = write_from_devices(channel, reserved, hash, pieces, piece_count, &sum);
        !copied.ok()) {
      return copied;
    }
  } else {
    prepare(memory, reserved);
    Places places(memory, reserved);
    for (std::size_t i = 0; i < piece_count; ++i) {
      const auto* from = static_cast<const std::byte*>(pieces[i].data);
      for (std::uint64_t left = pieces[i].size; left > 0;) {
        const auto [to, step] = places.next(left);
        sum = copy_and_checksum(sum, to, from, step);
        from += step;
        left -= step;
      }
    }
  }
  locate(memory, reserved, put);
  put.fields.checksum = sum;
  MC_FAILPOINT("client.copied");
  return {};
}

Status write_to_staging(Channel& channel, std::shared_ptr<Staging> staging, std::uint64_t offset,
                        const mc_slice* pieces, std::size_t piece_count, mc_stream stream,
                        Put& put) {
  if (Status copied = gather(channel, staging->at(offset), pieces, piece_count, stream);
      !copied.ok()) {
    staging->free(offset);
    return copied;
  }
  put.fields.staging_offset = offset;
  put.session = channel.memory().serial;
  put.staging = std::move(staging);
  return {};
}

[[gnu::hot]] std::uint32_t encode_item(unsigned char* at, const shm::PutItem& fields,
                                       mc_slice key) {
  std::memcpy(at, &fields, sizeof fields);
  if (key.size > 0) std::memcpy(at + sizeof fields, key.data, key.size);
  return encoded_bytes(key.size);
}

[[gnu::hot]] Result<Channel::Ticket> send(Channel& channel, std::span<Put> puts,
                                          std::uint16_t flags, std::uint64_t deadline_ns,
                                          std::uint64_t host) {
  const auto count = static_cast<std::uint32_t>(puts.size());
  std::uint64_t bytes = shm::result_bytes(count);
  for (const Put& put : puts) bytes += encoded_bytes(put.key.size);
  if (bytes > shm::kArgumentBytes) {
    return fail(MC_TOO_LARGE, "the keys of the group are too long together; make it smaller");
  }
  auto ticket = channel.prepare(static_cast<std::uint32_t>(bytes));
  if (!ticket) return ticket;
  unsigned char* at = channel.arguments(*ticket) + shm::result_bytes(count);
  for (Put& put : puts) {
    at += encode_item(at, put.fields, put.key);
    if (put.staging) {
      channel.hold_staging(*ticket, std::move(put.staging), put.fields.staging_offset);
    }
  }
  channel.submit(*ticket, puts.front().in_pool() ? shm::Op::kPut : shm::Op::kPutStaged, flags,
                 count, deadline_ns, host);
  return ticket;
}

[[gnu::hot]] void settle(Channel& channel, Channel::Ticket ticket, std::span<Put> puts,
                         std::uint16_t flags) {
  const auto whole = static_cast<mc_status>(channel.completion(ticket).status);
  // The agent keeps no reservation of a group.
  const bool group = (flags & shm::kFlagGroup) != 0;
  const Channel::ReservationCacheLock cache(channel);
  for (std::uint32_t i = 0; i < puts.size(); ++i) {
    Put& put = puts[i];
    if (group) {
      put.status = whole;
      continue;
    }
    const shm::ItemResult result = channel.item_result(ticket, i);
    put.status = static_cast<mc_status>(result.status);
    if (!put.in_pool()) continue;
    try {
      channel.take_room(result, {put.fields.entry, put.fields.generation}, put.reserved_bytes);
    } catch (const std::bad_alloc&) {
      // The reservation stays with the session. If the exception passed, the answer would be taken
      // twice.
    }
  }
  channel.finish(ticket);
}

Status publish(Channel& channel, std::span<Put> puts, std::uint16_t flags,
               std::uint64_t deadline_ns) {
  const auto ticket = send(channel, puts, flags, deadline_ns);
  if (!ticket) {
    drop(&channel, puts);
    return ticket.error();
  }
  if (Status late = channel.wait_or_forget(*ticket); !late.ok()) return late;
  settle(channel, *ticket, puts, flags);
  for (const Put& put : puts) {
    if (put.status != MC_OK) return Status(put.status);
  }
  return {};
}

void drop(Channel* channel, std::span<Put> puts) {
  std::vector<ReservationId> ids;
  for (Put& put : puts) {
    if (put.staging) {
      put.staging->free(put.fields.staging_offset);
      put.staging.reset();
    } else if (channel != nullptr && put.in_pool() && put.session == channel->memory().serial) {
      ids.push_back({put.fields.entry, put.fields.generation});
    }
  }
  if (!ids.empty()) channel->give_back(ids);
}

// ---- Removals and pins --------------------------------------------------------------------------

Status remove_items(Channel& channel, const mc_slice* keys, std::size_t count, mc_status* statuses,
                    std::uint64_t deadline_ns) {
  mc_status first = MC_OK;
  std::size_t done = 0;
  while (done < count) {
    std::uint32_t bytes = 0;
    std::uint32_t items = 0;
    while (done + items < count && bytes < shm::kArgumentBytes / 4) {
      bytes += encoded_bytes(keys[done + items++].size);
    }
    const auto ticket =
        ask_about(channel, shm::Op::kRemove, keys + done, items, nullptr, deadline_ns);
    if (!ticket) return ticket.error();
    if (Status late = channel.wait_or_forget(*ticket); !late.ok()) {
      std::fill(statuses + done, statuses + count, MC_TIMEOUT);
      return late;
    }
    for (std::uint32_t i = 0; i < items; ++i) {
      statuses[done + i] = static_cast<mc_status>(channel.item_result(*ticket, i).status);
      if (first == MC_OK) first = statuses[done + i];
    }
    channel.finish(*ticket);
    done += items;
  }
  return first;
}

Status set_pin(Channel& channel, mc_slice key, mc_pin pin, std::uint32_t ttl_s,
               std::uint64_t deadline_ns) {
  auto ticket = channel.prepare(encoded_bytes(key.size));
  if (!ticket) return ticket.error();
  shm::PutItem fields{};
  fields.key_bytes = static_cast<std::uint16_t>(key.size);
  fields.pin = static_cast<std::uint8_t>(pin);
  fields.pin_ttl_s = ttl_s;
  encode_item(channel.arguments(*ticket), fields, key);
  channel.submit(*ticket, shm::Op::kSetPin, 0, 1, deadline_ns);
  if (Status late = channel.wait_or_forget(*ticket); !late.ok()) return late;
  const auto status = static_cast<mc_status>(channel.completion(*ticket).status);
  channel.finish(*ticket);
  return status;
}

}  // namespace mc::client
