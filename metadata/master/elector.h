// SPDX-License-Identifier: Apache-2.0
//
// What it is: the part of a master that talks to the cluster store, which blocks: it campaigns,
//   renews, finds out who leads, and keeps the little that outlives a leader there: members'
//   descriptors under "members/", and how far removals have been numbered.
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

#include "metadata/store/cluster_store.h"
#include "metadata/store/leader_lock.h"

namespace mc::metadata {

inline constexpr std::string_view kMembersPrefix = "members/";
inline constexpr std::string_view kRemovalsKey = "removals";

// What a new leader finds.
struct Term {
  std::uint64_t epoch = 0;
  std::vector<Entry> members;
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

  // address: how others find this master.
  Elector(std::unique_ptr<ClusterStore> store, std::string address, std::uint32_t ttl_ms,
          Callbacks callbacks);
  // Resigns, so that a standby leads at once.
  ~Elector();

  // Whether this process may answer as the leader of this epoch at this moment.
  [[nodiscard]] bool leads(std::uint64_t epoch) const;
  // nullopt: remove it. Written soon, while this process leads.
  void save(std::string key, std::optional<std::string> value);

 private:
  void run();
  void lead();
  bool campaign();
  Result<Term> read_term(std::uint64_t epoch);
  void write_saved();
  void wait(std::uint64_t nanoseconds);

  std::unique_ptr<ClusterStore> store_;
  const std::string address_;
  const std::uint32_t ttl_ms_;
  const Callbacks callbacks_;
  LeaderLock lock_;
  std::unique_ptr<Watch> watch_;
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::uint64_t> valid_until_ns_{0};
  std::string last_leader_ = "?";

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool changed_ = false;
  std::map<std::string, std::optional<std::string>> saved_;
  std::thread thread_;
};

}  // namespace mc::metadata
