// SPDX-License-Identifier: Apache-2.0
//
// What it is: the state that every one-sided requester keeps of a peer, and the table of peers.
//   A backend derives its own peer, which adds lanes and queues.
// Threads: the transport's.
// Owns: a peer owns its link. The table owns the peers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/limits.h"
#include "transport/one_sided/asking_link.h"
#include "transport/one_sided/remote_regions.h"

namespace mc::transport::one_sided {

class Requester;

struct Peer : public Watched {
  Peer(Requester& requester, PeerId number, const PeerSpec& wanted);
  void on_edge(std::uint64_t now_ns) final;
  // Whether at least one lane to the peer is up.
  virtual bool is_up() const = 0;
  // The slots of the peer's devices that its lanes lead to, as bits.
  virtual std::uint64_t remote_slots() const = 0;

  Requester& owner;
  const PeerId id;
  const PeerSpec spec;
  AskingLink link;
  RemoteRegions::Epochs epochs{};
  std::uint64_t version = 1;    // of the epochs
  std::uint64_t used_ns = 0;    // the last time that an operation was open
  std::uint64_t usable_ns = 0;  // the last time that a lane was up, or could have been opened
  std::uint32_t open_operations = 0;
  bool dormant = true;  // its lanes are closed until there is an operation
  bool lost = false;
  bool listed = false;              // the requester is about to pump the peer
  bool waiting_for_credit = false;  // waits until credit is freed
};

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

}  // namespace mc::transport::one_sided
