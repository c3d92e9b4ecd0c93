// SPDX-License-Identifier: Apache-2.0
//
// What it is: the agent: one loop that accepts clients, serves their rings and keeps the pools. The
//   composition root: builds everything in order, tears it down in reverse.
//
//   listener ──hello──► Session ──rings──► Server ──► Tenant.ObjectStore (index, pool, policy)
//        └────admin───► Admin (JSON)
//   DescriptorStore keeps every memory file, so that the next agent finds them.
// Threads: run() is the loop; stop() may be called from anywhere. Helpers with threads of their own
//   (pool growth, beacons, scrubbers) talk to the loop through eventfds.
// Trusts: peers by their credentials and the allow list, and nothing of what they send.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agent/admin/counters_page.h"
#include "agent/keeper/descriptor_store.h"
#include "agent/node_state.h"
#include "agent/options/options.h"
#include "agent/scrubber.h"
#include "agent/server/remote_request.h"
#include "agent/server/server.h"
#include "agent/server/session.h"
#include "agent/server/tenant.h"
#include "libmc/base/core_sharing.h"
#include "shm/beacon.h"

namespace mc::agent {

struct HelloFacts;

class Agent {
 public:
  // Where this agent's cluster comes from (cluster/open_cluster.h); null for an agent alone.
  using OpenCluster = std::function<Result<std::unique_ptr<Cluster>>(
      const Options& options, std::uint64_t node_id, std::uint64_t incarnation,
      std::uint64_t capacity_bytes)>;
  // Opens the pools, or takes over those of the agent before. Errors say what to do.
  static Result<std::unique_ptr<Agent>> create(const LoadedOptions& options,
                                               const OpenCluster& open_cluster = nullptr);
  // A pool inside this process: no runtime directory, no socket file, nothing kept.
  static Result<std::unique_ptr<Agent>> create_embedded(const LoadedOptions& options);
  ~Agent();

  // Serves until stop(). keep: leave the memory to the next agent, in the descriptor store.
  void run();
  void stop(bool keep = false);
  // A connection to this agent from its own process. Any thread.
  Result<Fd> connect_embedded();

 private:
  friend class Admin;
  struct Connection {
    Fd socket;
    PeerCredentials peer;
    std::uint64_t session_id = 0;  // 0: no session (yet)
    std::uint64_t opened_ns = 0;
  };
  struct Watch {
    enum class Kind { kListener, kWake, kConnection, kPidfd, kRing, kChunk, kStore, kCluster };
    Kind kind;
    std::uint64_t id = 0;  // session id or descriptor
    std::shared_ptr<Tenant> tenant;
    std::uint32_t turn = 0;  // tells a descriptor from a later one of the same number
  };

  explicit Agent(const LoadedOptions& options);
  Status start(const OpenCluster& open_cluster);
  Status start_host();
  Status join_cluster(const OpenCluster& open_cluster);
  bool fits_cluster(const NamespaceOptions& options, const MemoryFile& index_file) const;
  Status take_over(const OpenCluster& open_cluster);
  Status adopt_tenants(std::map<std::string, Fd>& kept);
  void drop_orphans(const std::map<std::string, Fd>& kept);
  void adopt_sessions(std::map<std::string, Fd>& kept);
  Status open_configured_tenants();
  Result<std::shared_ptr<Tenant>> open_tenant(const NamespaceOptions& options, bool temporary);
  // versions: what the cluster's book of the namespace was, or none.
  Status add_tenant(std::shared_ptr<Tenant> tenant, MemoryFile versions);
  void drop_tenant(const std::string& name);
  ObjectStore::Config config_for(const NamespaceOptions& options) const;
  ObjectStore::CollectPins pin_collector(const std::string& tenant);
  std::shared_ptr<Tenant> make_tenant(const NamespaceOptions& options) const;

  // loop.cc
  struct Turns {
    std::uint64_t next_retry_ns = 0;
    std::uint64_t next_idle_check_ns = 0;
    std::uint64_t next_events_ns = 0;
    std::uint64_t next_yield_ns = 0;
  };
  void take_turns(std::uint64_t now_ns, Turns& turns);
  bool spin(std::uint64_t now_ns, Turns& turns);
  void tell_core();
  bool serve_rings(std::uint64_t now_ns);
  bool turn_to_cluster(std::uint64_t now, bool served);
  void answer_admin(int fd, const std::string& text);
  void publish_wakes();
  bool sleep_until_event(std::uint64_t now_ns);
  bool prepare_sleep();
  void put_idle_channels_to_sleep(std::uint64_t now_ns);
  void activate(Session& session, std::uint32_t channel);
  void deactivate_all(Session& session);
  void handle_events(int timeout_ms);
  void handle(const Watch& watch);
  void tick(std::uint64_t now_ns);
  void act_on_findings(const std::string& tenant, Scrubber& scrubber);
  void watch(int fd, Watch watch);
  void unwatch(int fd);

  // control.cc
  void accept_clients();
  void on_message(int fd);
  void close_connection(int fd);
  bool close_idle_connection();
  void on_hello(Connection& connection, const std::vector<std::byte>& bytes);
  void log_refusal(const PeerCredentials& peer, const Status& status);
  Result<Session*> new_session(Connection& connection, const HelloFacts& facts);
  Result<Session*> resume_session(Connection& connection, const HelloFacts& facts);
  Status welcome(Connection& connection, Session& session, bool resumed);
  void on_open_channel(Connection& connection, std::uint64_t number);
  void on_give_back(Connection& connection, std::string_view entries);
  void ask_for_reservation_cache(std::uint64_t now_ns);
  void on_open_staging(Connection& connection, std::uint64_t bytes);
  void end_session(std::uint64_t session_id);
  bool may_connect(const PeerCredentials& peer, const Tenant* tenant) const;
  static std::string kept_name(const Session& session, std::string_view kind);
  void adopt_embedded_connections();
  void keep(const std::string& name, int fd);
  void forget_kept(const std::string& name);
  void keep_everything_again();

  LoadedOptions loaded_;
  const Options& options_;
  CoreSharing core_;
  bool embedded_ = false;
  Fd lock_;
  std::unique_ptr<DescriptorStore> descriptors_;
  std::unique_ptr<NodeState> node_;
  CountersPage counters_page_;
  Fd epoll_;
  Fd listener_;
  Fd spare_;  // given up for a moment when accepting finds no descriptor left
  Fd wake_;   // stop(), suspicions, scrubbers
  std::atomic<bool> stop_{false};
  std::atomic<bool> keep_{false};
  std::uint64_t started_ns_ = 0;
  bool woken_ = false;  // has answered nobody since it slept
  std::uint64_t last_work_ns_ = 0;
  std::uint32_t told_core_ = 0;  // what the indexes say of the loop's processor
  std::uint64_t next_tick_ns_ = 0;
  std::uint64_t next_page_ns_ = 0;
  std::uint64_t next_refusal_line_ns_ = 0;
  unsigned refusal_lines_ = 0;  // in this period
  std::uint64_t refusals_unlogged_ = 0;

  std::map<std::string, std::shared_ptr<Tenant>> tenants_;
  std::unique_ptr<Cluster> cluster_;  // goes before the stores it listens to
  std::map<std::string, std::unique_ptr<Scrubber>> scrubbers_;
  std::map<int, Connection> connections_;
  std::map<int, Watch> watches_;
  std::uint32_t next_turn_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  struct Active {
    Session* session;
    std::uint32_t channel;
  };
  std::vector<Active> active_;
  Server server_;
  std::unique_ptr<shm::BeaconWatch> beacons_;
  std::mutex embedded_mutex_;
  std::vector<Fd> embedded_pending_;
  std::mutex suspicions_mutex_;
  std::vector<std::uint64_t> suspicions_;
};

}  // namespace mc::agent
