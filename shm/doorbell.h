// SPDX-License-Identifier: Apache-2.0
//
// The doorbell: how one side wakes the other side, and only if that side sleeps.
//   Client to agent: the agent stores agent_asleep = 1, runs a full fence, reads the ring again,
//     and then waits on its eventfd. The client publishes a request, runs a full fence and reads
//     agent_asleep. The client that clears agent_asleep writes the eventfd. A client may ring
//     before publishing a request; the agent then reads the ring once more.
//   Agent to client: the client stores client_asleep, runs a full fence, reads the ring again, and
//     then waits in a futex or polls its eventfd. The agent publishes completions, runs one full
//     fence for all completions of a round, and reads client_asleep.
//   Invariant: in both directions the later side sees the store of the earlier side. No wake-up is
//     lost.
// Threads: the channel's owner calls the client functions; the agent's loop calls the others.
// Trusts: nothing. A hostile client can only cause spurious wake-ups.
#pragma once

#include <cstdint>

#include "shm/layout.h"

namespace mc::shm {

// Client: true if the agent sleeps and this caller must signal the agent's eventfd. A call before
// publishing is a hint: the agent wakes up while the client prepares the request.
inline bool claim_bell(ChannelHeader& header) {
  return header.agent_asleep.load_relaxed() != 0 && header.agent_asleep.exchange(0) != 0;
}

// Client: after publishing. True: the caller must signal the agent's eventfd.
inline bool agent_needs_bell(ChannelHeader& header) {
  full_fence();
  return claim_bell(header);
}

// Agent: announces sleep. The caller then runs full_fence() once for all channels and reads every
// ring again before sleeping.
inline void announce_agent_sleep(ChannelHeader& header) { header.agent_asleep.store_relaxed(1); }
inline void announce_agent_awake(ChannelHeader& header) { header.agent_asleep.store_relaxed(0); }

// Client: announces sleep. The caller then reads the ring again.
inline void announce_client_sleep(ChannelHeader& header, std::uint32_t how) {
  header.client_asleep.store_relaxed(how);
  full_fence();
}
inline void announce_client_awake(ChannelHeader& header) {
  header.client_asleep.store_relaxed(kClientAwake);
}
// Client: sleeps until a wake-up or the timeout. Returns at once if client_asleep has changed.
void wait_for_agent(ChannelHeader& header, std::uint64_t timeout_ns);

// Agent: call after publishing completions and a full_fence(). Wakes a client that waits in the
// futex. True: the caller must signal the client's eventfd instead.
bool wake_client(ChannelHeader& header);

}  // namespace mc::shm
