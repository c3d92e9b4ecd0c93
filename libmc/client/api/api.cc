// SPDX-License-Identifier: Apache-2.0
//
// The C ABI over Client: open, read, ask, remove.
#include "libmc/client/api/api.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "libmc/client/admin.h"
#include "libmc/client/caller_memory.h"
#include "libmc/client/device/device_gets.h"
#include "libmc/client/reading.h"
#include "libmc/client/remote.h"

using namespace mc;
using namespace mc::client;

namespace {

// Fetches the items with status MC_NOT_FOUND from other hosts, in batches, and passes each to
// take(index, FetchedObject).
template <typename KeyOf, typename StatusOf, typename Take>
[[gnu::noinline]] void fetch_missing(mc_client* client, Channel& channel, std::size_t count,
                                     KeyOf key_of, StatusOf status_of, Take take) {
  const std::uint64_t deadline_ns = deadline_in(of(client), 0);
  mc_slice keys[kFetchBatch];
  std::size_t indices[kFetchBatch];
  for (std::size_t next = 0; next < count;) {
    std::size_t wanted = 0;
    for (; next < count && wanted < kFetchBatch; ++next) {
      if (status_of(next) != MC_NOT_FOUND) continue;
      keys[wanted] = key_of(next);
      indices[wanted++] = next;
    }
    if (wanted == 0) return;
    FetchedObject fetched[kFetchBatch];
    fetch_objects(channel, keys, wanted, fetched, deadline_ns);
    for (std::size_t i = 0; i < wanted; ++i) take(indices[i], fetched[i]);
  }
}

[[gnu::noinline]] mc_status get_elsewhere(mc_client* client, mc_slice key, mc_span piece,
                                          std::uint64_t* copied) {
  auto channel = channel_of(client);
  if (!channel || !may_be_elsewhere(**channel)) return MC_NOT_FOUND;
  FetchedObject fetched;
  fetch_objects(**channel, &key, 1, &fetched, deadline_in(of(client), 0));
  return fetched.status == MC_OK ? read_fetched(**channel, fetched, &piece, 1, 0, copied)
                                 : fetched.status;
}

// Prefetches the look-ups of a batch: the next objects load while one object is read. The index,
// the entry and the first bytes are dependent cache misses; in a large pool all three miss.
template <typename KeyOf>
class LookAhead {
 public:
  LookAhead(const Channel& channel, std::size_t count, std::uint64_t object_bytes, KeyOf key_of)
      : channel_(channel), count_(count), object_bytes_(object_bytes), key_of_(key_of) {}

  // REQUIRES: i counts up from 0 in steps of 1. Returns the hash of item i if its key is valid.
  std::uint64_t hash(std::size_t i) {
    const shm::IndexReader& index = channel_.memory().index;
    for (; begun_ < std::min(count_, i + kItems); ++begun_) {
      const mc_slice key = key_of_(begun_);
      if (check_key(key) != MC_OK) continue;
      hashes_[begun_ % kItems] = hash_of(channel_, key);
      index.prefetch(hashes_[begun_ % kItems]);
    }
    if (i + 1 < count_) index.prefetch_object(hashes_[(i + 1) % kItems], object_bytes_);
    return hashes_[i % kItems];
  }

 private:
  static constexpr std::size_t kItems = 4;
  const Channel& channel_;
  std::size_t count_;
  std::uint64_t object_bytes_;
  KeyOf key_of_;
  std::size_t begun_ = 0;
  std::array<std::uint64_t, kItems> hashes_{};
};

// Asks other hosts about the missing keys; calls take(index, length) for each object that exists.
template <typename Take>
void find_elsewhere(mc_client* client, Channel& channel, const mc_slice* keys, std::size_t count,
                    mc_status* statuses, Take take) {
  const std::uint64_t deadline_ns = deadline_in(of(client), 0);
  mc_slice asked[kFetchBatch];
  std::size_t indices[kFetchBatch];
  mc_status answers[kFetchBatch];
  std::uint64_t lengths[kFetchBatch];
  for (std::size_t next = 0; next < count;) {
    std::size_t wanted = 0;
    for (; next < count && wanted < kFetchBatch; ++next) {
      if (statuses[next] == MC_OK) continue;
      asked[wanted] = keys[next];
      indices[wanted++] = next;
    }
    if (wanted == 0) break;
    exist_elsewhere(channel, asked, wanted, answers, lengths, deadline_ns);
    for (std::size_t i = 0; i < wanted; ++i) {
      statuses[indices[i]] = answers[i];
      if (answers[i] == MC_OK) take(indices[i], lengths[i]);
    }
  }
}

}  // namespace

bool mc::client::bad_item(const mc_get_item& item) {
  return check_key(item.key) != MC_OK || (item.pieces == nullptr && item.piece_count > 0) ||
         item.piece_count > MC_MAX_PIECES ||
         std::any_of(item.pieces, item.pieces + item.piece_count,
                     [](const mc_span& piece) { return piece.data == nullptr && piece.size > 0; });
}

void mc::client::get_here(mc_client* client, Channel& channel, mc_get_item* items,
                          std::size_t count) {
  if (may_be_devices() && std::none_of(items, items + count, bad_item) &&
      begins_on_device({items, count})) {
    return get_to_devices(client, channel, {items, count});
  }
  LookAhead look(channel, count, kAheadBytes, [=](std::size_t i) { return items[i].key; });
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t hash = look.hash(i);
    mc_get_item& item = items[i];
    item.status = bad_item(item) ? MC_INVALID_ARGUMENT
                                 : read_object(channel, item.key, hash, item.pieces,
                                               item.piece_count, item.offset, &item.length);
  }
}

mc_status mc::client::first_failure(const mc_get_item* items, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (items[i].status != MC_OK) return items[i].status;
  }
  return MC_OK;
}

bool mc::client::exist_here(Channel& channel, const mc_slice* keys, std::size_t count,
                            mc_status* statuses) {
  LookAhead look(channel, count, 0, [=](std::size_t i) { return keys[i]; });
  for (std::size_t i = 0; i < count; ++i) {
    if (check_key(keys[i]) != MC_OK) return false;
    const bool there = object_exists(channel, keys[i], look.hash(i), false);
    statuses[i] = there ? MC_OK : MC_NOT_FOUND;
  }
  return true;
}

extern "C" {

// ---- Client -------------------------------------------------------------------------------------

mc_status mc_open(const mc_open_options* options, mc_client** client) noexcept try {
  if (client == nullptr) return invalid("client must not be null");
  *client = nullptr;
  mc_open_options given = MC_OPEN_OPTIONS_INIT;
  if (options != nullptr) {
    if (options->struct_size < sizeof(std::size_t)) {
      return invalid("set mc_open_options.struct_size, or use MC_OPEN_OPTIONS_INIT");
    }
    std::memcpy(static_cast<void*>(&given), options, std::min(options->struct_size, sizeof given));
  }
  if (given.name_space != nullptr &&
      (given.name_space[0] == '\0' || std::strlen(given.name_space) > MC_MAX_NAMESPACE_BYTES)) {
    return invalid("a namespace's name has 1 to 64 bytes (MC_MAX_NAMESPACE_BYTES)");
  }
  if (given.channel_count > MC_MAX_CHANNELS) {
    return invalid("channel_count is at most 64 (MC_MAX_CHANNELS)");
  }
  if (given.staging_bytes > MC_MAX_STAGING_BYTES) {
    return invalid("staging_bytes is at most 4 GiB (MC_MAX_STAGING_BYTES)");
  }
  auto opened = Client::open(given);
  if (!opened) return set_error(opened.error());
  *client = reinterpret_cast<mc_client*>(opened->release());
  return MC_OK;
} catch (...) {
  return caught();
}

void mc_close(mc_client* client) noexcept {
  // An inherited client is leaked on purpose: the client's thread, events and embedded
  // agent belong to the parent, and this process may have mapped other memory at the addresses.
  if (client == nullptr || of(client).inherited_by_fork()) return;
  delete &of(client);
}

mc_status mc_get_client_info(mc_client* client, mc_client_info* info) noexcept try {
  if (client == nullptr || info == nullptr) return invalid("client and info must not be null");
  if (info->struct_size < sizeof *info) return invalid("set mc_client_info.struct_size");
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  const Client::Current now = of(client).current();
  const Memory& memory = *now.connection.memory;
  info->session_id = memory.session_id;
  info->node_id = memory.node_id;
  info->agent_incarnation = now.connection.link->incarnation;
  info->pool_bytes = memory.index.header().pool_bytes.load_relaxed();
  info->isolated = memory.isolated ? 1 : 0;
  info->reserved = 0;
  return MC_OK;
} catch (...) {
  return caught();
}

// ---- Get ----------------------------------------------------------------------------------------

mc_status mc_get(mc_client* client, mc_slice key, void* buffer, size_t capacity,
                 size_t* length) noexcept try {
  if (client == nullptr || (buffer == nullptr && capacity > 0)) {
    return invalid("client and buffer must not be null");
  }
  if (check_key(key) != MC_OK) return invalid(kBadKey);
  std::uint64_t copied = 0;
  mc_status status = MC_OK;
  if (Channel* quick = of(client).quick_channel()) {
    status = read_whole(*quick, key, buffer, capacity, &copied);
  } else {
    auto channel = channel_of(client);
    if (!channel) return set_error(channel.error());
    status = read_whole(**channel, key, buffer, capacity, &copied);
  }
  if (status == MC_NOT_FOUND) status = get_elsewhere(client, key, {buffer, capacity}, &copied);
  if (length != nullptr) *length = copied;
  return status == MC_OK ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_get_batch(mc_client* client, mc_get_item* items, size_t count) noexcept try {
  if (client == nullptr || items == nullptr) return invalid("client and items must not be null");
  if (bad_count(count)) return invalid(kBadCount);
  auto channel = channel_of(client);
  if (!channel) return set_error(channel.error());
  get_here(client, **channel, items, count);
  if (may_be_elsewhere(**channel)) {
    fetch_missing(
        client, **channel, count, [&](std::size_t i) { return items[i].key; },
        [&](std::size_t i) { return items[i].status; },
        [&](std::size_t i, const FetchedObject& fetched) {
          mc_get_item& item = items[i];
          item.status = fetched.status == MC_OK
                            ? read_fetched(**channel, fetched, item.pieces, item.piece_count,
                                           item.offset, &item.length)
                            : fetched.status;
        });
  }
  const mc_status first = first_failure(items, count);
  return first == MC_OK ? MC_OK : set_error(first);
} catch (...) {
  return caught();
}

mc_status mc_get_view(mc_client* client, mc_slice key, mc_view* view) noexcept try {
  if (client == nullptr || view == nullptr) return invalid("client and view must not be null");
  view->pin = 0;
  if (check_key(key) != MC_OK) return invalid(kBadKey);
  auto channel = channel_of(client);
  if (!channel) return set_error(channel.error());
  mc_status status = view_object(**channel, client, key, hash_of(**channel, key), view);
  if (status == MC_NOT_FOUND && may_be_elsewhere(**channel)) {
    FetchedObject fetched;
    fetch_objects(**channel, &key, 1, &fetched, deadline_in(of(client), 0));
    status =
        fetched.status == MC_OK ? view_fetched(**channel, client, fetched, view) : fetched.status;
  }
  if (status == MC_OK) return MC_OK;
  view->pin = 0;
  return set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_get_view_batch(mc_client* client, const mc_slice* keys, size_t count, mc_view* views,
                            mc_status* statuses) noexcept try {
  if (client == nullptr || keys == nullptr || views == nullptr || statuses == nullptr) {
    return invalid("client, keys, views and statuses must not be null");
  }
  if (bad_count(count)) return invalid(kBadCount);
  auto channel = channel_of(client);
  if (!channel) return set_error(channel.error());
  mc_status first = MC_OK;
  LookAhead look(**channel, count, 0, [=](std::size_t i) { return keys[i]; });
  for (std::size_t i = 0; i < count; ++i) {
    views[i].pin = 0;
    const std::uint64_t hash = look.hash(i);
    statuses[i] = check_key(keys[i]);
    if (statuses[i] == MC_OK) {
      statuses[i] = view_object(**channel, client, keys[i], hash, &views[i]);
    }
  }
  if (may_be_elsewhere(**channel)) {
    fetch_missing(
        client, **channel, count, [&](std::size_t i) { return keys[i]; },
        [&](std::size_t i) { return statuses[i]; },
        [&](std::size_t i, const FetchedObject& fetched) {
          statuses[i] = fetched.status == MC_OK
                            ? view_fetched(**channel, client, fetched, &views[i])
                            : fetched.status;
        });
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (statuses[i] != MC_OK) views[i].pin = 0;
    if (first == MC_OK) first = statuses[i];
  }
  return first == MC_OK ? MC_OK : set_error(first);
} catch (...) {
  return caught();
}

// ---- Ask and remove -----------------------------------------------------------------------------

mc_status mc_exists(mc_client* client, mc_slice key) noexcept try {
  if (client == nullptr) return invalid("client must not be null");
  if (check_key(key) != MC_OK) return invalid(kBadKey);
  auto channel = channel_of(client);
  if (!channel) return set_error(channel.error());
  if (object_exists(**channel, key, hash_of(**channel, key), false)) return MC_OK;
  mc_status status = MC_NOT_FOUND;
  if (may_be_elsewhere(**channel)) {
    exist_elsewhere(**channel, &key, 1, &status, nullptr, deadline_in(of(client), 0));
  }
  return status == MC_OK ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_exists_batch(mc_client* client, const mc_slice* keys, size_t count,
                          mc_status* statuses) noexcept try {
  if (client == nullptr || keys == nullptr || statuses == nullptr) {
    return invalid("client, keys and statuses must not be null");
  }
  if (bad_count(count)) return invalid(kBadCount);
  auto channel = channel_of(client);
  if (!channel) return set_error(channel.error());
  if (!exist_here(**channel, keys, count, statuses)) return invalid(kBadKey);
  if (!may_be_elsewhere(**channel)) return MC_OK;
  find_elsewhere(client, **channel, keys, count, statuses, [](std::size_t, std::uint64_t) {});
  return MC_OK;
} catch (...) {
  return caught();
}

mc_status mc_stat(mc_client* client, mc_slice key, mc_stat_info* info) noexcept try {
  mc_status status = MC_OK;
  const mc_status failed = mc_stat_batch(client, &key, 1, info, &status);
  return failed != MC_OK ? failed : status;
} catch (...) {
  return caught();
}

mc_status mc_stat_batch(mc_client* client, const mc_slice* keys, size_t count, mc_stat_info* infos,
                        mc_status* statuses) noexcept try {
  if (client == nullptr || keys == nullptr || infos == nullptr || statuses == nullptr) {
    return invalid("client, keys, infos and statuses must not be null");
  }
  if (bad_count(count)) return invalid(kBadCount);
  auto channel = channel_of(client);
  if (!channel) return set_error(channel.error());
  mc_status first = MC_OK;
  for (std::size_t i = 0; i < count; ++i) {
    if (infos[i].struct_size < sizeof infos[i]) return invalid("set mc_stat_info.struct_size");
    if (check_key(keys[i]) != MC_OK) return invalid(kBadKey);
    statuses[i] = stat_object(**channel, keys[i], hash_of(**channel, keys[i]), &infos[i]);
  }
  if (may_be_elsewhere(**channel)) {
    find_elsewhere(client, **channel, keys, count, statuses,
                   [&](std::size_t i, std::uint64_t length) {
                     const std::size_t struct_size = infos[i].struct_size;
                     infos[i] = {};
                     infos[i].struct_size = struct_size;
                     infos[i].length = length;
                     // An older agent reports only that the object exists.
                     if (length == 0) statuses[i] = MC_NOT_FOUND;
                   });
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (first == MC_OK) first = statuses[i];
  }
  return first == MC_OK ? MC_OK : set_error(first);
} catch (...) {
  return caught();
}

mc_status mc_remove(mc_client* client, mc_slice key, uint64_t timeout_ns) noexcept try {
  mc_status status = MC_OK;
  return mc_remove_batch(client, &key, 1, &status, timeout_ns);
} catch (...) {
  return caught();
}

mc_status mc_remove_batch(mc_client* client, const mc_slice* keys, size_t count,
                          mc_status* statuses, uint64_t timeout_ns) noexcept try {
  if (client == nullptr || keys == nullptr || statuses == nullptr) {
    return invalid("client, keys and statuses must not be null");
  }
  if (bad_count(count)) return invalid(kBadCount);
  for (std::size_t i = 0; i < count; ++i) {
    if (check_key(keys[i]) != MC_OK) return invalid(kBadKey);
  }
  const std::uint64_t deadline_ns = deadline_in(of(client), timeout_ns);
  auto channel = of(client).channel(deadline_ns);
  if (!channel) return set_error(channel.error());
  const Status status = remove_items(**channel, keys, count, statuses, deadline_ns);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_set_pin(mc_client* client, mc_slice key, mc_pin pin, uint64_t pin_ttl_ms,
                     uint64_t timeout_ns) noexcept try {
  if (client == nullptr) return invalid("client must not be null");
  if (check_key(key) != MC_OK) return invalid(kBadKey);
  mc_put_options options = MC_PUT_OPTIONS_INIT;
  options.pin = pin;
  options.pin_ttl_ms = pin_ttl_ms;
  options.timeout_ns = timeout_ns;
  auto rules = rules_from(of(client), &options);
  if (!rules) return set_error(rules.error());
  auto channel = of(client).channel(rules->deadline_ns);
  if (!channel) return set_error(channel.error());
  const Status status = set_pin(**channel, key, pin, rules->pin_ttl_s, rules->deadline_ns);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

// ---- For tools ----------------------------------------------------------------------------------

mc_status mc_ping(mc_client* client, uint64_t timeout_ns) noexcept try {
  if (client == nullptr) return invalid("client must not be null");
  const std::uint64_t deadline_ns = deadline_in(of(client), timeout_ns);
  auto channel = of(client).channel(deadline_ns);
  if (!channel) return set_error(channel.error());
  auto ticket = (*channel)->prepare(0);
  if (!ticket) return set_error(ticket.error());
  (*channel)->submit(*ticket, shm::Op::kNoop, 0, 0, deadline_ns);
  // The agent answers at once, so no answer by the deadline means that the agent is away.
  if (!(*channel)->wait_until(*ticket, deadline_ns)) {
    (*channel)->forget(*ticket);
    return set_error(MC_TIMEOUT);
  }
  (*channel)->finish(*ticket);
  return MC_OK;
} catch (...) {
  return caught();
}

mc_status mc_ask(mc_client* client, mc_slice question, mc_answer_function answer, void* context,
                 uint64_t timeout_ns) noexcept try {
  if (client == nullptr || question.data == nullptr || answer == nullptr) {
    return invalid("client, question and answer must not be null");
  }
  if (question.size == 0 || question.size > MC_MAX_QUESTION_BYTES) {
    return invalid("a question has 1 to 16384 bytes (MC_MAX_QUESTION_BYTES)");
  }
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  if (timeout_ns == 0) timeout_ns = of(client).default_timeout_ns();
  timeout_ns = std::min<std::uint64_t>(timeout_ns, MC_MAX_TIMEOUT_NS);
  auto connection = of(client).connect_to_ask(timeout_ns);
  if (!connection) return set_error(connection.error());
  const auto text = admin_exchange(
      *connection, {static_cast<const char*>(question.data), question.size}, timeout_ns);
  if (!text) return set_error(text.error());
  answer(context, text->data(), text->size());
  return MC_OK;
} catch (...) {
  return caught();
}

int mc_ready(mc_client* client) noexcept {
  return client != nullptr && of(client).quick_channel() != nullptr ? 1 : 0;
}

}  // extern "C"
