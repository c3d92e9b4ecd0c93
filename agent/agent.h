// SPDX-License-Identifier: Apache-2.0
//
// What it is: the agent and its composition root. One loop accepts clients, serves the rings of the
//   clients and owns the pools. The agent builds all parts in order and destroys the parts in
//   reverse order.
//
//   listener ──hello──► Session ──rings──► Server ──► Tenant.ObjectStore (index, pool, policy)
//        └────admin───► Admin (JSON)
//   DescriptorStore keeps every memory file, so that the next agent finds the files.
// Threads: run() is the loop. Any thread may call stop(). Helpers with a thread of their own (pool
//   growth, beacons, scrubbers) signal the loop through eventfds.
// Owns: the sockets, the namespaces, the sessions and the helpers.
// Trusts: the kernel's credentials of a peer and the allow list. The agent checks all bytes from a
//   peer.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
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
#include "libmc/base/mutex.h"
#include "shm/beacon.h"

namespace mc::agent {

struct HelloFacts;

class Agent {
 public:
  // Opens the cluster of this agent (cluster/open_cluster.h). Null for an agent without a cluster.
  using OpenCluster = std::function<Result<std::unique_ptr<Cluster>>(
      const Options& options, std::uint64_t node_id, std::uint64_t incarnation,
      std::uint64_t capacity_bytes)>;
  // Opens the pools, or takes over the pools of the previous agent. Errors name the remedy.
  static Result<std::unique_ptr<Agent>> create(const LoadedOptions& options,
                                               const OpenCluster& open_cluster = nullptr);
  // A pool inside this process: no runtime directory, no socket file, and no memory kept.
  static Result<std::unique_ptr<Agent>> create_embedded(const LoadedOptions& options);
  ~Agent();

  // Serves until stop(). With `keep`, the descriptor store keeps the memory for the next agent.
  void run();
  void stop(bool keep = false);
  // Opens a connection to this agent from the same process. Any thread.
  Result<Fd> connect_embedded();

 private:
  friend class Admin;
  struct Connection {
    Fd socket;
    PeerCredentials peer;
    std::uint64_t session_id = 0;  // 0: no session yet
    std::uint64_t opened_ns = 0;
  };
  struct Watch {
    enum class Kind { kListener, kWake, kConnection, kPidfd, kRing, kChunk, kStore, kCluster };
    Kind kind;
    std::uint64_t id = 0;  // session id or descriptor
    std::shared_ptr<Tenant> tenant;
    std::uint32_t turn = 0;  // tells a descriptor from a later descriptor of the same number
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
  // versions: the cluster's version book of this namespace, or an empty file.
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
  Fd spare_;  // closed for a moment when accept() finds no free descriptor
  Fd wake_;   // signalled by stop(), suspected sessions and scrubbers
  std::atomic<bool> stop_{false};
  std::atomic<bool> keep_{false};
  std::uint64_t started_ns_ = 0;
  bool woken_ = false;  // true from a sleep until the first answer
  std::uint64_t last_work_ns_ = 0;
  std::uint32_t told_core_ = 0;  // the processor that the index headers name for the loop
  std::uint64_t next_tick_ns_ = 0;
  std::uint64_t next_page_ns_ = 0;
  std::uint64_t next_refusal_line_ns_ = 0;
  unsigned refusal_lines_ = 0;  // in this period
  std::uint64_t refusals_unlogged_ = 0;

  std::map<std::string, std::shared_ptr<Tenant>> tenants_;
  std::unique_ptr<Cluster> cluster_;  // destroyed before the stores that the cluster listens to
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
  Mutex embedded_mutex_;
  std::vector<Fd> embedded_pending_ MC_GUARDED_BY(embedded_mutex_);
  Mutex suspicions_mutex_;
  std::vector<std::uint64_t> suspicions_ MC_GUARDED_BY(suspicions_mutex_);
};

}  // namespace mc::agent
