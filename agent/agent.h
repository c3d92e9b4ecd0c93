// SPDX-License-Identifier: Apache-2.0
//
// The agent and its composition root. The agent builds all parts in order and destroys
//   the parts in reverse order.
//
//   Control ──hello──► Sessions ──rings──► AgentLoop ──► Server ──► ObjectStore of a namespace
//      └──admin───► Admin (JSON)                                         ▲
//   Namespaces opens the pools, or takes over the pools of the previous agent ──┘
//   KeptFiles keeps every memory file, so that the next agent finds the files.
// Threads: run() is the loop. Any thread may call stop() and connect_embedded(). Helpers with a
//   thread of their own (pool growth, beacons, scrubbers) signal the loop through eventfds.
// Owns: all parts.
// Trusts: the kernel's credentials of a peer and the allow list. The parts check all bytes from a
//   peer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "agent/admin/admin.h"
#include "agent/admin/control.h"
#include "agent/admin/counters_page.h"
#include "agent/agent_loop.h"
#include "agent/devices/gpu_processes.h"
#include "agent/devices/gpu_workers.h"
#include "agent/keeper/kept_files.h"
#include "agent/loop/event_loop.h"
#include "agent/namespaces/namespaces.h"
#include "agent/options/options.h"
#include "agent/server/remote_request.h"
#include "agent/server/server.h"
#include "agent/sessions/node_state.h"
#include "agent/sessions/sessions.h"
#include "agent/tier/tier.h"
#include "agent/tiering/tiered_pools.h"

namespace mc::agent {

class Agent {
 public:
  // Opens the cluster of this agent (cluster/open_cluster.h). Null for an agent without a cluster.
  using OpenCluster = std::function<Result<std::unique_ptr<Cluster>>(
      const Options& options, std::uint64_t node_id, std::uint64_t incarnation,
      std::uint64_t capacity_bytes)>;
  // Opens the pools, or takes over the pools of the previous agent. recent_events: the program's log;
  // null: none. Errors name the remedy.
  static Result<std::unique_ptr<Agent>> create(const LoadedOptions& options,
                                               const OpenCluster& open_cluster = nullptr,
                                               const log::RecentEvents* recent_events = nullptr);
  // A pool inside this process: no runtime directory, no socket file, and no memory kept.
  static Result<std::unique_ptr<Agent>> create_embedded(const LoadedOptions& options);
  ~Agent();

  // Serves until stop(). With `keep`, the descriptor store keeps the memory for the next agent. Errors:
  // MC_CLOSED if the agent must not serve any more, because another process serves as this node.
  Status run();
  void stop(bool keep = false);
  // Opens a connection to this agent from the same process. Any thread.
  Result<Fd> connect_embedded() { return control_->connect_embedded(); }
  Admin& admin() { return *admin_; }

 private:
  Agent(const LoadedOptions& loaded, bool embedded, const log::RecentEvents* recent_events)
      : loaded_(loaded),
        options_(loaded_.options),
        embedded_(embedded),
        recent_events_(recent_events) {}
  // Whether the agent writes its pools to the disks before it ends, because nobody uses the agent or because of
  // stop().
  enum class Leaving : std::uint8_t { kNo, kIdle, kStopped };

  Status lock_runtime_dir();
  Status open_descriptor_store();
  Status start(const OpenCluster& open_cluster);
  Status open_node(KeptDescriptors& kept);
  Status open_tier();
  Status join_cluster(const OpenCluster& open_cluster);
  void build_parts(std::uint64_t started_ns);
  Status take_over(KeptDescriptors& kept, std::uint64_t started_ns);
  void on_wake();
  void leave(Leaving why);
  void every_tick(std::uint64_t now_ns);
  void end_if_idle(std::uint64_t now_ns);
  void watch_descriptor_store();
  void report_disks();
  void report_writes() const;

  const LoadedOptions loaded_;
  const Options& options_;
  const bool embedded_;
  const log::RecentEvents* const recent_events_;
  Fd lock_;
  Fd wake_;  // signalled by stop(), suspected sessions and scrubbers
  std::atomic<bool> keep_{false};
  std::atomic<unsigned> stops_{0};  // calls of stop() that the loop has not heard of
  Leaving leaving_ = Leaving::kNo;
  std::uint64_t next_page_ns_ = 0;
  std::uint64_t last_use_ns_ = 0;  // by a session or a contribution

  std::unique_ptr<KeptFiles> kept_;
  bool succeeds_ = false;  // the store held descriptors of an earlier agent
  std::unique_ptr<NodeState> node_;
  CountersPage counters_page_;
  EventLoop events_;
  LoopTimes loop_times_;
  std::unique_ptr<Namespaces> namespaces_;
  std::unique_ptr<tier::Tier> tier_;  // null without tier_paths; destroyed before the pools
  std::unique_ptr<TieredPools> tiered_pools_;  // destroyed before the tier; the pools outlive both
  std::unique_ptr<Cluster> cluster_;  // destroyed before the stores that the cluster listens to
  std::unique_ptr<GpuWorkers> gpu_workers_;
  std::unique_ptr<GpuProcesses> gpu_processes_;  // null for an embedded agent
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<Admin> admin_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<AgentLoop> loop_;
  Server server_;  // destroyed before the sessions of its requests
};

}  // namespace mc::agent
