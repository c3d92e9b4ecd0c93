// SPDX-License-Identifier: Apache-2.0
//
// The C ABI over Client: put, write in place, groups.
#include <algorithm>
#include <cstring>
#include <deque>
#include <string>

#include "libmc/base/checksum.h"
#include "libmc/client/api/api.h"
#include "libmc/client/api/reservation.h"
#include "libmc/client/put_batch.h"
#include "libmc/client/reading.h"

using namespace mc;
using namespace mc::client;

struct mc_group {
  Client* client;
  std::vector<Put> puts;
  std::deque<std::string> keys;  // the puts point there
  std::uint16_t flags = shm::kFlagGroup;
  Status failure;
};

namespace mc::client {

[[gnu::hot]] Result<PutRules> rules_from(const Client& client, const mc_put_options* options) {
  PutRules rules;
  mc_put_options given = MC_PUT_OPTIONS_INIT;
  if (options != nullptr) {
    if (options->struct_size < sizeof(std::size_t)) {
      return fail(MC_INVALID_ARGUMENT,
                  "set mc_put_options.struct_size, or use MC_PUT_OPTIONS_INIT");
    }
    std::memcpy(static_cast<void*>(&given), options, std::min(options->struct_size, sizeof given));
  }
  if (given.parent.size > MC_MAX_KEY_BYTES ||
      (given.parent.size > 0 && given.parent.data == nullptr)) {
    return fail(MC_INVALID_ARGUMENT, kBadKey);
  }
  if (given.pin < MC_PIN_NONE || given.pin > MC_PIN_HARD) {
    return fail(MC_INVALID_ARGUMENT, "pin is none, soft or hard");
  }
  rules.deadline_ns = deadline_in(client, given.timeout_ns);
  rules.parent = given.parent;
  rules.pin = given.pin;
  rules.pin_ttl_s = static_cast<std::uint32_t>(
      std::min<std::uint64_t>((given.pin_ttl_ms + 999) / 1000, 0x7fffffff));
  rules.upsert = given.upsert != 0;
  if (given.replicas > MC_MAX_REPLICAS) {
    return fail(MC_INVALID_ARGUMENT, "an object has at most 8 replicas (MC_MAX_REPLICAS)");
  }
  if (given.visibility < MC_VISIBLE_CLUSTER || given.visibility > MC_VISIBLE_REPLICATED) {
    return fail(MC_INVALID_ARGUMENT, "visibility is cluster, local or replicated");
  }
  rules.replicated = given.visibility == MC_VISIBLE_REPLICATED && given.replicas > 1;
  if (rules.replicated && !client.current().connection.memory->clustered) {
    return fail(MC_UNSUPPORTED,
                "this namespace has no replicas, because its agent is in no cluster; "
                "set the agent's option masters or cluster_store");
  }
  rules.replicas = given.replicas;
  rules.local = given.visibility == MC_VISIBLE_LOCAL;
  rules.host = given.host;
  rules.stream = given.stream;
  return rules;
}

}  // namespace mc::client

namespace {

// In the parent of a fork, the copies end.
Status wait_for_copies(const mc_reservation& reservation) {
  return reservation.client->inherited_by_fork() ? Status(MC_FORKED) : reservation.copies->wait();
}

// Copies the values for the group's commit. Writes the items' statuses. Errors: the first failure.
Status add_to_group(Client& client, Channel& channel, mc_group& group, mc_put_item* items,
                    std::size_t count, const PutRules& rules) {
  if (!group.puts.empty() && group.puts.front().session != channel.memory().serial) {
    for (std::size_t i = 0; i < count; ++i) items[i].status = MC_SESSION_LOST;
    return {MC_SESSION_LOST, "the agent lost the session of this group"};
  }
  if (is_for_other_host(channel, rules)) {
    for (std::size_t i = 0; i < count; ++i) items[i].status = MC_INVALID_ARGUMENT;
    return {MC_INVALID_ARGUMENT, "a group stays on this host: mc_put_options.host must be 0"};
  }
  if (rules.stream != nullptr) {
    for (std::size_t i = 0; i < count; ++i) items[i].status = MC_INVALID_ARGUMENT;
    return {MC_INVALID_ARGUMENT,
            "a put of a group has no stream: mc_put_options.stream must be null"};
  }
  const std::size_t room = MC_MAX_GROUP_ITEMS - group.puts.size();
  for (std::size_t i = room; i < count; ++i) items[i].status = MC_TOO_LARGE;
  const bool all = count <= room;
  PutBatch batch(client, channel, items, all ? count : room, rules, PutBatch::Mode::kCopy);
  finish(batch, channel);
  for (Put& put : batch.take_copied()) {
    const mc_slice key = put.key;
    put.key.data = group.keys.emplace_back(static_cast<const char*>(key.data), key.size).data();
    group.puts.push_back(std::move(put));
  }
  group.flags |= rules.flags();
  if (Status status = batch.outcome(); !status.ok()) return status;
  if (all) return {};
  return {MC_TOO_LARGE, "a group has at most 1024 objects (MC_MAX_GROUP_ITEMS)"};
}

[[gnu::hot]] mc_status put_all(mc_client* handle, mc_put_item* items, std::size_t count,
                               const mc_put_options* options) {
  Client& client = of(handle);
  auto rules = rules_from(client, options);
  if (!rules) return set_error(rules.error());
  auto channel = client.channel(rules->deadline_ns);
  if (!channel) return set_error(channel.error());
  mc_group* group = group_of(options);
  if (group == nullptr) return put_items(client, **channel, items, count, *rules);
  if (group->client != &client) return invalid("the group belongs to another client");
  // Stands if an exception ends the call: a group without this member is not published.
  Status before = std::exchange(group->failure, Status(MC_NO_MEMORY));
  const Status status = add_to_group(client, **channel, *group, items, count, *rules);
  if (before.ok()) before = status;
  group->failure = std::move(before);
  return status.ok() ? MC_OK : set_error(status);
}

// The checksum of the bytes that the caller wrote. hash: of the key.
std::uint64_t sum_of(const mc_reservation& reservation, std::uint64_t hash, std::uint64_t length) {
  mc_span spans[MC_MAX_EXTENTS];
  const std::size_t count = mc_reservation_spans(&reservation, spans, MC_MAX_EXTENTS);
  return sum_of_room({spans, count}, hash, length);
}

void drop_puts(mc_group& group) {
  auto channel = group.client->channel(now_ns());
  drop(channel ? &**channel : nullptr, group.puts);
}

}  // namespace

extern "C" {

// ---- Put ----------------------------------------------------------------------------------------

[[gnu::hot]] mc_status mc_put(mc_client* client, mc_slice key, mc_slice value,
                              const mc_put_options* options) noexcept try {
  if (client == nullptr) return invalid("client must not be null");
  // In a group, a malformed put is a failed member: put_all() refuses it and marks the group.
  if (group_of(options) == nullptr) {
    if (check_key(key) != MC_OK) return invalid(kBadKey);
    if (value.data == nullptr || value.size == 0) return invalid("a value has at least 1 byte");
  }
  mc_put_item item{key, &value, 1, {nullptr, 0}, MC_OK};
  return put_all(client, &item, 1, options);
} catch (...) {
  return caught();
}

mc_status mc_put_batch(mc_client* client, mc_put_item* items, size_t count,
                       const mc_put_options* options) noexcept try {
  if (client == nullptr || items == nullptr) return invalid("client and items must not be null");
  if (bad_count(count)) return invalid(kBadCount);
  return put_all(client, items, count, options);
} catch (...) {
  return caught();
}

// ---- Writing in place ---------------------------------------------------------------------------

mc_status mc_reserve(mc_client* client, uint64_t size, uint64_t timeout_ns,
                     mc_reservation** reservation) noexcept try {
  if (client == nullptr || reservation == nullptr) {
    return invalid("client and reservation must not be null");
  }
  *reservation = nullptr;
  if (size == 0 || size > MC_MAX_OBJECT_BYTES) return invalid("a reservation has 1 B to 1 TiB");
  const std::uint64_t deadline_ns = deadline_in(of(client), timeout_ns);
  auto channel = of(client).channel(deadline_ns);
  if (!channel) return set_error(channel.error());
  auto made = std::make_unique<mc_reservation>();
  made->client = &of(client);
  made->size = size;
  const auto reserve_staging = [&]() -> Status {
    auto staging = of(client).staging(deadline_ns);
    if (!staging) return staging.error();
    if (size > (*staging)->size_bytes()) {
      return {MC_TOO_LARGE,
              "larger than this client's staging memory; open it with larger staging_bytes"};
    }
    const auto offset = allocate_staging(**channel, **staging, size, deadline_ns);
    if (!offset) return {MC_NO_SPACE, "this client's staging memory is in use by other calls"};
    made->staging = *staging;
    made->staging_offset = *offset;
    return {};
  };
  Status status;
  if ((*channel)->memory().isolated) {
    status = reserve_staging();
  } else {
    status = reserve(**channel, shm::reservation_bytes(size), deadline_ns, made->reserved);
    // Another host may have room at the commit.
    if (may_offer_elsewhere(**channel, status.code()) && reserve_staging().ok()) status = {};
  }
  if (!status.ok()) return set_error(status);
  made->memory = (*channel)->shared_memory();
  *reservation = made.release();
  return MC_OK;
} catch (...) {
  return caught();
}

size_t mc_reservation_spans(const mc_reservation* reservation, mc_span* spans,
                            size_t capacity) noexcept {
  if (reservation == nullptr) return 0;
  if (reservation->staging) {
    if (capacity > 0) {
      spans[0] = {reservation->staging->at(reservation->staging_offset), reservation->size};
    }
    return 1;
  }
  std::uint64_t left = reservation->size;
  for (std::uint32_t i = 0; i < reservation->reserved.extent_count; ++i) {
    const shm::ExtentRecord& extent = reservation->reserved.extents[i];
    const std::uint64_t part = std::min(left, extent.length_bytes);
    if (i < capacity) {
      spans[i] = {reservation->memory->pool_for_writing() + extent.offset_bytes, part};
    }
    left -= part;
  }
  return reservation->reserved.extent_count;
}

mc_status mc_commit(mc_reservation* reservation, mc_slice key, uint64_t length,
                    const mc_put_options* options) noexcept try {
  if (reservation == nullptr) return invalid("reservation must not be null");
  const Status written = wait_for_copies(*reservation);
  // After an exception the space stays reserved until the session ends, because the agent may have
  // published the object.
  std::unique_ptr<mc_reservation> owned(reservation);
  const auto fail_with = [&](const Status& status) {
    mc_abandon(owned.release());
    return set_error(status);
  };
  Client& client = *reservation->client;
  if (!written.ok()) return fail_with(written);
  if (check_key(key) != MC_OK) return fail_with({MC_INVALID_ARGUMENT, kBadKey});
  if (length == 0 || length > reservation->size) {
    return fail_with({MC_INVALID_ARGUMENT, "length lies between 1 and the reserved size"});
  }
  auto rules = rules_from(client, options);
  if (!rules) return fail_with(rules.error());
  if (options != nullptr && options->struct_size >= sizeof *options && options->group != nullptr) {
    return fail_with({MC_INVALID_ARGUMENT, "a reservation cannot join a group"});
  }
  if (rules->stream != nullptr) {
    return fail_with({MC_INVALID_ARGUMENT, "a commit has no stream; mc_write_reservations() has"});
  }
  auto channel = client.channel(rules->deadline_ns);
  if (!channel) return fail_with(channel.error());
  if (&(*channel)->memory() != reservation->memory.get()) {
    return fail_with({MC_SESSION_LOST, "the agent lost the session of this reservation"});
  }
  if (is_for_other_host(**channel, *rules)) {
    return fail_with(
        {MC_INVALID_ARGUMENT, "a reservation stays on this host: mc_put_options.host must be 0"});
  }
  Put put = put_of(**channel, {key, nullptr, 0, {nullptr, 0}, MC_OK}, *rules);
  put.fields.length = length;
  put.session = (*channel)->memory().serial;
  if (reservation->staging) {
    put.fields.staging_offset = reservation->staging_offset;
    put.staging = std::move(reservation->staging);
  } else {
    put.fields.entry = reservation->reserved.id.entry;
    put.fields.generation = reservation->reserved.id.generation;
    put.reserved_bytes = reservation->reserved.length;
    put.fields.checksum = sum_of(*reservation, hash_of(**channel, key), length);
  }
  const Status status = publish(**channel, {&put, 1}, rules->flags(), rules->deadline_ns);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

void mc_abandon(mc_reservation* reservation) noexcept try {
  if (reservation == nullptr) return;
  static_cast<void>(wait_for_copies(*reservation).ok());
  if (reservation->staging) {
    reservation->staging->free(reservation->staging_offset);
  } else if (auto channel = reservation->client->channel(now_ns())) {
    if (&(*channel)->memory() == reservation->memory.get()) {
      (*channel)->give_reservation_cache(reservation->reserved);
    }
  }
  delete reservation;
} catch (...) {
  static_cast<void>(caught());
}

mc_status mc_alloc(mc_client* client, size_t size, void** memory) noexcept try {
  if (client == nullptr || memory == nullptr) return invalid("client and memory must not be null");
  *memory = nullptr;
  if (size == 0) return invalid("size must not be 0");
  const std::uint64_t deadline_ns = deadline_in(of(client), 0);
  auto channel = of(client).channel(deadline_ns);
  if (!channel) return set_error(channel.error());
  auto staging = of(client).staging(deadline_ns);
  if (!staging) return set_error(staging.error());
  const auto offset = allocate_staging(**channel, **staging, size, 0);
  if (!offset) {
    return set_error(Status(MC_NO_SPACE, "this client's session memory of " +
                                             std::to_string((*staging)->size_bytes()) +
                                             " bytes is in use; free some, or open the client with "
                                             "larger staging_bytes"));
  }
  *memory = (*staging)->at(*offset);
  return MC_OK;
} catch (...) {
  return caught();
}

void mc_free(mc_client* client, void* memory) noexcept try {
  if (client == nullptr || memory == nullptr) return;
  const auto staging = of(client).staging_of(memory);
  if (staging) staging->free(*staging->offset_of(memory, 1));
} catch (...) {
  static_cast<void>(caught());
}

// ---- Groups -------------------------------------------------------------------------------------

mc_status mc_group_begin(mc_client* client, mc_group** group) noexcept try {
  if (client == nullptr || group == nullptr) return invalid("client and group must not be null");
  *group = nullptr;
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  *group = new mc_group{.client = &of(client), .puts = {}, .keys = {}, .failure = {}};
  return MC_OK;
} catch (...) {
  return caught();
}

mc_status mc_group_commit(mc_group* group, uint64_t timeout_ns) noexcept try {
  if (group == nullptr) return invalid("group must not be null");
  const std::unique_ptr<mc_group> owned(group);
  Client& client = *group->client;
  if (client.inherited_by_fork()) return set_error(MC_FORKED);
  const std::uint64_t deadline_ns = deadline_in(client, timeout_ns);
  Status status = group->failure;
  if (status.ok() && group->puts.empty()) return MC_OK;
  if (!status.ok()) {
    drop_puts(*group);
    return set_error(Status(MC_GROUP_ABORTED, "a put of the group failed: " + status.to_string()));
  }
  auto channel = client.channel(deadline_ns);
  const auto here = [&](const Put& put) { return put.session == (*channel)->memory().serial; };
  if (!channel || !std::ranges::all_of(group->puts, here)) {
    drop_puts(*group);
    if (!channel) return set_error(channel.error());
    return set_error(Status(MC_SESSION_LOST, "the agent lost the session of this group"));
  }
  status = publish(**channel, group->puts, group->flags, deadline_ns);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

void mc_group_abort(mc_group* group) noexcept try {
  if (group == nullptr) return;
  drop_puts(*group);
  delete group;
} catch (...) {
  static_cast<void>(caught());
}

}  // extern "C"
