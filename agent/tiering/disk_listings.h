// SPDX-License-Identifier: Apache-2.0
//
// Listings of the objects that are on this host's disks, for a client that asks for page after page. A listing
//   follows the pages with the objects of the pool.
// Threads: the agent's loop.
// Owns: the walks, and keys that were found and wait for a page.
// Trusts: not the clients. A client may leave a listing, or ask for a page of another client's listing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/tiering/disk_keys.h"

namespace mc::agent {

class DiskListings {
 public:
  struct Object {
    std::string key;
    std::uint64_t length = 0;
  };
  struct Page {
    std::vector<Object> objects;
    bool more = false;
  };
  // A listing, and the number of its next page, from 0 on.
  struct PageId {
    std::uint64_t listing = 0;
    std::uint64_t page = 0;
  };
  // Nothing: the listing has ended, because others have begun or because nobody asked for a page; or this is
  // not its next page; or somebody has asked for the page again.
  using Done = std::function<void(std::optional<Page>)>;
  static constexpr std::size_t kMost =
      16;  // listings; then the one that was used least recently ends
  static constexpr std::uint64_t kIdleNs = 60'000'000'000;

  DiskListings(const tier::Log& log, const Demoter& demoter) : log_(log), demoter_(demoter) {}

  // The number of the listing; nothing if kMost listings are being read. since_sequence: the pool's next sequence
  // when the pool was listed first. The pool's pages have named the objects in entries with lower ones.
  std::optional<std::uint64_t> begin(const TieredPool& pool, std::string prefix,
                                     std::uint64_t since_sequence, std::uint64_t now_ns);
  // done: called from advance(), or at once if there is no such page.
  void next_page(const TieredPool& pool, PageId id, std::size_t limit, std::uint64_t now_ns,
                 Done done);
  void advance(std::uint64_t now_ns);
  std::uint64_t next_ns() const { return next_ns_; }

 private:
  struct Listing {
    const TieredPool* pool;
    std::string prefix;
    std::uint64_t since_sequence;
    DiskKeys keys;
    std::deque<Object> found = {};
    bool over = false;
    std::uint64_t page = 0;  // the next one
    std::uint64_t used_ns = 0;
    std::size_t limit = 0;
    Done done = {};  // of the page that a client waits for
  };
  static bool go_on(Listing& listing);
  static Page page_of(Listing& listing);

  const tier::Log& log_;
  const Demoter& demoter_;
  std::map<std::uint64_t, Listing> listings_;
  std::uint64_t next_number_ = 1;
  std::uint64_t next_ns_ = UINT64_MAX;
};

}  // namespace mc::agent
