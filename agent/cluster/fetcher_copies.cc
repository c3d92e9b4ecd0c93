// SPDX-License-Identifier: Apache-2.0
//
// Copies: objects of other hosts that this one keeps, because they were asked for again or a master
// ordered it; and what must not be kept, because it was dropped meanwhile.
#include "agent/cluster/fetcher.h"

namespace mc::agent {

using metadata::KeyHash;

namespace {

constexpr std::uint64_t kCopyNs = 5'000'000'000;
constexpr std::size_t kMaxCopies = 16;  // fetches under way, readers' own included

}  // namespace

void Fetcher::copy(const std::vector<ClusterTenant*>& tenants, const KeyHash& name, MemberId source,
                   std::uint64_t deadline_ns, Ended ended) {
  for (ClusterTenant* const tenant : tenants) {
    if (tenant->find(name) == kNoEntry) continue;
    ended(MC_OK);
    return;
  }
  Fetch& fetch = start(nullptr, name, deadline_ns);
  fetch.candidates = tenants;
  fetch.ended = std::move(ended);
  fetch.keep = true;
  fetch.holders = {source};
  fetch.step = Step::kAsk;
  to_ask_.push_back(fetch.id);
}

void Fetcher::mark_dropped(Fetch& fetch) {
  fetch.dropped = true;
  const auto same = by_name_.find(fetch.name);
  if (same != by_name_.end() && same->second == fetch.id) by_name_.erase(same);
}

void Fetcher::dropped(const KeyHash& name, std::uint64_t up_to_version) {
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->name == name && fetch->at.row.version <= up_to_version) mark_dropped(*fetch);
  }
}

void Fetcher::dropped(const ClusterTenant& tenant) {
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->tenant == nullptr || fetch->tenant == &tenant) mark_dropped(*fetch);
  }
}

void Fetcher::report_begun() {
  for (const auto& [id, fetch] : fetches_) {
    if (fetch->verdict_in) mark_dropped(*fetch);
  }
}

metadata::PublishItem Fetcher::item_of(const Fetch& fetch) {
  metadata::PublishItem item;
  item.hash = fetch.name;
  item.version = fetch.at.row.version;
  item.bytes = fetch.at.row.length;
  item.attributes.pin = static_cast<metadata::Pin>(fetch.at.row.pin);
  item.attributes.replicas = fetch.at.row.replicas;
  return item;
}

// A copy is known to the master before anybody here can find it: what is removed or replaced
// meanwhile will be removed here too. Goes on beside the reading.
void Fetcher::offer(Fetch& fetch) {
  // Another holder, or the same one later, has another version: the verdict is not about that.
  if (fetch.offered && fetch.offer.version != fetch.at.row.version) mark_dropped(fetch);
  if (!fetch.keep || fetch.offered) return;
  fetch.offered = true;
  fetch.offer = item_of(fetch);
  const metadata::PublishItem item = fetch.offer;
  announcer_.offer(
      item, fetch.deadline_ns,
      [this, item, id = fetch.id, alive = std::weak_ptr(alive_)](metadata::Verdict verdict) {
        if (alive.expired()) return;
        Fetch* const offered = find(id);
        if (offered == nullptr || offered->missed) {
          if (verdict == metadata::Verdict::kAccepted) withdraw(item, id);
          return;
        }
        offered->verdict = verdict;
        offered->verdict_in = true;
        if (offered->read_in) deliver(*offered);
      });
}

// The master has one word of this node about an object, whoever gave it: not taken back while
// another fetch has brought the same version, or still may.
void Fetcher::withdraw(const metadata::PublishItem& item, std::uint64_t of) {
  for (const auto& [id, other] : fetches_) {
    if (id != of && other->offered && !other->missed && other->name == item.hash &&
        other->offer.version == item.version) {
      return;
    }
  }
  announcer_.withdraw(item);
}

// Reads what was lent a moment ago once more, to keep it: its readers did not wait for the master.
void Fetcher::begin_copies(std::uint64_t now_ns) {
  while (!hot_.empty() && now_ns >= hot_.front().due_ns && fetches_.size() < kMaxCopies) {
    Hot hot = std::move(hot_.front());
    hot_.pop_front();
    if (by_name_.contains(hot.name) || hot.tenant->find(hot.name) != kNoEntry) continue;
    Fetch& copy = start(hot.tenant, hot.name, now_ns + kCopyNs);
    copy.key = std::move(hot.key);
    copy.keep = true;
    copy.from_cache = true;
    copy.at = std::move(hot.at);
    copy.try_until_ns = copy.deadline_ns;
    copy.step = Step::kRoom;
    seek_room(copy, now_ns);
  }
}

// The live entry that holds the object from now on, or kNoEntry if it must not be kept.
std::uint32_t Fetcher::keep_copy(Fetch& fetch) {
  if (fetch.dropped || fetch.verdict != metadata::Verdict::kAccepted) return kNoEntry;
  Store& store = fetch.tenant->store();
  PutOrder order;
  order.key = fetch.key;
  order.entry = fetch.entry;
  order.length = fetch.at.row.length;
  order.checksum = fetch.at.row.checksum;
  order.parent_hash = fetch.at.row.parent_hash;
  order.replicas = fetch.at.row.replicas;
  fetch.tenant->expect_copy(fetch.at.row.version);
  const Store::Put result = store.publish(kClusterSession, order);
  fetch.tenant->expect_copy(0);
  if (result == Store::Put::kStored) {
    ++counters_.kept;
    fetch.kept = true;
    // One copy is enough: should it be evicted soon, that is told of all of them.
    for (const auto& [id, other] : fetches_) {
      if (id != fetch.id && other->name == fetch.name) mark_dropped(*other);
    }
    return std::exchange(fetch.entry, kNoEntry);
  }
  if (result != Store::Put::kExisted && result != Store::Put::kNoSpace) fetch.entry = kNoEntry;
  return kNoEntry;
}

}  // namespace mc::agent
