// SPDX-License-Identifier: Apache-2.0
//
// The cluster store inside one process: for a single master without Redis or etcd, for
//   the embedded mode and for simulations. Several stores may use one state, as clients use one
//   server.
// Threads: any.
// Owns: a reference to the state.
// Trusts: as cluster_store.h says.
//
//  The store is always available. It ignores deadlines, because a call waits only for a lock.
#pragma once

#include <memory>
#include <string>

#include "metadata/store/cluster_store.h"
#include "metadata/store/memory/memory_state.h"

namespace mc::metadata {

class MemoryStore final : public ClusterStore {
 public:
  // REQUIRES: check_cluster_id(cluster_id).
  MemoryStore(std::shared_ptr<MemoryState> state, std::string_view cluster_id);

  // A state whose first revision is the wall clock in microseconds. So a restarted process does not
  // repeat earlier epochs.
  static std::shared_ptr<MemoryState> make_state();

  Capabilities capabilities() const override;
  std::string name() const override { return "memory"; }
  Result<Entry> get(std::string_view key, std::uint64_t deadline_ns) override;
  Result<Revision> put(std::string_view key, std::string_view value, LeaseId lease,
                       std::uint64_t deadline_ns) override;
  Result<Swap> compare_and_set(std::string_view key, Revision expected, std::string_view value,
                               LeaseId lease, std::uint64_t deadline_ns) override;
  Result<bool> write_guarded(const Guard& guard, std::string_view key,
                             const std::optional<std::string>& value,
                             std::uint64_t deadline_ns) override;
  Status remove(std::string_view key, std::uint64_t deadline_ns) override;
  Result<std::vector<Entry>> list(std::string_view prefix, std::uint64_t deadline_ns) override;
  Result<Lease> grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) override;
  Status keep_alive(LeaseId lease, std::uint64_t deadline_ns) override;
  Status revoke(LeaseId lease, std::uint64_t deadline_ns) override;

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  const std::shared_ptr<MemoryState> state_;
  const std::string prefix_;
};

}  // namespace mc::metadata
