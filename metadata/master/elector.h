// SPDX-License-Identifier: Apache-2.0
//
// What it is: the part of a master that talks to the cluster store, which blocks: it campaigns for
//   one partition, renews, finds out who leads, and keeps the little that outlives a leader there:
//   members' descriptors under "members/", what absence.h says under "away/" and "removed/", and
//   how far removals have been numbered. Those of partition 0 lie where they lay before there were
//   partitions, those of partition 3 below "shares/3/".
// Threads: its own does all store calls; callbacks come from it. save() and leads() from any.
// Owns: the store, the thread. Queued writes are bounded: one for each key, the latest wins.
// Trusts: the store; values are decoded by their reader.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "metadata/master/roster.h"
#include "metadata/store/cluster_store.h"
#include "metadata/store/leader_lock.h"

namespace mc::metadata {

inline constexpr std::string_view kMembersPrefix = "members/";
inline constexpr std::string_view kAwayPrefix = "away/";
inline constexpr std::string_view kRemovedPrefix = "removed/";
inline constexpr std::string_view kRemovalsKey = "removals";

// What a new leader finds.
struct Term {
  std::uint64_t epoch = 0;
  std::vector<Entry> members;
  std::vector<Entry> away;
  std::vector<Entry> removed;
  std::uint64_t removals = 0;  // numbered so far, at most
};

class Elector {
 public:
  struct Callbacks {
    std::function<void(Term)> leading;
    std::function<void()> lost;
    std::function<void(std::string)> leader;  // another's address; empty: nobody leads
    std::function<void(const Status&)> trouble;
  };

  struct Partition {
    std::uint32_t number = 0;
    std::uint32_t of = 1;
    Roster* roster = nullptr;  // outlives this; none: whatever nobody leads is to be led
  };

  // address: how others find this master.
  Elector(std::unique_ptr<ClusterStore> store, std::string address, std::uint32_t ttl_ms,
          Partition partition, Callbacks callbacks);
  // Resigns, so that a standby leads at once.
  ~Elector();

  // Whether this process may answer as the leader of this epoch at this moment.
  [[nodiscard]] bool leads(std::uint64_t epoch) const;
  // nullopt: remove it. Written soon, while this process leads; then done, if there is one, is
  // called from the elector's thread: this or something later is what the store has there.
  void save(std::string key, std::optional<std::string> value, std::function<void()> done);

 private:
  void run();
  void lead();
  bool campaign();
  bool may_try(std::uint64_t deadline_ns);
  void tell_leader(const std::string& leader);
  [[nodiscard]] bool gives_up();
  Result<Term> read_term(std::uint64_t epoch);
  void write_saved();
  void wait(std::uint64_t nanoseconds);

  std::unique_ptr<ClusterStore> store_;
  const std::string address_;
  const std::uint32_t ttl_ms_;
  const Partition partition_;
  const std::string prefix_;  // of what is kept for the next leader
  const Callbacks callbacks_;
  LeaderLock lock_;
  std::unique_ptr<Watch> watch_;
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> valid_until_ns_{0};
  std::string last_leader_ = "?";
  std::uint64_t vacant_since_ns_ = 0;  // 0: somebody leads

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool changed_ = false;
  struct Saved {
    std::optional<std::string> value;
    std::vector<std::function<void()>> done;
  };
  std::map<std::string, Saved> saved_;
  std::thread thread_;
};

}  // namespace mc::metadata
