// SPDX-License-Identifier: Apache-2.0
//
// The peers of a transport by id: index and generation of a slot, so that the id
//   of a closed peer finds no other peer.
// Threads: the transport's.
// Owns: the peers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/limits.h"
#include "transport/transport.h"

namespace mc::transport {

// REQUIRES: Peer has the member `PeerId id`, which make(id) sets.
template <typename Peer>
class PeerTable {
 public:
  // Adds the peer that make(id) returns. Null: kMaxPeers are in the table.
  template <typename Make>
  Peer* add(Make make) {
    std::uint32_t slot = 0;
    while (slot < rows_.size() && rows_[slot]) ++slot;
    if (slot >= kMaxPeers) return nullptr;
    if (slot == rows_.size()) {
      rows_.emplace_back();
      generations_.push_back(0);
    }
    rows_[slot] = make((std::uint64_t{++generations_[slot]} << 32) | (slot + 1));
    return rows_[slot].get();
  }
  Peer* find(PeerId id) const {
    const std::uint32_t slot = static_cast<std::uint32_t>(id) - 1;
    return slot < rows_.size() && rows_[slot] && rows_[slot]->id == id ? rows_[slot].get()
                                                                       : nullptr;
  }
  // REQUIRES: find(id) is not null.
  void remove(PeerId id) { rows_[static_cast<std::uint32_t>(id) - 1].reset(); }
  bool empty() const {
    for (const auto& peer : rows_) {
      if (peer) return false;
    }
    return true;
  }
  template <typename Visit>
  void each(Visit visit) const {
    for (const auto& peer : rows_) {
      if (peer) visit(*peer);
    }
  }

 private:
  std::vector<std::unique_ptr<Peer>> rows_;  // by the low half of the id
  std::vector<std::uint32_t> generations_;
};

}  // namespace mc::transport
