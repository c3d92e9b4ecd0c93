// SPDX-License-Identifier: Apache-2.0
//
// What it is: how one side wakes the other, and only when it sleeps.
//   Client to agent: the agent stores agent_asleep = 1, runs a heavy fence, looks at the ring once
//     more, then waits on its eventfd. A client publishes, runs a light fence, reads agent_asleep
//     and, if it was the one to clear it, writes the eventfd. It may do that ahead as well, before
//     it publishes: a bell that finds no request yet is one more look.
//   Agent to client: the client stores client_asleep, runs a full fence, looks at the ring once
//   more,
//     then waits in a futex (or polls its eventfd). The agent publishes, runs one full fence for
//     all completions of a round, reads client_asleep.
//   Either way: whoever comes second sees the other's store. No wake-up is lost.
// Threads: the client functions from the channel's owner, the agent functions from its loop.
// Trusts: a hostile client can cause a spurious wake-up of its own, nothing more.
#pragma once

#include <cstdint>

#include "shm/layout.h"

namespace mc::shm {

// Client: true if the agent sleeps and this caller must signal its eventfd. Before publishing this
// is a hint only: the agent wakes while the request is made.
inline bool claim_bell(ChannelHeader& header) {
  return header.agent_asleep.load_relaxed() != 0 && header.agent_asleep.exchange(0) != 0;
}

// Client: after publishing. True: the caller must signal the agent's eventfd.
inline bool agent_needs_bell(ChannelHeader& header) {
  light_fence();
  return claim_bell(header);
}

// Agent: announce that it stops looking. The caller then runs heavy_fence() once for all channels
// and looks at every ring again before it sleeps.
inline void announce_agent_sleep(ChannelHeader& header) { header.agent_asleep.store_relaxed(1); }
inline void announce_agent_awake(ChannelHeader& header) { header.agent_asleep.store_relaxed(0); }

// Client: announce that it is about to sleep. The caller then looks at the ring again.
inline void announce_client_sleep(ChannelHeader& header, std::uint32_t how) {
  header.client_asleep.store_relaxed(how);
  full_fence();
}
inline void announce_client_awake(ChannelHeader& header) {
  header.client_asleep.store_relaxed(kClientAwake);
}
// Client: sleep until woken or the timeout. Returns at once when client_asleep changed meanwhile.
void wait_for_agent(ChannelHeader& header, std::uint64_t timeout_ns);

// Agent: after publishing completions and a full_fence(). Wakes a client in its futex; returns true
// if the caller must signal the client's eventfd instead.
bool wake_client(ChannelHeader& header);

}  // namespace mc::shm
