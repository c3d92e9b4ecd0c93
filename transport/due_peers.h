// SPDX-License-Identifier: Apache-2.0
//
// What it is: the peers for whom there may be something to send, each once.
// Threads: the transport's. Owns their ids.
#pragma once

#include <utility>
#include <vector>

#include "transport/transport.h"

namespace mc::transport {

class DuePeers {
 public:
  // REQUIRES: Peer has the members `PeerId id` and `bool listed`, which is this object's.
  template <typename Peer>
  void add(Peer& peer) {
    if (!std::exchange(peer.listed, true)) ids_.push_back(peer.id);
  }
  // Calls send(peer) for each, also for those that are added meanwhile. find(id): null: it is gone.
  template <typename Find, typename Send>
  void take(Find find, Send send) {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      auto* peer = find(ids_[i]);
      if (peer == nullptr) continue;
      peer->listed = false;
      send(*peer);
    }
    ids_.clear();
  }

 private:
  std::vector<PeerId> ids_;
};

}  // namespace mc::transport
