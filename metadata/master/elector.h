// SPDX-License-Identifier: Apache-2.0
//
// The part of a master that calls the cluster store, which blocks. The elector
//   campaigns for a partition, renews the lease and finds the current leader. The elector also
//   stores the state that outlives a leader: members' descriptors under "members/", absent members
//   under "away/", "removed/" and "patterns/" (absence.h), and the highest removal number under
//   "removals". Keys of partition 0 have no prefix, as before partitions existed. Keys of partition
//   3 lie below "shares/3/". The cluster's number of partitions is under "share_count".
// Epochs: an epoch is the revision of the leader's lock plus "epoch_offset". A store that was emptied,
//   or whose clock was set back, gives revisions below epochs that members have heard. The leader
//   then raises the offset and is elected anew (outbid()).
//
//     stand by ──campaign() won, term read──► lead ──lease lost, outbid, or the roster gives up──► stand by
//
// A leader whose lease runs out because the store is silent goes on for as long as the members' promises hold
//   (promises.h). When the store answers again, the leader takes the lock again, under the same epoch, if no
//   other master has led in between: "last_epoch" names the latest leadership. A standby that the store
//   was silent to as well lets the last leader go first.
// Threads: the elector's thread makes all store calls and all callbacks. save() and leads() from any thread.
// Owns: the store and the thread. Queued writes are bounded: one for each key, the latest wins.
// Writes: guarded by the leader's key, so a former leader changes nothing. A write that fails is
//   repeated until the end of the leadership. The store may execute a write without an answer late, even
//   after a later value. So the leader first writes the leader's key again (LeaderLock::outdate_guards()).
// Trusts: the store. Each reader decodes its own values. The number of partitions is checked.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libmc/base/clock.h"
#include "libmc/base/mutex.h"
#include "metadata/master/roster.h"
#include "metadata/store/cluster_store.h"
#include "metadata/store/leader_lock.h"
#include "metadata/store/store_thread.h"

namespace mc::metadata {

inline constexpr std::string_view kMembersPrefix = "members/";
inline constexpr std::string_view kAwayPrefix = "away/";
inline constexpr std::string_view kRemovedPrefix = "removed/";
inline constexpr std::string_view kPatternsPrefix = "patterns/";
inline constexpr std::string_view kRemovalsKey = "removals";
inline constexpr std::string_view kEpochOffsetKey = "epoch_offset";
inline constexpr std::string_view kLastEpochKey = "last_epoch";

// The state that a new leader finds in the store.
struct Term {
  std::uint64_t epoch = 0;
  std::vector<Entry> members;
  std::vector<Entry> away;
  std::vector<Entry> removed;
  std::vector<Entry> patterns;
  std::uint64_t removals = 0;  // no leader has given out a higher removal number
};

// Compares with the number of partitions in the store, which the cluster's first leader writes. A
// master with another number cannot take part, because its keys would be looked up at the wrong
// masters. MC_OK if the store has no number. Any thread. Errors: MC_INVALID_ARGUMENT with the
// remedy, or the store's error.
Status check_partition_count(ClusterStore& store, std::uint32_t partitions,
                             std::uint64_t deadline_ns);

class Elector {
 public:
  struct Callbacks {
    std::function<void(Term)> leading;
    std::function<void()> lost;
    std::function<void(std::string)> leader;  // another master's address; empty: no leader
    std::function<void(const Status&)> trouble;
  };

  struct Partition {
    std::uint32_t number = 0;
    std::uint32_t of = 1;
    // outlives the elector; null: this master may lead any vacant partition
    Roster* roster = nullptr;
  };

  // address: how other processes reach this master.
  Elector(std::unique_ptr<ClusterStore> store, std::string address, std::uint32_t ttl_ms,
          Partition partition, Callbacks callbacks, const StartStoreThread& start_thread);
  // Resigns, so that a standby need not wait for the end of the lease.
  ~Elector();

  // Whether this process may answer as the leader of this epoch at this moment.
  [[nodiscard]] bool leads(std::uint64_t epoch) const;
  // Whether the store's lease covers this moment. Any thread.
  [[nodiscard]] bool holds_lease() const { return now_ns() < valid_until_ns_; }
  // Whether the lock should have been renewed by now.
  [[nodiscard]] bool renewal_is_late() const;
  // The leader of this epoch may go on until then without the store. Any thread.
  void go_on(std::uint64_t epoch, std::uint64_t until_ns);
  // A member has heard of a leader with an epoch above this leader's. If this process still leads, the
  // next leader, perhaps this process, has a higher epoch. Any thread.
  void outbid(std::uint64_t heard);
  // nullopt removes the key. The elector writes soon, while this process leads, and again after each
  // failure. Then the elector's thread calls done, if any. The store has this value or a later value
  // by then. After the end of the leadership done is not called.
  void save(std::string key, std::optional<std::string> value, std::function<void()> done);

 private:
  // Campaigns, renews the lease, writes saved values. Returns the time of the next call.
  std::uint64_t step();
  std::uint64_t stand_by();
  std::uint64_t lead();
  bool renew();
  bool take_lock_again();
  std::uint64_t end_leadership();
  std::uint64_t raise_epochs();
  bool campaign();
  bool may_try(std::uint64_t deadline_ns);
  void tell_leader(const std::string& leader);
  [[nodiscard]] bool gives_up();
  [[nodiscard]] bool goes_on() const;
  void hold_lease(std::uint64_t asked_ns);
  Result<Term> read_term();
  Result<std::uint64_t> read_number(std::string_view key, std::uint64_t deadline_ns);
  struct Saved {
    std::optional<std::string> value;
    std::vector<std::function<void()>> done;
  };
  enum class Written : std::uint8_t { kAll, kAgain, kNotLeader };
  Written write_saved();
  void write_later(const std::string& key, Saved one);

  std::unique_ptr<ClusterStore> store_;
  const std::string address_;
  const std::uint32_t ttl_ms_;
  const Partition partition_;
  const std::string prefix_;  // of the keys that are kept for the next leader
  const Callbacks callbacks_;
  LeaderLock lock_;
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> outbid_{0};  // the highest epoch that members have heard
  std::atomic<std::uint64_t> renewed_ns_{0};
  std::atomic<std::uint64_t> valid_until_ns_{0};
  std::atomic<std::uint64_t> goes_on_until_ns_{0};
  std::string last_leader_ = "?";
  std::uint64_t vacant_since_ns_ = 0;       // 0: a master leads
  bool store_is_silent_ = false;            // to this standby
  std::uint64_t others_wait_until_ns_ = 0;  // the last leader may take the lock again
  bool leading_ = false;
  std::uint64_t renew_at_ns_ = 0;
  bool writes_are_open_ = false;  // the store may execute writes without an answer later

  Mutex mutex_;
  std::map<std::string, Saved> saved_ MC_GUARDED_BY(mutex_);
  std::unique_ptr<StoreThread> thread_;
};

}  // namespace mc::metadata
