// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kCountersPeriodNs = 1000000000;

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Status make_runtime_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return {MC_PERMISSION_DENIED, errno_text("create runtime_dir " + path, errno) +
                                      "; create its parent or set runtime_dir"};
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return {MC_INVALID_ARGUMENT, "runtime_dir " + path + " is not a directory"};
  }
  if (status.st_uid != ::geteuid() || (status.st_mode & 0022) != 0) {
    return {MC_PERMISSION_DENIED, "runtime_dir " + path +
                                      " must belong to the agent's user and be writable by nobody "
                                      "else; run: chown " +
                                      std::to_string(::geteuid()) + " " + path + " && chmod 0700 " +
                                      path};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Agent>> Agent::create(const LoadedOptions& options,
                                             const OpenCluster& open_cluster,
                                             const log::RecentEvents* recent_events) {
  auto agent = std::unique_ptr<Agent>(new Agent(options, false, recent_events));
  raise_descriptor_limit();
  if (Status status = agent->lock_runtime_dir(); !status.ok()) return fail(status);
  auto unit_socket = take_unit_socket(options.options.socket);
  if (!unit_socket) return fail(unit_socket.error());
  if (Status status = agent->open_descriptor_store(); !status.ok()) return fail(status);
  Status status = agent->start(open_cluster);
  if (status.ok()) status = agent->control_->listen(std::move(*unit_socket));
  if (status.ok()) return agent;
  // A keeper without memory of an earlier agent would only keep the file system busy.
  if (!agent->succeeds_) agent->kept_->drop_all();
  return fail(status);
}

Result<std::unique_ptr<Agent>> Agent::create_embedded(const LoadedOptions& options) {
  auto agent = std::unique_ptr<Agent>(new Agent(options, true, nullptr));
  agent->kept_ = std::make_unique<KeptFiles>(make_null_store());
  if (Status status = agent->start(nullptr); !status.ok()) return fail(status);
  return agent;
}

Agent::~Agent() {
  server_.set_cluster(nullptr);
  cluster_.reset();
}

Status Agent::lock_runtime_dir() {
  if (Status status = make_runtime_dir(options_.runtime_dir); !status.ok()) return status;
  const std::string lock_path = options_.runtime_dir + "/agent.lock";
  lock_.reset(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) return {MC_PERMISSION_DENIED, errno_text("open " + lock_path, errno)};
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return {MC_BUSY, "another mc-agent uses runtime_dir " + options_.runtime_dir +
                         "; stop the other agent, or set another runtime_dir for this agent"};
  }
  return {};
}

Status Agent::open_descriptor_store() {
  const std::string& which = options_.descriptor_store;
  if (which == "none") {
    kept_ = std::make_unique<KeptFiles>(make_null_store());
    return {};
  }
  if (which == "systemd" || (which == "auto" && std::getenv("NOTIFY_SOCKET") != nullptr)) {
    auto store = make_systemd_store();
    if (store) {
      kept_ = std::make_unique<KeptFiles>(std::move(*store));
      return {};
    }
    if (which == "systemd") return store.error();
  }
  auto store = make_keeper_store(options_.runtime_dir, options_.keep_seconds);
  if (!store) return store.error();
  kept_ = std::make_unique<KeptFiles>(std::move(*store));
  return {};
}

Status Agent::start(const OpenCluster& open_cluster) {
  const std::uint64_t started_ns = now_ns();
  if (Status status = events_.open(); !status.ok()) return status;
  auto wake = make_eventfd();
  if (!wake) return wake.error();
  wake_ = std::move(*wake);
  if (Status status = events_.watch(wake_.get(), [this] { on_wake(); }); !status.ok())
    return status;
  KeptDescriptors kept = kept_->take_all();
  succeeds_ = !kept.empty();
  MC_FAILPOINT("restart.took_descriptors");
  if (Status status = open_node(kept); !status.ok()) return status;
  if (Status status = open_tier(); !status.ok()) return status;
  if (Status status = join_cluster(open_cluster); !status.ok()) return status;
  build_parts(started_ns);
  if (Status status = take_over(kept, started_ns); !status.ok()) return status;
  if (Status status = namespaces_->open_configured(); !status.ok()) return status;
  if (embedded_) return {};
  gpu_processes_ = std::make_unique<GpuProcesses>(options_);
  auto page = CountersPage::create(options_.runtime_dir, node_->node_id(), node_->incarnation());
  if (!page) return page.error();
  counters_page_ = std::move(*page);
  return {};
}

Status Agent::open_node(KeptDescriptors& kept) {
  MemoryFile node_file;
  if (const auto found = kept.find("node"); found != kept.end()) {
    if (auto file = MemoryFile::adopt(std::move(found->second))) node_file = std::move(*file);
  }
  auto node = NodeState::open(std::move(node_file), [this] {
    const auto on_disks = tier::Tier::identity_on(split_list(options_.tier_paths));
    return NodeState::Known{on_disks.host, on_disks.incarnation};
  });
  if (!node) return node.error();
  node_ = std::make_unique<NodeState>(std::move(*node));
  kept_->keep("node", node_->file().fd());
  return {};
}

Status Agent::open_tier() {
  if (options_.tier_paths.empty()) return {};
  tier::Tier::Plan plan{
      .paths = split_list(options_.tier_paths),
      .bytes_of_each = options_.tier_bytes,
      .host = node_->node_id(),
      .incarnation = node_->incarnation(),
      .only_own_disks = !options_.cluster_store.empty() || !options_.masters.empty()};
  if (::getrandom(&plan.random, sizeof plan.random, 0) < 0) {
    return {MC_INTERNAL, "getrandom() failed; the kernel gives no random numbers"};
  }
  tier_ = std::make_unique<tier::Tier>(plan);
  tiered_pools_ =
      std::make_unique<TieredPools>(tier_->log(), options_.tier_endurance_bytes_per_day, now_ns());
  server_.set_disks(tiered_pools_.get());
  for (const int fd : tier_->wait_fds()) {
    if (Status status = events_.watch(fd, [this] { loop_->on_tier_event(); }); !status.ok()) {
      return status;
    }
  }
  return {};
}

void Agent::report_disks() {
  for (const tier::DiskReport& disk : tier_->take_changes()) {
    const std::string& cause = disk.text.empty() ? disk.emptied : disk.text;
    spdlog::log(
        cause.empty() ? spdlog::level::info : spdlog::level::warn,
        "event=tier_disk disk=\"{}\" state={}{}", disk.name, tier::name_of(disk.state),
        cause.empty() ? "" : (disk.text.empty() ? " emptied=\"" : " cause=\"") + cause + '"');
  }
}

Status Agent::join_cluster(const OpenCluster& open_cluster) {
  if (!open_cluster) {
    if (options_.cluster_store.empty() && options_.masters.empty()) return {};
    return {MC_UNSUPPORTED, "an embedded agent cannot join a cluster; run mc-agent instead"};
  }
  std::uint64_t capacity_bytes = options_.pool_bytes;
  for (const NamespaceOptions& tenant : options_.namespaces) {
    if (tenant.local) continue;
    capacity_bytes += tenant.pool_bytes != 0 ? tenant.pool_bytes : options_.pool_bytes;
  }
  auto cluster = open_cluster(options_, node_->node_id(), node_->incarnation(), capacity_bytes);
  if (!cluster) return cluster.error();
  cluster_ = std::move(*cluster);
  if (!cluster_) return {};
  server_.set_cluster(cluster_.get());
  cluster_->set_disks(tiered_pools_.get());
  return events_.watch(cluster_->wait_fd(), [this] { loop_->on_cluster_event(); });
}

void Agent::build_parts(std::uint64_t started_ns) {
  sessions_ = std::make_unique<Sessions>(options_, *node_, *kept_, events_, server_, wake_.get(),
                                         [this](std::uint64_t id, std::function<void()> done) {
                                           return gpu_workers_->release(id, std::move(done));
                                         });
  namespaces_ = std::make_unique<Namespaces>(
      Namespaces::Surroundings{
          options_, *node_, *kept_, events_, cluster_.get(), tiered_pools_.get(), wake_.get(),
          [this](const Tenant& tenant) { return gpu_workers_->let_go(tenant); }},
      [this](const std::string& tenant, std::vector<std::uint64_t>& pins) {
        if (sessions_) sessions_->collect_pins(tenant, pins);
      },
      [this] { server_.retry_waiting(now_ns()); });
  gpu_workers_ = std::make_unique<GpuWorkers>(*namespaces_, *kept_, events_);
  admin_ = std::make_unique<Admin>(
      Admin::Parts{loaded_, *node_, *namespaces_, *sessions_, server_, loop_times_, recent_events_,
                   cluster_.get(), tier_.get(), tiered_pools_.get(), *gpu_workers_, started_ns,
                   [this](const Tenant& tenant) { control_->end_sessions_of(tenant); }});
  control_ = std::make_unique<Control>(options_, embedded_, *admin_, *namespaces_, *sessions_,
                                       *gpu_workers_, events_, wake_.get());
  loop_ = std::make_unique<AgentLoop>(
      AgentLoop::Parts{options_, events_, server_, *sessions_, *namespaces_, *control_,
                       cluster_.get(), tier_.get(), tiered_pools_.get(), loop_times_},
      [this](std::uint64_t now) { every_tick(now); });
}

Status Agent::take_over(KeptDescriptors& kept, std::uint64_t started_ns) {
  if (Status status = gpu_workers_->adopt(kept); !status.ok()) return status;
  sessions_->adopt(kept);
  const auto session_known = [this](std::uint64_t id, const std::string& tenant) {
    return sessions_->belongs_to(id, tenant);
  };
  if (Status status = namespaces_->adopt(kept, session_known, started_ns); !status.ok()) {
    return status;
  }
  sessions_->attach([this](const std::string& name) { return namespaces_->find(name); });
  namespaces_->keep_contributed(now_ns());
  std::set<std::string> wanted{"node"};
  namespaces_->add_kept_names(wanted);
  sessions_->add_kept_names(wanted);
  gpu_workers_->add_kept_names(wanted);
  kept_->forget_all_but(wanted, kept);
  MC_FAILPOINT("restart.took_over");
  return {};
}

// ---- Running ------------------------------------------------------------------------------------

Status Agent::run() {
  Status status = loop_->run();
  if (leaving_ != Leaving::kNo) report_writes();
  counters_page_.write(admin_->counters_text());
  if (!keep_.load()) kept_->drop_all();
  return status;
}

void Agent::stop(bool keep) {
  if (keep) keep_ = true;
  ++stops_;
  signal_eventfd(wake_.get());
}

// The second stop() ends the agent at once.
void Agent::leave(Leaving why) {
  const std::uint64_t write_ns = options_.tier_stop_seconds * (1000 * kMs);
  if (keep_ || tier_ == nullptr || write_ns == 0 || leaving_ == Leaving::kStopped) {
    loop_->stop();
    return;
  }
  leaving_ = why;
  loop_->stop_after_writes(now_ns() + write_ns);
}

void Agent::report_writes() const {
  const TieredPools::Written written = tiered_pools_->written();
  const bool all = keep_ || written.lost + written.left == 0;
  spdlog::log(all ? spdlog::level::info : spdlog::level::warn,
              "event=pools_written objects={} lost={} left={}", written.objects, written.lost,
              written.left);
}

void Agent::on_wake() {
  drain_eventfd(wake_.get());
  for (unsigned stops = stops_.exchange(0); stops > 0; --stops) leave(Leaving::kStopped);
  control_->adopt_embedded();
  sessions_->handle_suspicions();
  namespaces_->act_on_findings();
}

void Agent::every_tick(std::uint64_t now) {
  watch_descriptor_store();
  if (tier_) report_disks();
  sessions_->end_left(now);
  gpu_workers_->tick(now);
  if (gpu_processes_ && leaving_ == Leaving::kNo) gpu_processes_->tick(now);
  namespaces_->drop_unused(now, [&](const Tenant& tenant) { return sessions_->any_of(tenant); });
  end_if_idle(now);
  if (now < next_page_ns_ || embedded_) return;
  next_page_ns_ = now + kCountersPeriodNs;
  counters_page_.write(admin_->counters_text());
  // systemd waits for an agent that writes its pools.
  ::sd_notify(0,
              leaving_ != Leaving::kNo ? "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=10000000" : "WATCHDOG=1");
}

void Agent::end_if_idle(std::uint64_t now) {
  if (options_.end_idle_seconds == 0) return;
  const bool in_use = !sessions_->all().empty() || namespaces_->any_contribution();
  if (in_use || last_use_ns_ == 0) last_use_ns_ = now;
  const bool may_stay = leaving_ == Leaving::kIdle && !tiered_pools_->writes_pins();
  if (in_use && may_stay) {
    leaving_ = Leaving::kNo;
    loop_->stay();
    tiered_pools_->stop_writing();
  }
  if (leaving_ != Leaving::kNo) return;
  if (now - last_use_ns_ < options_.end_idle_seconds * (1000 * kMs)) return;
  spdlog::info("event=idle seconds={} effect=\"the agent ends\"", options_.end_idle_seconds);
  leave(Leaving::kIdle);
}

// A descriptor store that dies is restarted, and gets all descriptors again.
void Agent::watch_descriptor_store() {
  const int fd = kept_->death_fd();
  if (fd < 0 || events_.watches(fd)) return;
  const Status status = events_.watch(fd, [this, fd] {
    events_.unwatch(fd);
    if (!kept_->restart()) return;
    kept_->keep("node", node_->file().fd());
    namespaces_->keep_all();
    sessions_->keep_all();
    gpu_workers_->keep_all();
  });
  static_cast<void>(status);  // the next tick tries again
}

}  // namespace mc::agent
