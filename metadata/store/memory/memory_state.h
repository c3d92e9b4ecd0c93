// SPDX-License-Identifier: Apache-2.0
//
// The map and leases of an embedded cluster store. Other stores keep this state in a
//   server. Every call first removes the keys of expired leases, so no caller sees an expired key.
// Threads: any; one lock guards everything.
// Owns: entries and leases.
// Trusts: the callers (the stores) to have checked sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "libmc/base/mutex.h"
#include "metadata/store/cluster_store.h"

namespace mc::metadata {

class MemoryState {
 public:
  // first_revision: at least the last revision of every earlier state whose epochs may still be
  // known. Lease ids begin there too: a lease of an earlier state must not be taken for a new lease.
  // clock: now_ns() or a simulator's clock.
  MemoryState(Revision first_revision, std::function<std::uint64_t()> clock)
      : clock_(std::move(clock)), revision_(first_revision), last_lease_(first_revision) {}

  std::optional<Entry> get(std::string_view key);
  // nullopt: the lease does not exist. expected: nullopt writes unconditionally.
  std::optional<Swap> write(std::string_view key, std::string_view value, LeaseId lease,
                            std::optional<Revision> expected);
  // As ClusterStore::write_guarded().
  bool write_guarded(std::string_view guard_key, Revision guard_revision, std::string_view key,
                     const std::optional<std::string>& value);
  // False: the key is absent.
  bool remove(std::string_view key);
  // nullopt: more than the contract's limits.
  std::optional<std::vector<Entry>> list(std::string_view prefix);
  Lease grant(std::uint32_t ttl_ms);
  bool keep_alive(LeaseId lease);
  bool revoke(LeaseId lease);
  Revision revision();

 private:
  struct Held {
    std::string value;
    Revision revision;
    LeaseId lease;
  };
  struct Term {
    std::uint64_t ttl_ns;
    std::uint64_t end_ns;
    std::set<std::string> keys;
  };
  using Entries = std::map<std::string, Held, std::less<>>;

  Revision revision_of(std::string_view key) const MC_REQUIRES(mutex_);  // 0: the key is absent
  void set(std::string_view key, std::string_view value, LeaseId lease) MC_REQUIRES(mutex_);
  void end_leases() MC_REQUIRES(mutex_);
  void end_lease(std::map<LeaseId, Term>::iterator term) MC_REQUIRES(mutex_);
  void drop(Entries::iterator entry) MC_REQUIRES(mutex_);

  const std::function<std::uint64_t()> clock_;
  Mutex mutex_;
  Entries entries_ MC_GUARDED_BY(mutex_);
  std::map<LeaseId, Term> leases_ MC_GUARDED_BY(mutex_);
  Revision revision_ MC_GUARDED_BY(mutex_);
  LeaseId last_lease_ MC_GUARDED_BY(mutex_);
};

}  // namespace mc::metadata
