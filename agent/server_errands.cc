// SPDX-License-Identifier: Apache-2.0
//
// Requests that the cluster has a part in: what is fetched, asked for or removed elsewhere, and
// puts that end when the master knows of them.
#include <algorithm>

#include "agent/server.h"
#include "libmc/base/clock.h"

namespace mc::agent {

[[gnu::hot]] void Server::announce(Work& work, std::uint32_t number, std::uint32_t entry) {
  const bool waits = cluster_ != nullptr && work.session->tenant->clustered &&
                     (work.request.flags & shm::kFlagLocal) == 0;
  if (!waits) return;
  if (!work.errand) {
    work.errand = std::make_shared<Errand>();
    work.errand->kind = Errand::Kind::kAnnounce;
  }
  Errand::Item item;
  item.entry = entry;
  item.number = number;
  work.errand->items.push_back(std::move(item));
}

[[gnu::hot]] Server::Step Server::finish_put(Work& work) {
  if (work.errand) return send_away(work);
  complete(work, work.first_failure);
  return Step::kDone;
}

Server::Step Server::ask_cluster(Work& work, Errand::Kind kind) {
  Session& session = *work.session;
  if (cluster_ == nullptr || !session.tenant->clustered) {
    complete(work, MC_UNSUPPORTED);
    return Step::kDone;
  }
  work.errand = std::make_shared<Errand>();
  work.errand->kind = kind;
  shm::Channel& shared = *session.channels[work.channel].shared;
  while (work.errand->items.size() < work.request.item_count && next_item(work)) {
    const shm::PutItem& fields = work.item.fields;
    Errand::Item item;
    item.key.assign(reinterpret_cast<const char*>(work.item.key), fields.key_bytes);
    item.number = static_cast<std::uint32_t>(work.errand->items.size());
    work.has_item = false;
    if (item.key.empty() || fields.staging_offset >= shm::kPinSlots) break;
    // Its own session's memory: a slot that is in use harms that session alone.
    if (kind == Errand::Kind::kFetch) item.pin = &shared.pins[fields.staging_offset];
    work.errand->items.push_back(std::move(item));
  }
  if (work.errand->items.size() == work.request.item_count) return send_away(work);
  work.errand.reset();
  complete(work, MC_INVALID_ARGUMENT);
  return Step::kDone;
}

Server::Step Server::send_away(Work& work) {
  work.errand->tenant = work.session->tenant;
  work.errand->deadline_ns =
      std::min<std::uint64_t>(work.request.deadline_ns, now_ns() + MC_MAX_TIMEOUT_NS);
  cluster_->begin(work.errand, now_ns());
  if (!work.errand->over()) return Step::kAway;
  finish_errand(work);
  return Step::kDone;
}

void Server::finish_errand(Work& work) {
  const Errand& errand = *work.errand;
  if (errand.kind != Errand::Kind::kAnnounce) {
    for (const Errand::Item& item : errand.items) {
      const bool done = item.status == MC_OK;
      finish_item(work, item.status, {MC_OK, done ? item.entry : kNoEntry, done ? item.length : 0});
    }
    complete(work, work.first_failure);
    return;
  }
  // The results stand there already; a put that the cluster did not take overrules its own.
  for (const Errand::Item& item : errand.items) {
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

void Server::finish_errands(std::uint64_t now_ns) {
  for (auto it = away_.begin(); it != away_.end();) {
    Errand& errand = *it->errand;
    if (!errand.over() && now_ns < errand.deadline_ns) {
      ++it;
      continue;
    }
    if (!errand.over()) {
      errand.abandoned = true;
      for (Errand::Item& item : errand.items) errand.settle(item, MC_TIMEOUT);
    }
    finish_errand(*it);
    it = stop_waiting(away_, it);
  }
  const auto placed = [](const Work& work) {
    return work.elsewhere.errand && work.elsewhere.errand->over();
  };
  if (std::ranges::any_of(waiting_, placed)) retry_waiting(now_ns);
}

}  // namespace mc::agent
