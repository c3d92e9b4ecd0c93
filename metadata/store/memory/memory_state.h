// SPDX-License-Identifier: Apache-2.0
//
// The map, leases and change log of an embedded cluster store. Other stores keep this
//   state in a server. Every call first removes the keys of expired leases, so no caller sees an
//   expired key.
// Threads: any; one lock guards everything.
// Owns: entries, leases, log. The bells (eventfds) belong to the watches.
// Trusts: the callers (the stores) to have checked sizes.
#pragma once

#include <cstdint>
#include <deque>
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
      : clock_(std::move(clock)),
        revision_(first_revision),
        log_floor_(first_revision),
        last_lease_(first_revision) {}

  std::optional<Entry> get(std::string_view key);
  // nullopt: the lease does not exist. expected: nullopt writes unconditionally.
  std::optional<Swap> write(std::string_view key, std::string_view value, LeaseId lease,
                            std::optional<Revision> expected);
  Swap remove(std::string_view key, std::optional<Revision> expected);
  // nullopt: more than the contract's limits.
  std::optional<Listing> list(std::string_view prefix);
  Lease grant(std::uint32_t ttl_ms);
  bool keep_alive(LeaseId lease);
  bool revoke(LeaseId lease);

  struct Changes {
    bool lost = false;  // the log no longer reaches back to the position
    std::vector<WatchEvent> events;
    Revision position = 0;          // the position for the next call
    std::uint64_t next_end_ms = 0;  // time until a lease ends, at most a second
  };
  Changes changes(std::string_view prefix, Revision position);
  Revision revision();

  void ring_on_change(int bell);
  void ring_no_more(int bell);

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
  struct Change {
    Revision revision;
    bool put;
    std::string key;
  };
  using Entries = std::map<std::string, Held, std::less<>>;

  void end_leases() MC_REQUIRES(mutex_);
  void end_lease(std::map<LeaseId, Term>::iterator term) MC_REQUIRES(mutex_);
  void drop(Entries::iterator entry) MC_REQUIRES(mutex_);
  void log(bool put, const std::string& key) MC_REQUIRES(mutex_);

  const std::function<std::uint64_t()> clock_;
  Mutex mutex_;
  Entries entries_ MC_GUARDED_BY(mutex_);
  std::map<LeaseId, Term> leases_ MC_GUARDED_BY(mutex_);
  std::deque<Change> log_ MC_GUARDED_BY(mutex_);
  Revision revision_ MC_GUARDED_BY(mutex_);
  Revision log_floor_ MC_GUARDED_BY(mutex_);  // changes up to here are no longer in the log
  LeaseId last_lease_ MC_GUARDED_BY(mutex_);
  std::set<int> bells_ MC_GUARDED_BY(mutex_);
};

}  // namespace mc::metadata
