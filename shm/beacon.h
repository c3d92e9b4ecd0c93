// SPDX-License-Identifier: Apache-2.0
//
// What it is: a client's sign of life: a robust mutex held by a thread of the client that only
// sleeps.
//   When the process dies, the kernel marks the mutex before it frees the process' memory, so the
//   agent suspects the death within milliseconds however large the process was.
// Threads: a BeaconHold belongs to one thread of the client; BeaconWatch runs a thread of its own
// in the agent. Trusts: it is a hint. A client can forge it; only the end of its pidfd frees
// anything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "libmc/base/fd.h"
#include "shm/layout.h"

namespace mc::shm {

// Prepares the mutex in a fresh session file. Called by the agent.
void init_beacon(SessionHeader& header);

// Holds the beacon of a session for as long as it exists. The thread that makes it must live as
// long as the client means to, and must be the one that destroys it.
class BeaconHold {
 public:
  explicit BeaconHold(SessionHeader* header);
  ~BeaconHold();
  BeaconHold(const BeaconHold&) = delete;
  BeaconHold& operator=(const BeaconHold&) = delete;

 private:
  SessionHeader* header_;
};

// Calls died(session id) from its own thread, once, when a watched beacon's owner has died. At most
// 127 sessions are watched at once and only on kernels with futex_waitv (5.16); for the others the
// end of the pidfd is the first sign.
class BeaconWatch {
 public:
  using Died = std::function<void(std::uint64_t session_id)>;
  explicit BeaconWatch(Died died);
  ~BeaconWatch();
  void add(std::uint64_t session_id, SessionHeader* header);
  // Afterwards the header is not touched any more.
  void remove(std::uint64_t session_id);

 private:
  struct Watched;
  void run();
  void wait_once(std::uint32_t changes);
  void poke();

  Died died_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::unique_ptr<Watched>> watched_;
  Word32 changes_;  // bumped to make the waiting thread look at the list again
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mc::shm
