// SPDX-License-Identifier: Apache-2.0
//
// The agent's loop: serves the rings of active channels while work arrives, spins for a
//   short time, then sleeps in epoll. Periodic work has its own deadlines.
// Threads: all calls come from the loop's thread.
// Owns: the loop's deadlines. The parts belong to the Agent.
// Trusts: its parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "agent/admin/control.h"
#include "agent/loop/event_loop.h"
#include "agent/loop/loop_times.h"
#include "agent/namespaces/namespaces.h"
#include "agent/options/options.h"
#include "agent/server/remote_request.h"
#include "agent/server/server.h"
#include "agent/sessions/sessions.h"
#include "agent/tier/tier.h"
#include "agent/tiering/tiered_pools.h"
#include "libmc/base/core_sharing.h"

namespace mc::agent {

class AgentLoop {
 public:
  struct Parts {
    const Options& options;
    EventLoop& events;
    Server& server;
    Sessions& sessions;
    Namespaces& namespaces;
    Control& control;
    Cluster* cluster;           // null for an agent without a cluster
    tier::Tier* tier;           // null for an agent without a tier
    TieredPools* tiered_pools;  // of the tier
    LoopTimes& times;
  };
  // every_tick: further work of a tick, every 100 ms.
  AgentLoop(const Parts& parts, std::function<void(std::uint64_t now_ns)> every_tick)
      : options_(parts.options),
        events_(parts.events),
        server_(parts.server),
        sessions_(parts.sessions),
        channels_(parts.sessions.channels()),
        namespaces_(parts.namespaces),
        control_(parts.control),
        cluster_(parts.cluster),
        tier_(parts.tier),
        tiered_pools_(parts.tiered_pools),
        times_(parts.times),
        every_tick_(std::move(every_tick)) {}

  // Serves until stop(), or until the agent must not serve any more. Errors: MC_CLOSED if another process serves
  // as this node.
  Status run();
  void stop() { stop_ = true; }
  // As stop(), when the objects of the pools are on the disks of the tier, and at this time at the latest.
  // Clients are served meanwhile. REQUIRES: a tier.
  void stop_after_writes(std::uint64_t at_latest_ns) { leave_by_ns_ = at_latest_ns; }
  // Takes stop_after_writes() back.
  void stay() { leave_by_ns_ = 0; }
  // The cluster's descriptor is readable.
  void on_cluster_event();
  // A disk of the tier has ended jobs.
  void on_tier_event() { next_tier_ns_ = std::min(next_tier_ns_, tier_pause_ns_); }

 private:
  bool turn_to_cluster(std::uint64_t now_ns, bool served);
  bool poll_cluster(std::uint64_t now_ns);
  std::uint64_t do_periodic_work(std::uint64_t now_ns);
  std::uint64_t shrink_some(std::uint64_t now_ns);
  void schedule_tier(std::uint64_t now_ns);
  std::uint64_t work_on_tier(std::uint64_t now_ns);
  std::uint64_t write_pools(std::uint64_t now_ns);
  void handle_events(int timeout_ms);
  bool spin(std::uint64_t now_ns);
  void publish_wakes();
  bool sleep_until_event(std::uint64_t now_ns);
  void tick(std::uint64_t now_ns);

  const Options& options_;
  EventLoop& events_;
  Server& server_;
  Sessions& sessions_;
  ActiveChannels& channels_;
  Namespaces& namespaces_;
  Control& control_;
  Cluster* const cluster_;
  tier::Tier* const tier_;
  TieredPools* const tiered_pools_;
  LoopTimes& times_;
  const std::function<void(std::uint64_t now_ns)> every_tick_;
  CoreSharing core_;
  bool stop_ = false;
  std::uint64_t leave_by_ns_ = 0;  // 0: the agent stays
  std::uint64_t next_writes_ns_ = 0;
  Status end_;
  bool woken_ = false;  // true from a sleep until the first answer
  std::uint64_t last_work_ns_ = 0;
  std::uint64_t next_tick_ns_ = 0;
  std::uint64_t next_retry_ns_ = 0;
  std::uint64_t next_shrink_ns_ = 0;
  std::uint64_t next_tier_ns_ = 0;
  std::uint64_t tier_pause_ns_ = 0;  // until which clients have the loop
  std::uint64_t next_idle_check_ns_ = 0;
  std::uint64_t next_events_ns_ = 0;
  std::uint64_t next_yield_ns_ = 0;
};

}  // namespace mc::agent
