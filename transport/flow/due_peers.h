// SPDX-License-Identifier: Apache-2.0
//
// The peers that wait for a resource of the transport, each once, in the order of
//   arrival: for a look at the queues, or for credit.
// Threads: the transport's.
// Owns: the ids of the peers.
#pragma once

#include <utility>
#include <vector>

#include "transport/transport.h"

namespace mc::transport {

// Peer has the members `PeerId id` and `bool listed`; this object owns `listed`.
template <typename Peer, bool Peer::*listed>
class DuePeers {
 public:
  bool empty() const { return ids_.empty(); }
  void add(Peer& peer) {
    if (!std::exchange(peer.*listed, true)) ids_.push_back(peer.id);
  }
  // Calls send(peer) for each peer, also for peers that are added meanwhile. find(id): null if the
  // peer is gone.
  template <typename Find, typename Send>
  void take(Find find, Send send) {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      Peer* peer = find(ids_[i]);
      if (peer == nullptr) continue;
      peer->*listed = false;
      send(*peer);
    }
    ids_.clear();
  }

 private:
  std::vector<PeerId> ids_;
};

}  // namespace mc::transport
