// SPDX-License-Identifier: Apache-2.0
//
// Objects that lie in stripes on several hosts: the Gatherer reads them, and they are lent as any
// other. They are never kept as copies.
#include "agent/cluster/fetch/fetcher.h"

namespace mc::agent {

using metadata::Located;

namespace {

constexpr std::uint64_t kAgainNs = 5'000'000;
// How long an object may lack some of its hosts: it is being sealed, or replaced.
constexpr std::uint64_t kIncompleteNs = 500'000'000;

}  // namespace

// False: it has waited long enough for what is missing.
bool Fetcher::locate_again(Fetch& fetch) {
  if (fetch.patience_ns == 0) fetch.patience_ns = now_ns_ + kIncompleteNs;
  if (now_ns_ >= std::min(fetch.patience_ns, fetch.deadline_ns)) return false;
  fetch.not_before_ns = now_ns_ + kAgainNs;
  fetch.step = Step::kLocate;
  to_locate_.push_back(fetch.id);
  return true;
}

void Fetcher::gather(Fetch& fetch, const Located& located, std::span<const MemberId> holders) {
  if (fetch.ended != nullptr || fetch.keep) {
    return miss(fetch, MC_UNSUPPORTED, counters_.holders_failed);
  }
  if (!located.whole()) {
    if (!locate_again(fetch)) miss(fetch, MC_NOT_FOUND, counters_.incomplete);
    return;
  }
  fetch.step = Step::kGathering;
  fetch.try_until_ns = fetch.deadline_ns;
  fetch.at = {};
  fetch.hot = false;
  fetch.at.row.version = located.version;
  fetch.at.row.length = located.bytes;
  Gatherer::Wanted wanted;
  wanted.name = fetch.name;
  wanted.version = located.version;
  wanted.bytes = located.bytes;
  wanted.holders.assign(holders.begin(), holders.end());
  wanted.deadline_ns = fetch.deadline_ns;
  fetch.gather =
      gatherer_.gather(*fetch.tenant, std::move(wanted),
                       [this, id = fetch.id, alive = std::weak_ptr(alive_)](
                           mc_status status, std::uint32_t entry, const StripeFacts& facts) {
                         Fetch* const gathered = alive.expired() ? nullptr : find(id);
                         if (gathered != nullptr) on_gathered(*gathered, status, entry, facts);
                       });
}

void Fetcher::on_gathered(Fetch& fetch, mc_status status, std::uint32_t entry,
                          const StripeFacts& facts) {
  fetch.gather = 0;
  if (status != MC_OK) {
    const bool lacks = status != MC_NO_SPACE;
    if (lacks && locate_again(fetch)) return;
    return miss(fetch, MC_NOT_FOUND, lacks ? counters_.incomplete : counters_.no_room);
  }
  fetch.entry = entry;
  fetch.at.row.length = facts.whole_bytes;
  fetch.at.row.checksum = facts.whole_sum;
  ++counters_.read_objects;
  counters_.read_bytes += facts.whole_bytes;
  deliver(fetch);
}

}  // namespace mc::agent
