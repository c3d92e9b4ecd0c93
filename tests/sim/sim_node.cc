// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_node.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "agent/cluster/fetch/reservation.h"
#include "libmc/base/clock.h"
#include "shm/pins.h"
#include "sim/sim_clock.h"

namespace mc::sim {

namespace {

constexpr std::uint64_t kNodeTickNs = 10 * kMs;

// A second handle on the memory, as the keeper process holds one.
MemoryFile keep(const MemoryFile& file) {
  auto kept = file.duplicate();
  if (!kept) throw std::runtime_error("a memory file cannot be kept");
  return std::move(*kept);
}

template <typename T>
T take(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().to_string());
  return std::move(*result);
}

}  // namespace

class SimNode::Cluster final : public agent::ClusterNode {
 public:
  Cluster(const agent::ClusterIdentity& identity, const NodeOptions& options,
          const MakeOutside& make_outside, transport::Transport& transport)
      : ClusterNode(identity) {
    metadata::MasterClientOptions master;
    master.masters = options.masters;
    master.role = auth::Role::kAgent;
    master.partitions = options.partitions;
    metadata::Descriptor& about = master.descriptor;
    about.node = identity.node;
    about.incarnation = identity.incarnation;
    about.address = "10.0.0." + std::to_string(identity.node) + ":7401";
    about.host = identity.place.host;
    about.capacity_bytes = options.pool_bytes;
    std::vector<agent::MasterPort*> all;
    for (std::uint32_t partition = 0; partition < options.partitions; ++partition) {
      orders.push_back(orders_of(partition));
      master.partition = partition;
      ports.push_back(
          std::make_unique<SimPort>(master, *orders.back(), make_outside(), options.faults));
      all.push_back(ports.back().get());
    }
    connect(all, transport);
  }
  ~Cluster() override {
    ports.clear();
    stop();
  }
  int wait_fd() const override { return -1; }
  bool poll_masters(std::uint64_t /*now_ns*/) override {
    for (const auto& port : ports) port->poll();
    return false;
  }

  std::vector<std::unique_ptr<agent::MasterOrders>> orders;  // by partition
  std::vector<std::unique_ptr<SimPort>> ports;
};

// A guard that grants every access inside the region.
class SimNode::LaxGuardTransport final : public transport::Transport,
                                         private transport::RegionGuard {
 public:
  explicit LaxGuardTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  Result<transport::RegionId> register_region(const transport::RegionSpec& spec) override {
    transport::RegionSpec lax = spec;
    lax.guard = this;
    return inner_->register_region(lax);
  }
  const transport::Capabilities& capabilities() const override { return inner_->capabilities(); }
  Result<std::vector<std::byte>> describe(transport::RegionId region) const override {
    return inner_->describe(region);
  }
  Result<transport::RemoteRegionId> import_region(transport::PeerId peer,
                                                  std::span<const std::byte> text) override {
    return inner_->import_region(peer, text);
  }
  Result<transport::PeerId> connect(const transport::PeerSpec& spec) override {
    return inner_->connect(spec);
  }
  Status attach(transport::Link link) override { return inner_->attach(std::move(link)); }
  void dial_failed(transport::PeerId peer, std::uint32_t lane) override {
    inner_->dial_failed(peer, lane);
  }
  std::size_t submit(std::span<transport::Operation> operations, std::uint64_t now_ns) override {
    return inner_->submit(operations, now_ns);
  }
  void poll(std::uint64_t now_ns, std::vector<transport::Event>& events) override {
    inner_->poll(now_ns, events);
  }
  int wait_fd() const override { return -1; }
  std::uint64_t next_poll_ns() const override { return inner_->next_poll_ns(); }
  bool close_region(transport::RegionId region) override { return inner_->close_region(region); }
  void close_peer(transport::PeerId peer) override { inner_->close_peer(peer); }
  void cancel(transport::OperationId operation) override { inner_->cancel(operation); }
  const transport::Counters& counters() const override { return inner_->counters(); }

 private:
  transport::Outcome pin(const transport::Access&, std::uint64_t* ticket) override {
    *ticket = 1;
    return transport::Outcome::kDone;
  }
  void unpin(std::uint64_t) override {}
  std::unique_ptr<Transport> inner_;
};

SimNode::SimNode(const NodeOptions& options, transport::testing::LoopNetwork& network,
                 MakeOutside make_outside, agent::ObjectStore::CollectPins client_pins)
    : options_(options),
      network_(network),
      make_outside_(std::move(make_outside)),
      client_pins_(std::move(client_pins)) {}
SimNode::~SimNode() { kill(false); }

void SimNode::start() {
  ++incarnation_;
  std::unique_ptr<transport::Transport> wire = network_.make(id(), incarnation_);
  if (options_.checks_no_generations) wire = std::make_unique<LaxGuardTransport>(std::move(wire));
  transport_ = std::make_unique<transport::testing::FaultTransport>(
      std::move(wire), options_.seed + incarnation_ * 1000 + id());
  transport_->set_plan(plan_);
  agent::ClusterIdentity identity;
  identity.node = id();
  identity.incarnation = incarnation_;
  identity.secret = kSecret;
  identity.place.host = id();
  identity.stripes.above_bytes = options_.stripe_bytes;
  identity.stripes.unit_bytes = kStripeUnit;
  identity.stripes.grace_ns = 1'500 * kMs;
  cluster_ = std::make_unique<Cluster>(identity, options_, make_outside_, *transport_);

  open_disk();
  cluster_->set_disks(tiered_.get());

  tenant_ = std::make_shared<agent::Tenant>();
  tenant_->name = kNameSpace;
  tenant_->clustered = true;
  agent::ObjectStore::Config config;
  config.pool_bytes = options_.pool_bytes;
  config.node_id = id();
  config.incarnation = incarnation_;
  config.hash_seed = cluster_->hash_seed(kNameSpace);
  const auto collect = [this](std::vector<std::uint64_t>& pins) {
    client_pins_(pins);
    if (cluster_ != nullptr) cluster_->collect_pins(*tenant_, pins);
  };
  // Clients outlive the agent. The agent's own reservations have no owner after the restart.
  const auto known = [](std::uint64_t session) {
    return session != agent::kClusterSession && session != agent::kTierSession;
  };
  tenant_->store = kept_index_
                       ? take(agent::ObjectStore::recover(config, collect, std::move(kept_index_),
                                                          std::move(kept_pool_), known))
                       : take(agent::ObjectStore::create(config, collect));
  // Another thread provides the pool's memory. Wait for all the memory.
  while (store().pool().growing()) {
    pollfd chunk{store().pool().event_fd(), POLLIN, 0};
    ::poll(&chunk, 1, 1000);
    store().pool().on_chunk();
  }
  if (!cluster_->add_tenant(tenant_, std::move(kept_versions_)).ok()) {
    throw std::runtime_error("the cluster does not take the namespace");
  }
  if (tiered_ != nullptr) tiered_->add_tenant(tenant_, cluster_->shared_objects(*tenant_));
  kept_index_ = {};
  kept_pool_ = {};
  kept_versions_ = {};
}

std::uint64_t SimNode::demoted() const {
  return demoted_before_ + (tiered_ == nullptr ? 0 : tiered_->demotions().objects);
}

std::uint64_t SimNode::promoted() const {
  return promoted_before_ + (tiered_ == nullptr ? 0 : tiered_->reads().promoted);
}

void SimNode::open_disk() {
  if (options_.disk_bytes == 0) return;
  const std::uint64_t seed = options_.seed + incarnation_ * 1000 + id();
  auto disk = std::make_unique<tier::testing::ModelDisk>(options_.disk_bytes, seed, disk_image_);
  disk->set_speed({.read_ns = 100'000, .write_ns = 100'000, .flush_ns = 2 * kMs});
  disk->set_now(now_ns());
  disk_ = disk.get();
  disk_worker_ = std::make_unique<tier::DiskWorker>(std::move(disk));
  log_ = std::make_unique<tier::Log>(
      std::vector<tier::Log::DiskPlan>{{.jobs = disk_worker_.get(), .name = "disk"}},
      tier::Log::Config{.segment_bytes = tier::kSmallestSegmentBytes,
                        .random = seed,
                        .host = id(),
                        .incarnation = incarnation_,
                        .only_own_disks = true});
  tiered_ = std::make_unique<agent::TieredPools>(*log_, 0, now_ns());
}

void SimNode::kill(bool keeps_memory) {
  if (!up()) return;
  if (keeps_memory) {
    kept_index_ = keep(store().index().file());
    kept_pool_ = keep(store().pool().file());
    kept_versions_ = keep(cluster_->versions_file(*tenant_));
  }
  if (disk_ != nullptr) disk_image_ = keeps_memory ? disk_->image() : disk_->power_cut();
  demoted_before_ = demoted();
  promoted_before_ = promoted();
  cluster_.reset();
  tiered_.reset();
  tenant_.reset();
  log_.reset();
  disk_worker_.reset();
  disk_ = nullptr;
  transport_.reset();
}

agent::Cluster& SimNode::cluster() { return *cluster_; }

void SimNode::poll(std::uint64_t now_ns) { cluster_->poll(now_ns); }

void SimNode::advance(std::uint64_t now_ns) {
  cluster_->advance(now_ns);
  if (disk_ != nullptr) {
    disk_->set_now(now_ns);
    disk_worker_->do_work(now_ns);
    log_->do_work(now_ns);
    tiered_->advance(now_ns);
  }
  store().catch_up();
  if (now_ns < next_tick_ns_) return;
  next_tick_ns_ = now_ns + kNodeTickNs;
  store().tick(now_ns);
}

void SimNode::never_end_reports(bool never) {
  if (!up()) return;
  for (const auto& port : cluster_->ports) port->never_end_reports(never);
}

bool SimNode::ready(std::uint32_t partition) const {
  return up() && cluster_->ports[partition]->ready();
}

bool SimNode::ready() const {
  return up() &&
         std::ranges::all_of(cluster_->ports, [](const auto& port) { return port->ready(); });
}

std::uint64_t SimNode::latest_version() const {
  std::uint64_t latest = 0;
  for (const auto& port : cluster_->ports) latest = std::max(latest, port->latest_version());
  return latest;
}

void SimNode::set_plan(const transport::testing::FaultPlan& plan) {
  plan_ = plan;
  if (up()) transport_->set_plan(plan);
}

std::vector<SimNode::Stripe> SimNode::stripes() {
  std::vector<Stripe> found;
  agent::ObjectIndex& index = store().index();
  for (std::uint32_t entry = 0; entry < index.entry_count(); ++entry) {
    const auto version = index.entry(entry).version.load_relaxed();
    if (shm::state_of(version) != shm::EntryState::kLive) continue;
    const auto name = agent::parse_stripe_key(index.key_of(entry));
    if (!name) continue;
    const std::uint64_t length = index.entry(entry).length.load_relaxed();
    std::vector<std::byte> end(std::min(length, agent::kMostLabelBytes));
    store().read(entry, length - end.size(), end);
    const auto label = agent::decode_label(end, *name);
    if (!label) throw std::runtime_error("a stripe has no label");
    agent::VersionBook::Row row;
    const auto at = static_cast<off_t>(entry * sizeof row);
    if (::pread(cluster_->versions_file(*tenant_).fd(), &row, sizeof row, at) != sizeof row) {
      throw std::runtime_error("a stripe has no version");
    }
    found.push_back({entry, *label, row.unannounced == agent::VersionBook::Unannounced::kNo});
  }
  return found;
}

std::string SimNode::check_sums(bool quiet) {
  agent::ObjectStore& pool = store();
  std::uint64_t sum = pool.held_bytes(), live = 0, reserved = 0;
  for (std::uint32_t entry = 0; entry < pool.index().entry_count(); ++entry) {
    const auto state = shm::state_of(pool.index().entry(entry).version.load_relaxed());
    if (state == shm::EntryState::kFree) continue;
    sum += pool.extents(entry).bytes();
    live += state == shm::EntryState::kLive ? pool.index().entry(entry).length.load_relaxed() : 0;
    reserved += state == shm::EntryState::kReserved ? 1 : 0;
  }
  const auto differ = [this](const char* what, std::uint64_t said, std::uint64_t found) {
    return "I4 node " + std::to_string(id()) + ": " + what + " says " + std::to_string(said) +
           ", the entries " + std::to_string(found);
  };
  if (sum != pool.pool().used_bytes()) return differ("the pool", pool.pool().used_bytes(), sum);
  if (live != pool.live_bytes()) return differ("live_bytes()", pool.live_bytes(), live);
  if (reserved != pool.reserved_count()) {
    return differ("reserved_count()", pool.reserved_count(), reserved);
  }
  if (!quiet) return {};
  std::vector<std::uint64_t> pins;
  cluster_->collect_pins(*tenant_, pins);
  if (reserved != 0) return differ("I5 nobody reserves; reserved_count()", 0, reserved);
  if (pool.limbo_count() != 0) return differ("I5 nobody reads; limbo", pool.limbo_count(), 0);
  if (!pins.empty()) return differ("I5 no peer reads; pins", 0, pins.size());
  return {};
}

}  // namespace mc::sim
