// SPDX-License-Identifier: Apache-2.0
//
// Requests that involve the cluster: objects that are fetched, looked up or removed on other hosts,
// and puts that end when the master knows the objects.
#include <algorithm>

#include "agent/server/server.h"
#include "libmc/base/clock.h"

namespace mc::agent {

[[gnu::hot]] void Server::announce(Work& work, std::uint32_t number, std::uint32_t entry) {
  const bool waits = cluster_ != nullptr && work.session->tenant->clustered &&
                     (work.request.flags & shm::kFlagLocal) == 0;
  if (!waits) return;
  if (!work.remote_request) {
    work.remote_request = std::make_shared<RemoteRequest>();
    work.remote_request->kind = RemoteRequest::Kind::kAnnounce;
  }
  RemoteRequest::Item item;
  item.entry = entry;
  item.number = number;
  work.remote_request->items.push_back(std::move(item));
}

[[gnu::hot]] Server::Step Server::finish_put(Work& work) {
  if (work.remote_request) return send_away(work);
  complete(work, work.first_failure);
  return Step::kDone;
}

Server::Step Server::ask_cluster(Work& work, RemoteRequest::Kind kind) {
  Session& session = *work.session;
  if (cluster_ == nullptr || !session.tenant->clustered) {
    complete(work, MC_UNSUPPORTED);
    return Step::kDone;
  }
  work.remote_request = std::make_shared<RemoteRequest>();
  work.remote_request->kind = kind;
  shm::Channel& shared = *session.channels[work.channel].shared;
  while (work.remote_request->items.size() < work.request.item_count && next_item(work)) {
    const shm::PutItem& fields = work.item.fields;
    RemoteRequest::Item item;
    item.key.assign(reinterpret_cast<const char*>(work.item.key), fields.key_bytes);
    item.number = static_cast<std::uint32_t>(work.remote_request->items.size());
    work.has_item = false;
    if (item.key.empty() || fields.pin_slot >= shm::kPinSlots) break;
    // The slot lies in the session's own memory: a slot in use harms that session alone.
    if (kind == RemoteRequest::Kind::kFetch) item.pin = &shared.pins[fields.pin_slot];
    work.remote_request->items.push_back(std::move(item));
  }
  if (work.remote_request->items.size() == work.request.item_count) return send_away(work);
  work.remote_request.reset();
  complete(work, MC_INVALID_ARGUMENT);
  return Step::kDone;
}

Server::Step Server::send_away(Work& work) {
  work.remote_request->tenant = work.session->tenant;
  work.remote_request->deadline_ns =
      std::min<std::uint64_t>(work.request.deadline_ns, now_ns() + MC_MAX_TIMEOUT_NS);
  cluster_->begin(work.remote_request, now_ns());
  if (!work.remote_request->over()) return Step::kAway;
  finish_remote_request(work);
  return Step::kDone;
}

void Server::finish_remote_request(Work& work) {
  const RemoteRequest& remote_request = *work.remote_request;
  if (remote_request.kind != RemoteRequest::Kind::kAnnounce) {
    for (const RemoteRequest::Item& item : remote_request.items) {
      const bool done = item.status == MC_OK;
      finish_item(work, item.status,
                  {MC_OK, done ? item.entry : kNoEntry, done ? item.length : 0, 0});
    }
    complete(work, work.first_failure);
    return;
  }
  // The results are written already; a put that the cluster refused overrides its result.
  for (const RemoteRequest::Item& item : remote_request.items) {
    if (item.status == MC_OK) continue;
    if (work.first_failure == MC_OK) work.first_failure = item.status;
    if (work.request.item_count == 1) {
      work.last.status = item.status;
      continue;
    }
    const std::int32_t status = item.status;
    auto* arguments = work.session->channels[work.channel].shared->arguments;
    std::memcpy(arguments + work.request.argument_offset + item.number * sizeof(shm::ItemResult) +
                    offsetof(shm::ItemResult, status),
                &status, sizeof status);
  }
  complete(work, work.first_failure);
}

void Server::finish_remote_requests(std::uint64_t now_ns) {
  for (auto it = away_.begin(); it != away_.end();) {
    RemoteRequest& remote_request = *it->remote_request;
    if (!remote_request.over() && now_ns < remote_request.deadline_ns) {
      ++it;
      continue;
    }
    if (!remote_request.over()) {
      remote_request.abandoned = true;
      for (RemoteRequest::Item& item : remote_request.items)
        remote_request.settle(item, MC_TIMEOUT);
    }
    finish_remote_request(*it);
    it = stop_waiting(away_, it);
  }
  const auto placed = [](const Work& work) {
    return work.elsewhere.remote_request && work.elsewhere.remote_request->over();
  };
  if (std::ranges::any_of(waiting_, placed)) retry_waiting(now_ns);
}

}  // namespace mc::agent
