// SPDX-License-Identifier: Apache-2.0
//
// Two caches of the places of other hosts' objects.
//   - LocationCache: the location of the last read. With a location, an object is read in a single
//     round trip.
//   - HolderCache: the holders of objects whose existence a client asked for, because a get of the
//     same object is likely to follow. With the holders, no question to a master is needed.
//   A stale entry is harmless. The holder refuses a read of a generation that is gone, and the
//   Fetcher then forgets the entry and asks the master.
//
//   Each cache has a young and an old map. An entry that is used moves to the young map. When the
//   young map is full, that map replaces the old map.
// Threads: the agent's loop.
// Owns: at most 2 x kHalf entries per cache. A location has about 150 bytes, a holder list about
//   50 bytes.
// Trusts: nothing; entries are hints.
#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>

#include "agent/cluster/master/master_port.h"
#include "agent/cluster/peer/peer_messages.h"
#include "transport/transport.h"

namespace mc::agent {

struct Location {
  MemberId node = metadata::kNoNode;
  transport::RemoteRegionId region = 0;
  PlaceRow row;
  std::uint32_t uses = 0;
};

struct NameHash {
  std::size_t operator()(const metadata::KeyHash& name) const { return name.lo ^ (name.hi << 1); }
};

// The most recently used entries by name, at most 2 x kHalf.
template <typename Value>
class RecentMap {
 public:
  static constexpr std::size_t kHalf = 65536;

  Value* find(const metadata::KeyHash& name) {
    if (const auto at = young_.find(name); at != young_.end()) return &at->second;
    const auto at = old_.find(name);
    if (at == old_.end()) return nullptr;
    Value value = std::move(at->second);
    old_.erase(at);
    return &put(name, std::move(value));
  }
  Value& put(const metadata::KeyHash& name, Value value) {
    if (young_.size() >= kHalf) {
      old_ = std::move(young_);
      young_ = {};
    }
    old_.erase(name);
    return young_.insert_or_assign(name, std::move(value)).first->second;
  }
  void forget(const metadata::KeyHash& name) {
    young_.erase(name);
    old_.erase(name);
  }
  void clear() {
    young_.clear();
    old_.clear();
  }
  std::size_t count() const { return young_.size() + old_.size(); }

 private:
  using Map = boost::unordered_flat_map<metadata::KeyHash, Value, NameHash>;
  Map young_;
  Map old_;
};

using LocationCache = RecentMap<Location>;

// Up to three holders in the master's order. kNoNode ends a shorter list.
using Holders = std::array<MemberId, 3>;
using HolderCache = RecentMap<Holders>;

}  // namespace mc::agent
