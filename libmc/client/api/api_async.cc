// SPDX-License-Identifier: Apache-2.0
//
// The C ABI over Client: the asynchronous forms and their completion queues.
#include <algorithm>

#include "libmc/client/api/api.h"
#include "libmc/client/completion_queue.h"
#include "libmc/client/reading.h"
#include "libmc/client/remote.h"

using namespace mc;
using namespace mc::client;

struct mc_cq {
  Client* client;
  std::unique_ptr<CompletionQueue> queue;
};

namespace {

constexpr const char* kBadQueue =
    "client, cq and items must not be null, and cq must be the client's";

bool bad_queue(mc_client* client, const mc_cq* cq) {
  return client == nullptr || cq == nullptr || cq->client != &of(client);
}

}  // namespace

extern "C" {

// ---- Asynchronous forms -------------------------------------------------------------------------

mc_status mc_cq_create(mc_client* client, mc_cq** cq) noexcept try {
  if (client == nullptr || cq == nullptr) return invalid("client and cq must not be null");
  auto queue = CompletionQueue::create(of(client));
  if (!queue) return set_error(queue.error());
  *cq = new mc_cq{&of(client), std::move(*queue)};
  return MC_OK;
} catch (...) {
  return caught();
}

void mc_cq_destroy(mc_cq* cq) noexcept { delete cq; }

int mc_cq_fd(mc_cq* cq) noexcept { return cq != nullptr ? cq->queue->fd() : -1; }

size_t mc_cq_poll(mc_cq* cq, mc_completion* completions, size_t capacity) noexcept try {
  if (cq == nullptr || completions == nullptr || cq->client->inherited_by_fork()) return 0;
  return cq->queue->poll(completions, capacity);
} catch (...) {
  static_cast<void>(caught());
  return 0;
}

mc_status mc_cq_wait(mc_cq* cq, mc_completion* completions, size_t capacity, size_t* count,
                     uint64_t timeout_ns) noexcept try {
  if (cq == nullptr || completions == nullptr || count == nullptr || capacity == 0) {
    return invalid("cq, completions and count must not be null, capacity not 0");
  }
  if (cq->client->inherited_by_fork()) return set_error(MC_FORKED);
  *count = cq->queue->wait(completions, capacity,
                           std::min<std::uint64_t>(timeout_ns, MC_MAX_TIMEOUT_NS));
  return *count > 0 ? MC_OK : set_error(MC_TIMEOUT);
} catch (...) {
  return caught();
}

mc_status mc_put_async(mc_client* client, mc_cq* cq, const mc_put_item* items, size_t count,
                       const mc_put_options* options, uint64_t user_data,
                       uint64_t* request) noexcept try {
  if (bad_queue(client, cq) || items == nullptr) return invalid(kBadQueue);
  if (bad_count(count)) return invalid(kBadCount);
  if (group_of(options) != nullptr) {
    return invalid("asynchronous puts cannot join a group");
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (const mc_status bad = check_item(items[i]); bad != MC_OK) return set_error(bad);
  }
  auto rules = rules_from(of(client), options);
  if (!rules) return set_error(rules.error());
  const Status status = cq->queue->put(items, count, *rules, user_data, request);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_get_async(mc_client* client, mc_cq* cq, mc_get_item* items, size_t count,
                       uint64_t user_data, uint64_t* request) noexcept try {
  if (bad_queue(client, cq) || items == nullptr) return invalid(kBadQueue);
  if (bad_count(count)) return invalid(kBadCount);
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  bool elsewhere = false;
  {
    auto channel = channel_of(client);
    if (!channel) return set_error(channel.error());
    get_here(client, **channel, items, count);
    elsewhere = may_be_elsewhere(**channel);
  }
  const bool missing = std::any_of(
      items, items + count, [](const mc_get_item& item) { return item.status == MC_NOT_FOUND; });
  if (!missing || !elsewhere) {
    cq->queue->complete_now(first_failure(items, count), count, user_data, request);
    return MC_OK;
  }
  const Status status =
      cq->queue->get(items, count, deadline_in(of(client), 0), user_data, request);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_exists_async(mc_client* client, mc_cq* cq, const mc_slice* keys, size_t count,
                          mc_status* statuses, uint64_t user_data, uint64_t* request) noexcept try {
  if (bad_queue(client, cq) || keys == nullptr || statuses == nullptr) return invalid(kBadQueue);
  if (bad_count(count)) return invalid(kBadCount);
  bool elsewhere = false;
  {
    auto channel = channel_of(client);
    if (!channel) return set_error(channel.error());
    if (!exist_here(**channel, keys, count, statuses)) return invalid(kBadKey);
    elsewhere = may_be_elsewhere(**channel);
  }
  const bool all =
      std::all_of(statuses, statuses + count, [](mc_status status) { return status == MC_OK; });
  if (all || !elsewhere) {
    cq->queue->complete_now(MC_OK, count, user_data, request);
    return MC_OK;
  }
  const Status status =
      cq->queue->exists(keys, count, statuses, deadline_in(of(client), 0), user_data, request);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_remove_async(mc_client* client, mc_cq* cq, const mc_slice* keys, size_t count,
                          uint64_t timeout_ns, uint64_t user_data, uint64_t* request) noexcept try {
  if (bad_queue(client, cq) || keys == nullptr) return invalid(kBadQueue);
  if (bad_count(count)) return invalid(kBadCount);
  for (std::size_t i = 0; i < count; ++i) {
    if (check_key(keys[i]) != MC_OK) return invalid(kBadKey);
  }
  const Status status =
      cq->queue->remove(keys, count, deadline_in(of(client), timeout_ns), user_data, request);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

mc_status mc_cancel(mc_client* client, mc_cq* cq, uint64_t request) noexcept try {
  if (bad_queue(client, cq)) return invalid(kBadQueue);
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  const Status status = cq->queue->cancel(request);
  return status.ok() ? MC_OK : set_error(status);
} catch (...) {
  return caught();
}

}  // extern "C"
