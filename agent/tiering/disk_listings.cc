// SPDX-License-Identifier: Apache-2.0
#include "agent/tiering/disk_listings.h"

#include <algorithm>
#include <utility>

namespace mc::agent {

namespace {

constexpr std::ptrdiff_t kStepsAtOnce = 8;            // of all listings
constexpr std::uint64_t kListingPauseNs = 1'000'000;  // while all listings wait for disks

}  // namespace

std::optional<std::uint64_t> DiskListings::begin(const TieredPool& pool, std::string prefix,
                                                 std::uint64_t since_sequence,
                                                 std::uint64_t now_ns) {
  if (listings_.size() >= kMost) {
    const auto age = [](const auto& listing) {
      return listing.second.done ? UINT64_MAX : listing.second.used_ns;
    };
    const auto oldest = std::min_element(
        listings_.begin(), listings_.end(),
        [&](const auto& left, const auto& right) { return age(left) < age(right); });
    if (oldest->second.done) return std::nullopt;
    listings_.erase(oldest);
  }
  // A client may ask an agent that has started again: no two agents of a host begin with the same number.
  const std::uint64_t number = std::max(next_number_, now_ns);
  next_number_ = number + 1;
  listings_.emplace(number, Listing{.pool = &pool,
                                    .prefix = std::move(prefix),
                                    .since_sequence = since_sequence,
                                    .keys = DiskKeys(log_, demoter_, pool, true),
                                    .used_ns = now_ns});
  return number;
}

void DiskListings::next_page(const TieredPool& pool, PageId id, std::size_t limit,
                             std::uint64_t now_ns, Done done) {
  const auto found = listings_.find(id.listing);
  if (found == listings_.end() || found->second.pool != &pool || found->second.page != id.page) {
    return done(std::nullopt);
  }
  Listing& listing = found->second;
  // The client has asked again.
  if (Done before = std::exchange(listing.done, std::move(done))) before(std::nullopt);
  listing.limit = limit;
  listing.used_ns = now_ns;
  next_ns_ = 0;
}

// Returns false if the listing waits for a disk.
bool DiskListings::go_on(Listing& listing) {
  const auto next = listing.keys.go_on([&](const SharedObject& object, std::string_view key) {
    if (key.empty() || !key.starts_with(listing.prefix)) return;
    const std::uint32_t entry = listing.pool->find(listing.pool->object(key));
    if (entry != kNoEntry) {
      ObjectIndex& index = listing.pool->store().index();
      const std::uint64_t version = index.entry(entry).version.load_relaxed();
      if (shm::sequence_of(version) < listing.since_sequence) return;
    }
    listing.found.push_back({std::string(key), object.length});
  });
  listing.over = next == LocalDisks::Keys::Next::kOver;
  return next != LocalDisks::Keys::Next::kWaits;
}

DiskListings::Page DiskListings::page_of(Listing& listing) {
  Page page;
  while (!listing.found.empty() && page.objects.size() < listing.limit) {
    page.objects.push_back(std::move(listing.found.front()));
    listing.found.pop_front();
  }
  page.more = !listing.over || !listing.found.empty();
  return page;
}

void DiskListings::advance(std::uint64_t now_ns) {
  next_ns_ = UINT64_MAX;
  const auto pending = std::count_if(listings_.begin(), listings_.end(), [](const auto& listing) {
    return static_cast<bool>(listing.second.done);
  });
  const std::ptrdiff_t steps =
      pending == 0 ? 0 : std::max<std::ptrdiff_t>(kStepsAtOnce / pending, 1);
  std::vector<std::pair<Done, Page>> pages;
  for (auto at = listings_.begin(); at != listings_.end();) {
    Listing& listing = at->second;
    bool ends = !listing.done && now_ns > listing.used_ns + kIdleNs;
    // A listing that rests holds no bytes of a disk, since other walks wait for them.
    const auto is_ready = [&] {
      return listing.over || (listing.found.size() >= listing.limit && !listing.keys.is_reading());
    };
    bool waits = false;
    if (listing.done) {
      for (std::ptrdiff_t i = 0; i < steps && !is_ready() && !waits; ++i) waits = !go_on(listing);
      if (!is_ready()) {
        next_ns_ = std::min(next_ns_, waits ? now_ns + kListingPauseNs : 0);
      } else {
        pages.emplace_back(std::exchange(listing.done, {}), page_of(listing));
        ends = !pages.back().second.more;
        listing.used_ns = now_ns;
        ++listing.page;
      }
    }
    at = ends ? listings_.erase(at) : std::next(at);
  }
  for (auto& [done, page] : pages) done(std::move(page));
}

}  // namespace mc::agent
