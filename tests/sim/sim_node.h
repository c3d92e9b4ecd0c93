// SPDX-License-Identifier: Apache-2.0
//
// A host: a real ObjectStore, Tenant and ClusterNode, on the simulated network. The
//   host can be killed and started again, with the pool's memory or without.
// Threads: The simulator's.
// Owns: Everything of the host but its clients' pins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/cluster/cluster_node.h"
#include "agent/tier/jobs/disk_worker.h"
#include "agent/tiering/tiered_pools.h"
#include "conformance/transport/fault_transport.h"
#include "conformance/transport/loop_transport.h"
#include "sim/sim_port.h"
#include "tier/model_disk.h"

namespace mc::sim {

inline constexpr const char* kNameSpace = "sim";
inline constexpr std::uint64_t kStripeUnit = 64;  // smaller objects are not cut
inline constexpr const char* kSecret = "the simulated cluster's";

struct NodeOptions {
  std::uint64_t node = 0;
  std::uint64_t pool_bytes = 512u << 10;
  std::uint64_t seed = 0;
  std::uint32_t partitions = 1;
  std::vector<std::string> masters;  // addresses
  std::uint64_t stripe_bytes = 0;    // stripe size of larger objects; 0: no stripes
  std::uint64_t disk_bytes = 0;      // of the tier, on one disk; 0: no tier
  transport::testing::FaultPlan plan;
  SimPort::Faults faults;
  // A deliberate bug: peers read the bytes that lie there now, without a check of the generation.
  bool checks_no_generations = false;
};

class SimNode {
 public:
  // The ways of this host to masters and to the cluster store.
  using MakeOutside = std::function<metadata::MasterClient::Outside()>;

  SimNode(const NodeOptions& options, transport::testing::LoopNetwork& network,
          MakeOutside make_outside, agent::ObjectStore::CollectPins client_pins);
  ~SimNode();

  void start();
  // Without its memory, the host has lost its power: the disk keeps or loses unflushed sectors.
  void kill(bool keeps_memory);
  void poll(std::uint64_t now_ns);
  // Call after the clients' turn.
  void advance(std::uint64_t now_ns);

  bool up() const { return cluster_ != nullptr; }
  // All masters (or that partition's master) have this host's report.
  bool ready() const;
  bool ready(std::uint32_t partition) const;
  // The latest version that this host has told a master. REQUIRES: up().
  std::uint64_t latest_version() const;
  std::uint64_t id() const { return options_.node; }
  agent::ObjectStore& store() { return *tenant_->store; }
  agent::Cluster& cluster();
  const std::shared_ptr<agent::Tenant>& tenant() const { return tenant_; }
  // Null: the host has no tier.
  agent::LocalDisks* disks() { return tiered_.get(); }
  // Objects that went to the disk and came back, in all lives of the agent.
  std::uint64_t demoted() const;
  std::uint64_t promoted() const;
  tier::testing::ModelDisk& disk() { return *disk_; }  // REQUIRES: disks()
  std::uint32_t disk_objects() const { return log_ == nullptr ? 0 : log_->object_count(); }
  transport::testing::FaultTransport& transport() { return *transport_; }
  // A stripe of a large object on this host.
  struct Stripe {
    std::uint32_t entry = 0;
    agent::StripeLabel label;
    bool sealed = false;
  };
  std::vector<Stripe> stripes();
  // Names a mismatch in the pool's accounts; empty: none. quiet: no client reserves or reads.
  std::string check_sums(bool quiet);
  void set_plan(const transport::testing::FaultPlan& plan);
  // Until the next start.
  void never_end_reports(bool never);

  std::uint64_t paused_until_ns = 0;
  std::int64_t wall_offset_ns = 0;

 private:
  class Cluster;
  class LaxGuardTransport;

  void open_disk();

  const NodeOptions options_;
  transport::testing::LoopNetwork& network_;
  const MakeOutside make_outside_;
  const agent::ObjectStore::CollectPins client_pins_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t next_tick_ns_ = 0;
  transport::testing::FaultPlan plan_ = options_.plan;
  MemoryFile kept_index_, kept_pool_, kept_versions_;
  std::unique_ptr<transport::testing::FaultTransport> transport_;
  tier::testing::SparseBytes disk_image_;
  std::uint64_t demoted_before_ = 0, promoted_before_ = 0;  // by earlier lives
  std::unique_ptr<tier::DiskWorker> disk_worker_;
  tier::testing::ModelDisk* disk_ = nullptr;  // of the worker
  std::unique_ptr<tier::Log> log_;
  std::shared_ptr<agent::Tenant> tenant_;
  std::unique_ptr<agent::TieredPools> tiered_;
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace mc::sim
