// SPDX-License-Identifier: Apache-2.0
//
// Whether objects exist; and who holds them, for those who ask next where they are.
#include <algorithm>

#include "agent/cluster/fetch/fetcher.h"

namespace mc::agent {

using metadata::KeyHash;

bool Fetcher::ask_known_holders(Fetch& fetch) {
  const Holders* const known = holders_.find(fetch.name);
  if (known == nullptr) return false;
  const auto end = std::ranges::find(*known, metadata::kNoNode);
  fetch.holders = peers_.reading_order(fetch.name, {known->begin(), end});
  holders_.forget(fetch.name);
  if (fetch.holders.empty() || !peers_.id_of(fetch.holders.front())) return false;
  ++counters_.holder_hits;
  fetch.next_holder = 0;
  fetch.step = Step::kAsk;
  to_ask_.push_back(fetch.id);
  return true;
}

void Fetcher::exists(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
                     std::uint64_t now_ns) {
  std::vector<KeyHash> names;
  std::vector<std::size_t> items;
  for (std::size_t i = 0; i < remote_request->items.size(); ++i) {
    RemoteRequest::Item& item = remote_request->items[i];
    if (!item.open || serve_locally(*remote_request, item, tenant)) continue;
    const KeyHash name = tenant.name_of(item.key);
    if (!masters_.of(name).ready()) {
      const Location* const known = locations_.find(name);
      counters_.master_away += known != nullptr ? 0 : 1;
      item.length = known != nullptr ? known->row.length : 0;
      remote_request->settle(item, known != nullptr ? MC_OK : MC_NOT_FOUND);
      ended_ = true;
      continue;
    }
    names.push_back(name);
    items.push_back(i);
  }
  counters_.located += names.size();
  for (const Masters::Part& part : masters_.split(names)) {
    metadata::wire::Locate request;
    request.host = reader_.host;
    request.zone = reader_.zone;
    std::vector<std::size_t> asked;
    for (const std::size_t place : part.places) {
      request.keys.push_back(names[place]);
      asked.push_back(items[place]);
    }
    ask_whether_there(remote_request, std::move(asked), request, now_ns);
  }
}

void Fetcher::ask_whether_there(const std::shared_ptr<RemoteRequest>& remote_request,
                                std::vector<std::size_t> items,
                                const metadata::wire::Locate& request, std::uint64_t now_ns) {
  MasterPort& port = masters_.of(request.keys.front());
  port.locate(request, std::min(remote_request->deadline_ns, now_ns + kMostLocateNs),
              [this, remote_request, asked = std::move(items), names = request.keys,
               alive = std::weak_ptr(alive_)](const Result<metadata::LocateAnswer>& answer) {
                if (alive.expired()) return;
                for (std::size_t i = 0; i < asked.size(); ++i) {
                  const bool found = answer && i < answer->keys.size() && answer->keys[i].whole();
                  RemoteRequest::Item& item = remote_request->items[asked[i]];
                  item.length = found ? answer->keys[i].bytes : 0;
                  if (found) note_holders(names[i], *answer, answer->keys[i]);
                  remote_request->settle(item, found ? MC_OK : MC_NOT_FOUND);
                }
                ended_ |= remote_request->over();
              });
}

void Fetcher::note_holders(const KeyHash& name, const metadata::LocateAnswer& answer,
                           const metadata::Located& located) {
  if (located.attributes.striped) return;
  Holders holders;
  holders.fill(metadata::kNoNode);
  const auto named = answer.holders_of(located);
  std::ranges::copy(named.first(std::min(named.size(), holders.size())), holders.begin());
  holders_.put(name, holders);
}

}  // namespace mc::agent
