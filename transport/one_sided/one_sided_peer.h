// SPDX-License-Identifier: Apache-2.0
//
// The state that every one-sided requester keeps of a peer. A backend derives its own
//   peer, which adds lanes and queues.
// Threads: the transport's.
// Owns: the link.
#pragma once

#include <cstdint>

#include "transport/flow/peer_table.h"
#include "transport/one_sided/asking_link.h"
#include "transport/one_sided/remote_regions.h"

namespace mc::transport::one_sided {

class Requester;

struct OneSidedPeer : public Watched {
  OneSidedPeer(Requester& requester, PeerId number, const PeerSpec& wanted);
  void on_edge(std::uint64_t now_ns) final;
  // Whether at least one lane to the peer is up.
  virtual bool is_up() const = 0;
  // The slots of the peer's devices that the lanes lead to, as bits.
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
  bool dormant = true;  // the lanes are closed until there is an operation
  bool lost = false;
  bool listed = false;              // the requester is about to pump the peer
  bool waiting_for_credit = false;  // waits until credit is freed
};

using PeerTable = transport::PeerTable<OneSidedPeer>;

}  // namespace mc::transport::one_sided
