// SPDX-License-Identifier: Apache-2.0
//
// What it is: peers that wait for something of the transport's, each once, in the order in which
//   they came: to be looked at for what may be sent, or for credit.
// Threads: the transport's. Owns their ids.
#pragma once

#include <utility>
#include <vector>

#include "transport/transport.h"

namespace mc::transport {

// Peer has a member `PeerId id`; listed, another, is this object's.
template <typename Peer, bool Peer::*listed>
class DuePeers {
 public:
  bool empty() const { return ids_.empty(); }
  void add(Peer& peer) {
    if (!std::exchange(peer.*listed, true)) ids_.push_back(peer.id);
  }
  // Calls send(peer) for each, also for those that are added meanwhile. find(id): null: it is gone.
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
