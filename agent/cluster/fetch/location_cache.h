// SPDX-License-Identifier: Apache-2.0
//
// What it is: where objects of other hosts were when last asked about: enough to read one in a
//   single round trip (LocationCache), or to ask its holder without the master (HolderCache: of
//   what was asked whether it exists, which is got next, most likely). Never trusted further than
//   that: the holder refuses a generation that is no more, or says that it holds no such object,
//   and then the entry is forgotten and the master asked.
//
//   Two maps, a young and an old one; what is used moves to the young one, and when that is full
//   the old one goes.
// Threads: the agent's loop. Owns: at most 2 x kHalf entries of about 150 bytes, and as many of
//   about 50.
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

// What has been used lately, by name: at most 2 x kHalf of them.
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

// Who holds it, in the order in which the master named them; kNoNode: nobody more.
using Holders = std::array<MemberId, 3>;
using HolderCache = RecentMap<Holders>;

}  // namespace mc::agent
