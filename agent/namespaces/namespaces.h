// SPDX-License-Identifier: Apache-2.0
//
// The namespaces of the agent: opens a namespace with its pool, takes over the pools of
//   the previous agent, and drops a namespace. A scrubber checks each pool.
// Threads: the agent's loop.
// Owns: the namespaces and the watches of the growing pools.
// Trusts: the options. Recovery checks the files of the previous agent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/keeper/kept_files.h"
#include "agent/loop/event_loop.h"
#include "agent/options/options.h"
#include "agent/server/remote_request.h"
#include "agent/server/tenant.h"
#include "agent/sessions/node_state.h"

namespace mc::agent {

class Namespaces {
 public:
  using Table = std::map<std::string, std::shared_ptr<Tenant>>;
  // Appends the pins of all sessions of a namespace.
  using CollectPins = std::function<void(const std::string& tenant, std::vector<std::uint64_t>&)>;
  // True if the session exists and belongs to the namespace.
  using SessionKnown = std::function<bool(std::uint64_t session_id, const std::string& tenant)>;

  struct Surroundings {
    const Options& options;
    const NodeState& node;
    KeptFiles& kept;
    EventLoop& events;
    Cluster* cluster;   // null for an agent without a cluster
    LocalDisks* disks;  // null for an agent without a tier
    int wake;           // a scrubber with findings signals this eventfd
    // Whether the pool may take memory from the system.
    std::function<bool(const Tenant&)> may_grow;
  };
  // on_room: called when a pool has grown.
  Namespaces(const Surroundings& around, CollectPins collect_pins, std::function<void()> on_room);

  const Table& all() const { return tenants_; }
  // Null for an unknown namespace.
  std::shared_ptr<Tenant> find(const std::string& name) const;
  // True if the user may connect: to this namespace, or to any namespace if tenant is null.
  bool admits(const PeerCredentials& peer, const Tenant* tenant) const;

  Status open_configured();
  // temporary: made by an admin verb. Errors: MC_BUSY beyond the limit, MC_NO_MEMORY.
  Result<std::shared_ptr<Tenant>> open(const NamespaceOptions& options, bool temporary);
  // REQUIRES: no session uses the namespace.
  void drop(const std::string& name);
  // Gives the pool a size of its own, which contributions can only exceed.
  void resize(Tenant& tenant, std::uint64_t own_pool_bytes);
  // Limits the bytes of live objects, also for an agent that takes the pool over with the same
  // configuration. 0: no limit beside the pool.
  void set_capacity(Tenant& tenant, std::uint64_t capacity_bytes);
  // Gives the pool the size and the capacity that follow from the contributions.
  void fit(Tenant& tenant);
  // Called after a restart, when the sessions have their contributions. The rest of the pool's size is
  // the contribution of processes that have ended, and stays for keep_seconds.
  void keep_contributed(std::uint64_t now_ns);
  bool any_contribution() const;
  void tick(std::uint64_t now_ns, bool idle);
  // True if a step of a shrinking pool can follow at once.
  bool shrinks() const { return shrinks_; }
  // Does such a step in each shrinking pool.
  void shrink_some();
  // Drops the temporary namespaces that had no session for as long as they asked for. in_use: true if
  // a session uses the namespace.
  void drop_unused(std::uint64_t now_ns, const std::function<bool(const Tenant&)>& in_use);
  // Drops the objects that scrubbers have found damaged.
  void act_on_findings();
  // Writes the loop's processor into the indexes, and whether the loop serves several channels. A client
  // on the same processor yields instead of spinning, or leaves the processor.
  void tell_core(std::uint32_t core, bool serves_many) {
    if (core != told_core_ || serves_many != told_many_) write_core(core, serves_many);
  }

  // ---- Restart
  // Takes over the pools of the previous agent; started_ns is for the log. A damaged pool is set
  // aside, and its namespace starts empty.
  Status adopt(KeptDescriptors& kept, const SessionKnown& session_known, std::uint64_t started_ns);
  void keep_all();
  void add_kept_names(std::set<std::string>& names) const;

 private:
  std::shared_ptr<Tenant> make_tenant(const NamespaceOptions& options) const;
  ObjectStore::Config config_for(const NamespaceOptions& options) const;
  ObjectStore::CollectPins pin_collector(const std::string& tenant) const;
  // The options of a kept namespace, from the configuration or from the index file.
  Result<NamespaceOptions> options_of_kept(const std::string& name, const MemoryFile& index_file,
                                           bool& configured) const;
  bool fits_cluster(const NamespaceOptions& options, const MemoryFile& index_file) const;
  Status adopt_pool(const std::string& name, MemoryFile index_file, MemoryFile pool_file,
                    MemoryFile versions, const SessionKnown& session_known,
                    std::uint64_t started_ns);
  // versions: the cluster's version book of this namespace, or an empty file.
  Status add(std::shared_ptr<Tenant> tenant, MemoryFile versions);
  // The tenant's descriptors with their names in the descriptor store; the first part of the index,
  // which holds the header, is the last.
  std::vector<std::pair<std::string, int>> kept_parts(const Tenant& tenant) const;
  void keep(const Tenant& tenant);
  void on_chunk(Tenant& tenant);
  void write_core(std::uint32_t core, bool serves_many);

  Surroundings around_;
  const Options& options_;
  CollectPins collect_pins_;
  std::function<void()> on_room_;
  Table tenants_;
  bool shrinks_ = false;
  std::uint32_t told_core_ = 0;  // the processor that the index headers name for the loop
  bool told_many_ = false;
};

}  // namespace mc::agent
