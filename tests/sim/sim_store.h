// SPDX-License-Identifier: Apache-2.0
//
// The cluster store of a simulated cluster: the store in memory, on the simulated clock, with faults. Each
//   host has a SimStore, a client of the same content.
// Threads: The simulator's.
// Owns: StoreWorld: the content. SimStore: nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "metadata/store/memory/memory_store.h"
#include "sim/sim_links.h"

namespace mc::sim {

class StoreWorld {
 public:
  StoreWorld();

  // The client of a host.
  std::unique_ptr<metadata::ClusterStore> client(HostId host);
  // For tests, past all faults.
  metadata::MemoryStore& content() { return *content_; }

  // Loses the content, leases included, as a server without a disk does at a restart. Revisions go on at
  // the clock.
  void lose();
  // The same; revisions begin anew here, as after a clock was set back.
  void lose(metadata::Revision first_revision);
  // A host whose calls fail with kStoreUnavailable: the host is cut off, or its process is dead.
  void set_reachable(HostId host, bool reachable);
  // Writes and leases fail with this code; MC_OK: they work.
  void set_write_error(mc_status code) { write_error_ = code; }

  // The server may lose acknowledged writes, so no master may rely on the store.
  bool may_lose_writes = false;
  // A deliberate bug: a new leader does not read the list of absent members.
  bool hides_absence = false;

 private:
  friend class SimStore;
  std::shared_ptr<metadata::MemoryState> state_;
  std::unique_ptr<metadata::MemoryStore> content_;
  std::set<HostId> unreachable_;
  mc_status write_error_ = MC_OK;
};

}  // namespace mc::sim
