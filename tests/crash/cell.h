// SPDX-License-Identifier: Apache-2.0
//
// A cell of the kill matrix: a host, a bystander and an actor. A process meets a
//   failpoint, and a model keeps what the clients were acknowledged.
//    agent killed   - the test starts a new agent at once, without failpoints
//    agent stopped  - the bystander requests a get, then the agent continues
//    actor killed   - the session must end and give everything back
//    actor stopped  - the bystander puts, gets and removes, then the actor continues
// Threads: the test's main thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "crash/host.h"
#include "mc/mc.h"

namespace mc::crash {

enum class Victim { kNobody, kAgent, kActor };

struct CellOrder {
  bool isolated = false;  // the actor works in the isolated namespace
  bool on_disk = false;   // the agent has a tier on a file
  std::uint64_t pool_mib = 8;
  Victim victim = Victim::kNobody;
  std::string failpoints;  // value of MC_FAILPOINTS in the victim
  int pause_fd = -1;       // value of MC_FAILPOINT_FD in the victim
};

class Cell {
 public:
  explicit Cell(const CellOrder& order);
  ~Cell();

  // ---- The steps of scenarios. Calls have no effect once the actor is dead.
  mc_status put(const std::string& key, std::size_t size = 4096);
  mc_status upsert(const std::string& key, std::size_t size = 4096);
  mc_status put_from_session_memory(const std::string& key, std::size_t size = 4096);
  mc_status get(const std::string& key);
  mc_status view(const std::string& key);
  mc_status check_views();
  mc_status release_views();
  mc_status remove(const std::string& key);
  mc_status reserve(std::size_t size = 4096);
  mc_status commit(const std::string& key, std::size_t size = 4096);
  mc_status abandon();
  mc_status group(const std::vector<std::string>& keys);
  mc_status batch(const std::vector<std::string>& keys);
  mc_status ping();
  mc_status open();
  mc_status close();
  void resize(std::uint64_t pool_mib);
  void restart_agent();  // kill -9, and a new agent with the failpoints
  void kill_actor();
  void evict_to_disk();                   // all objects without a pin
  void wait_for_disk();                   // until no evicted object is on its way to the disk
  void may_evict() { evicting_ = true; }  // from here on objects may be missing
  void prepare(const std::vector<std::string>& keys, std::size_t size = 4096);
  // The failpoints count from here on: a victim agent is replaced by an agent with the failpoints.
  void begin();
  Host& host() { return host_; }

  // Checks everything and ends all processes. Returns the failures.
  void finish();
  bool reached() const { return reached_; }
  bool actor_alive() const { return actor_.alive(); }

 private:
  struct Outcome {
    bool answered = false;
    mc_status status = MC_OK;
    long version = 0;
  };
  using Versions = std::set<std::uint64_t>;  // possible versions of a key; 0: absent

  Outcome tell(Child& client, const std::string& line);
  std::optional<std::string> answer_of(Child& client);
  void look_at_processes();
  void bystander_works();
  mc_status store(const char* verb, const std::string& key, std::size_t size, bool upsert);
  mc_status store_many(const char* verb, const std::vector<std::string>& keys, bool all_or_none);
  void check_read(const std::string& key, const Outcome& outcome);
  void allow(mc_status status, std::initializer_list<mc_status> fine, const std::string& what);
  std::string name_space() const { return order_.isolated ? "iso" : "default"; }
  void start_agent(bool armed);
  Child start_client(bool armed);
  void fail(const std::string& what);

  const CellOrder order_;
  Host host_;
  Child bystander_;
  Child actor_;
  bool armed_ = false;
  bool reached_ = false;
  bool failed_ = false;
  bool evicting_ = false;
  bool actor_open_ = false;
  bool bystander_owes_answer_ = false;
  std::uint64_t version_ = 0;
  std::map<std::string, Versions> model_;
  std::vector<std::set<std::string>> groups_;  // not acknowledged: complete or absent
};

}  // namespace mc::crash
