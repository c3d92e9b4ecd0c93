// SPDX-License-Identifier: Apache-2.0
//
// The agent's answers to mcctl, as JSON. libmc/client/admin.h lists the verbs.
// Threads: the agent's loop.
// Trusts: a request is bounded text. Only root and the agent's own user may request a change.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <json/value.h>

#include "agent/devices/gpu_workers.h"
#include "agent/loop/loop_times.h"
#include "agent/namespaces/namespaces.h"
#include "agent/options/options.h"
#include "agent/server/server.h"
#include "agent/sessions/node_state.h"
#include "agent/sessions/sessions.h"
#include "agent/tier/tier.h"
#include "agent/tiering/tiered_pools.h"
#include "libmc/log/recent_events.h"

namespace mc::agent {

class Admin {
 public:
  struct Parts {
    const LoadedOptions& options;
    const NodeState& node;
    Namespaces& namespaces;
    const Sessions& sessions;
    const Server& server;
    const LoopTimes& loop_times;
    const log::RecentEvents* recent_events;  // null for an agent without a log of its own
    Cluster* cluster;                        // null for an agent without a cluster
    const tier::Tier* tier;                  // null for an agent without a tier
    TieredPools* tiered_pools;               // of the tier
    const GpuWorkers& gpu_workers;
    std::uint64_t started_ns;  // of the agent
    std::function<void(const Tenant&)> end_sessions_of;
  };
  explicit Admin(Parts parts) : at_(std::move(parts)) {}
  // Calls `done` exactly once: now or, if the cluster takes part, in a later turn of the loop.
  void answer(std::string_view request, const PeerCredentials& peer, const Cluster::Answer& done);
  // The answer of the verb "status", for the counters page.
  std::string counters_text();

 private:
  void answer_object(const Json::Value& request, std::string_view text, const PeerCredentials& peer,
                     const Cluster::Answer& done);
  std::string answer_now(std::string_view verb, const Json::Value& request,
                         const PeerCredentials& peer);
  Json::Value status();
  Json::Value tier() const;
  Json::Value gpu_workers() const;
  Json::Value requests();
  Json::Value loop();
  Json::Value tenant_status(const Tenant& tenant);
  // pins: of the session; nullopt: not counted.
  static Json::Value session_status(const Session& session, std::optional<std::uint64_t> pins);
  void answer_about_keys(const Json::Value& request, std::string_view text,
                         const PeerCredentials& peer, const Cluster::Answer& done);
  void list(const Tenant& tenant, const Json::Value& request, const Cluster::Answer& done);
  void list_disks(const Tenant& tenant, DiskListings::PageId id, std::size_t limit,
                  const Cluster::Answer& done);
  Json::Value segments();
  Json::Value segment(const Tenant& tenant);
  Json::Value waits_for(const Tenant& tenant);
  static Status may_have(const Tenant& tenant, std::uint64_t pool_bytes);
  Json::Value resize(const Json::Value& request);
  Json::Value contribute(const Json::Value& request, const PeerCredentials& peer);
  Json::Value create_namespace(const Json::Value& request);
  Json::Value drop_namespace(const Json::Value& request);
  Json::Value set_capacity(const Json::Value& request);
  Json::Value evict(const Json::Value& request);
  Json::Value trace(const Json::Value& request, const PeerCredentials& peer);
  Json::Value recent_events(const Json::Value& request);
  Json::Value config();

  const Parts at_;
};

}  // namespace mc::agent
