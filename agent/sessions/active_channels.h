// SPDX-License-Identifier: Apache-2.0
//
// The channels whose rings the loop polls. The client of any other channel rings the
//   agent's bell first. A channel leaves the set when it is idle, and all channels leave the set
//   before the loop sleeps.
// Threads: the agent's loop.
// Owns: the list of channels; the sessions own the channels.
// Trusts: nothing in the rings; the Server checks the requests.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/server/server.h"
#include "agent/server/session.h"

namespace mc::agent {

class ActiveChannels {
 public:
  void activate(Session& session, std::uint32_t channel);
  void deactivate_all(Session& session);
  bool empty() const { return active_.empty(); }
  bool several() const { return active_.size() > 1; }
  // Serves the rings of all channels. Returns true if there was a request.
  bool serve(Server& server, std::uint64_t now_ns);
  // Removes channels that are idle. From then on the clients of these channels ring the bell.
  void put_idle_to_sleep(std::uint64_t now_ns);
  // Announces sleep on all channels and looks at all rings once more. Returns false if there is
  // work.
  bool put_all_to_sleep();

  static constexpr std::uint64_t kIdleNs = 1000000;

 private:
  struct Active {
    Session* session;
    std::uint32_t number;
    ChannelState& channel() const { return session->channels[number]; }
    shm::ChannelHeader& header() const { return channel().shared->header; }
  };
  std::vector<Active> active_;
};

}  // namespace mc::agent
