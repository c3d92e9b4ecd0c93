// SPDX-License-Identifier: Apache-2.0
//
// The beacon: a client's sign of life. A sleeping thread of the client holds a robust mutex. When
//   the process dies, the kernel marks the mutex before the kernel frees the process' memory. The
//   agent therefore suspects the death within milliseconds, however large the process was.
// Threads: a BeaconHold belongs to one thread of the client. BeaconWatch runs its own thread in the
//   agent.
// Trusts: nothing. A client can forge a beacon, so the agent treats a dead beacon as a hint. The
//   agent frees memory only after the client's pidfd reports the end of the process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "libmc/base/fd.h"
#include "libmc/base/mutex.h"
#include "shm/layout.h"

namespace mc::shm {

// Initialises the mutex in a new session file. The agent calls this function.
void init_beacon(SessionHeader& header);

// True if the owner died, or replaced its program by exec. One look, for any number of sessions.
bool beacon_is_lost(SessionHeader& header);

// Holds the beacon of a session. One thread creates and destroys a BeaconHold; the thread must live
// as long as the session.
class BeaconHold {
 public:
  explicit BeaconHold(SessionHeader* header);
  ~BeaconHold();
  BeaconHold(const BeaconHold&) = delete;
  BeaconHold& operator=(const BeaconHold&) = delete;

 private:
  SessionHeader* header_;
};

// Calls died(session id) once, from the watch's own thread, when the owner of a beacon has died.
// Limits: 127 sessions, and a kernel with futex_waitv (5.16). For any other session the end of the
// pidfd is the first sign.
class BeaconWatch {
 public:
  using Died = std::function<void(std::uint64_t session_id)>;
  explicit BeaconWatch(Died died);
  ~BeaconWatch();
  void add(std::uint64_t session_id, SessionHeader* header);
  // The watch does not access the header after remove() has returned.
  void remove(std::uint64_t session_id);

 private:
  struct Watched;
  void run();
  void wait_once(std::uint32_t changes);
  void poke();

  Died died_;
  Mutex mutex_;
  std::map<std::uint64_t, std::unique_ptr<Watched>> watched_ MC_GUARDED_BY(mutex_);
  Word32 changes_;  // an increment makes the waiting thread read the list again
  bool stop_ MC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace mc::shm
