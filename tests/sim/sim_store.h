// SPDX-License-Identifier: Apache-2.0
//
// The cluster store of a simulated cluster: the store in memory, on the simulated clock, with faults. Each
//   host has a SimStore, a client of the same content.
// Threads: The simulator's, or the real thread of a step that stands still; one at a time.
// Owns: StoreWorld: the content. SimStore: nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "metadata/store/memory/memory_store.h"
#include "sim/sim_links.h"
#include "sim/sim_random.h"
#include "sim/sim_store_thread.h"

namespace mc::sim {

class StoreWorld {
 public:
  explicit StoreWorld(std::uint64_t seed = 0);

  // The client of a host.
  std::unique_ptr<metadata::ClusterStore> client(HostId host);
  // Starts the threads of a process of that host that call the store.
  metadata::StartStoreThread start_thread(HostId host);
  // Runs the steps of that host's threads that are due.
  void run_threads(HostId host);
  // For tests, past all faults.
  metadata::MemoryStore& content() { return *content_; }

  // Loses the content, leases included, as a server without a disk does at a restart. Revisions go on at
  // the clock.
  void lose();
  // The same; revisions begin anew here, as after a clock was set back.
  void lose(metadata::Revision first_revision);
  // A host whose calls fail with kStoreUnavailable: the host is cut off, or its process is dead.
  void set_reachable(HostId host, bool reachable);
  // The server is silent to that host: a call waits until its deadline. The server may execute such a write a
  // moment after the silence.
  void set_silent(HostId host, bool silent);
  // Writes and leases fail with this code; MC_OK: they work.
  void set_write_error(mc_status code) { write_error_ = code; }

  // The server may lose acknowledged writes, so no master may rely on the store.
  bool may_lose_writes = false;
  // A deliberate bug: a new leader does not read the list of absent members.
  bool hides_absence = false;

 private:
  friend class SimStore;
  // A write whose caller has given up.
  struct LateWrite {
    HostId host = 0;
    std::uint64_t at_ns = UINT64_MAX;  // UINT64_MAX: the server is still silent
    std::function<void(metadata::MemoryStore&)> execute;
  };
  void execute_late_writes();

  Random random_;
  std::shared_ptr<metadata::MemoryState> state_;
  std::unique_ptr<metadata::MemoryStore> content_;
  std::set<HostId> unreachable_;
  std::set<HostId> silent_;
  std::vector<LateWrite> late_writes_;
  std::map<HostId, SimStoreThread::All> threads_;
  mc_status write_error_ = MC_OK;
};

}  // namespace mc::sim
