// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

namespace {

std::uint64_t host_memory_bytes() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

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

// "session.<id>.<uid>.<pid>.<kind>.<namespace>"
struct SessionName {
  std::uint64_t id = 0;
  std::uint32_t uid = 0;
  int pid = 0;
  std::string kind;
  std::string tenant;
};

std::optional<SessionName> parse_session_name(const std::string& name) {
  SessionName result;
  char kind[16] = {};
  char tenant[MC_MAX_NAMESPACE_BYTES + 1] = {};
  unsigned long id = 0;
  if (std::sscanf(name.c_str(), "session.%lu.%u.%d.%15[a-z].%64s", &id, &result.uid, &result.pid,
                  kind, tenant) != 5) {
    return std::nullopt;
  }
  result.id = id;
  result.kind = kind;
  result.tenant = tenant;
  return result;
}

}  // namespace

std::string Agent::kept_name(const Session& session, std::string_view kind) {
  return "session." + std::to_string(session.id) + "." + std::to_string(session.uid) + "." +
         std::to_string(session.pid) + "." + std::string(kind) + "." + session.tenant->name;
}

Agent::Agent(const LoadedOptions& loaded) : loaded_(loaded), options_(loaded_.options) {}

Agent::~Agent() {
  server_.set_cluster(nullptr);
  cluster_.reset();
  scrubbers_.clear();
  beacons_.reset();
}

Result<std::unique_ptr<Agent>> Agent::create(const LoadedOptions& options,
                                             const OpenCluster& open_cluster) {
  auto agent = std::unique_ptr<Agent>(new Agent(options));
  raise_descriptor_limit();
  if (Status status = agent->start_host(); !status.ok()) return fail(status);
  if (Status status = agent->start(open_cluster); !status.ok()) return fail(status);
  auto listener = listen_unix(agent->options_.socket, agent->options_.socket_mode);
  if (!listener) return fail(listener.error());
  agent->listener_ = std::move(*listener);
  agent->spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::fcntl(agent->listener_.get(), F_SETFL, O_NONBLOCK);
  agent->watch(agent->listener_.get(), {Watch::Kind::kListener, 0, nullptr});
  return agent;
}

Result<std::unique_ptr<Agent>> Agent::create_embedded(const LoadedOptions& options) {
  auto agent = std::unique_ptr<Agent>(new Agent(options));
  agent->embedded_ = true;
  agent->descriptors_ = make_null_store();
  if (Status status = agent->start(nullptr); !status.ok()) return fail(status);
  return agent;
}

// Only an agent of a whole host has a runtime directory, a lock on that directory and a descriptor
// store.
Status Agent::start_host() {
  if (Status status = make_runtime_dir(options_.runtime_dir); !status.ok()) return status;
  const std::string lock_path = options_.runtime_dir + "/agent.lock";
  lock_.reset(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) return {MC_PERMISSION_DENIED, errno_text("open " + lock_path, errno)};
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return {MC_BUSY, "another mc-agent uses runtime_dir " + options_.runtime_dir +
                         "; stop the other agent, or set another runtime_dir for this agent"};
  }
  const std::string& which = options_.descriptor_store;
  if (which == "none") {
    descriptors_ = make_null_store();
    return {};
  }
  if (which == "systemd" || (which == "auto" && std::getenv("NOTIFY_SOCKET") != nullptr)) {
    auto store = make_systemd_store();
    if (store) {
      descriptors_ = std::move(*store);
      return {};
    }
    if (which == "systemd") return store.error();
  }
  auto store = make_keeper_store(options_.runtime_dir, options_.keep_seconds);
  if (!store) return store.error();
  descriptors_ = std::move(*store);
  return {};
}

Status Agent::start(const OpenCluster& open_cluster) {
  started_ns_ = now_ns();
  if (!shm::register_for_heavy_fences()) {
    return {MC_UNSUPPORTED,
            "this kernel has no membarrier(GLOBAL_EXPEDITED); use Linux 4.16 or later"};
  }
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return {MC_NO_MEMORY, errno_text("create an epoll", errno)};
  auto wake = make_eventfd();
  if (!wake) return wake.error();
  wake_ = std::move(*wake);
  watch(wake_.get(), {Watch::Kind::kWake, 0, nullptr});
  beacons_ = std::make_unique<shm::BeaconWatch>([this](std::uint64_t session_id) {
    {
      MutexLock lock(suspicions_mutex_);
      suspicions_.push_back(session_id);
    }
    signal_eventfd(wake_.get());
  });
  if (Status status = take_over(open_cluster); !status.ok()) return status;
  if (Status status = open_configured_tenants(); !status.ok()) return status;
  if (!embedded_) {
    auto page = CountersPage::create(options_.runtime_dir, node_->node_id(), node_->incarnation());
    if (!page) return page.error();
    counters_page_ = std::move(*page);
  }
  return {};
}

// ---- Taking over from the agent before ----------------------------------------------------------

Status Agent::join_cluster(const OpenCluster& open_cluster) {
  if (!open_cluster) {
    if (options_.cluster_store.empty() && options_.masters.empty()) return {};
    return {MC_UNSUPPORTED, "an embedded agent cannot join a cluster; run mc-agent instead"};
  }
  std::uint64_t capacity_bytes = options_.pool_bytes;
  for (const NamespaceOptions& tenant : options_.namespaces) {
    if (!tenant.local) capacity_bytes += config_for(tenant).pool_bytes;
  }
  auto cluster = open_cluster(options_, node_->node_id(), node_->incarnation(), capacity_bytes);
  if (!cluster) return cluster.error();
  cluster_ = std::move(*cluster);
  if (!cluster_) return {};
  server_.set_cluster(cluster_.get());
  watch(cluster_->wait_fd(), {Watch::Kind::kCluster, 0, nullptr});
  return {};
}

// All members of a cluster must share the seed of key hashes and checksums of a namespace.
bool Agent::fits_cluster(const NamespaceOptions& options, const MemoryFile& index_file) const {
  if (!cluster_ || options.local) return true;
  auto mapping = Mapping::map(index_file.fd(), sizeof(shm::IndexHeader), Mapping::Access::kRead);
  if (!mapping) return true;  // recovery reports the error
  const auto* header = reinterpret_cast<const shm::IndexHeader*>(mapping->data());
  if (header->hash_seed == cluster_->hash_seed(options.name)) return true;
  spdlog::warn(
      "event=pool_set_aside namespace={} cause=\"it was filled outside this cluster\" "
      "effect=\"starting it empty\"",
      options.name);
  return false;
}

Status Agent::take_over(const OpenCluster& open_cluster) {
  auto kept = descriptors_->take_all();
  if (!kept) {
    spdlog::warn("event=take_over_failed cause=\"{}\" effect=\"starting empty\"",
                 kept.error().to_string());
    kept = std::map<std::string, Fd>{};
  }
  MC_FAILPOINT("restart.took_descriptors");
  MemoryFile node_file;
  if (const auto found = kept->find("node"); found != kept->end()) {
    if (auto file = MemoryFile::adopt(std::move(found->second))) node_file = std::move(*file);
  }
  auto node = NodeState::open(std::move(node_file));
  if (!node) return node.error();
  node_ = std::make_unique<NodeState>(std::move(*node));
  keep("node", node_->file().fd());
  if (Status status = join_cluster(open_cluster); !status.ok()) return status;
  adopt_sessions(*kept);
  if (Status status = adopt_tenants(*kept); !status.ok()) return status;
  // A session whose pool could not be taken over has no state to resume.
  std::vector<std::uint64_t> lost;
  for (auto& [id, session] : sessions_) {
    const auto found = tenants_.find(session->tenant->name);
    if (found == tenants_.end()) {
      lost.push_back(id);
      continue;
    }
    session->tenant = found->second;
    ObjectStore& store = *found->second->store;
    for (const std::uint32_t entry : store.reservations_of(id)) {
      session->reserved.insert(entry);
      session->reserved_bytes +=
          (store.reserved_length(entry) + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
    }
    watch(session->pidfd.get(), {Watch::Kind::kPidfd, id, nullptr});
  }
  for (const std::uint64_t id : lost) sessions_.erase(id);
  drop_orphans(*kept);
  MC_FAILPOINT("restart.took_over");
  return {};
}

// The previous agent may have died in the middle of a creation or a drop. Without this cleanup the
// store would keep the leftover descriptors for ever.
void Agent::drop_orphans(const std::map<std::string, Fd>& kept) {
  std::set<std::string> wanted{"node"};
  for (const auto& [name, tenant] : tenants_) {
    wanted.insert({"index." + name, "pool." + name});
    if (tenant->clustered) wanted.insert("versions." + name);
  }
  for (const auto& [id, session] : sessions_) {
    for (const char* kind : {"file", "pidfd", "staging"}) wanted.insert(kept_name(*session, kind));
  }
  for (const auto& [name, fd] : kept) {
    if (!wanted.contains(name)) forget_kept(name);
  }
}

void Agent::adopt_sessions(std::map<std::string, Fd>& kept) {
  for (auto& [name, fd] : kept) {
    const auto parsed = parse_session_name(name);
    if (!parsed || parsed->kind != "file") continue;
    auto file = MemoryFile::adopt(std::move(fd));
    if (!file) continue;
    auto session = Session::adopt(parsed->id, node_->session_secret(parsed->id), std::move(*file));
    if (!session) {
      spdlog::warn("event=session_set_aside id={} cause=\"{}\"", parsed->id,
                   session.error().to_string());
      continue;
    }
    (*session)->uid = parsed->uid;
    (*session)->pid = parsed->pid;
    (*session)->opened_ns = started_ns_;
    (*session)->tenant = std::make_shared<Tenant>();
    (*session)->tenant->name = parsed->tenant;
    const auto pidfd = kept.find(kept_name(**session, "pidfd"));
    // the end of the process could not be noticed
    if (pidfd == kept.end() || !pidfd->second) continue;
    (*session)->pidfd = std::move(pidfd->second);
    const auto staging = kept.find(kept_name(**session, "staging"));
    if (staging != kept.end()) {
      auto memory = MemoryFile::adopt(std::move(staging->second));
      if (memory && !(*session)->adopt_staging(std::move(*memory)).ok()) continue;
    }
    sessions_[parsed->id] = std::move(*session);
  }
}

Status Agent::adopt_tenants(std::map<std::string, Fd>& kept) {
  for (auto& [name, fd] : kept) {
    if (!name.starts_with("index.") || !fd) continue;
    const std::string tenant_name = name.substr(6);
    const auto pool = kept.find("pool." + tenant_name);
    if (pool == kept.end() || !pool->second) continue;
    auto index_file = MemoryFile::adopt(std::move(fd));
    auto pool_file = MemoryFile::adopt(std::move(pool->second));
    if (!index_file || !pool_file) continue;
    NamespaceOptions wanted;
    wanted.name = tenant_name;
    bool configured = tenant_name == "default";
    for (const NamespaceOptions& options : options_.namespaces) {
      if (options.name == tenant_name) wanted = options, configured = true;
    }
    if (!configured) {
      // An admin verb created this namespace: the index header holds the options.
      auto mapping =
          Mapping::map(index_file->fd(), sizeof(shm::IndexHeader), Mapping::Access::kRead);
      if (!mapping) continue;
      const auto* header = reinterpret_cast<const shm::IndexHeader*>(mapping->data());
      wanted.pool_bytes = header->pool_bytes.load_relaxed();
      wanted.capacity_bytes = header->capacity_bytes;
      wanted.isolated = header->isolated != 0;
      wanted.policy.assign(header->policy, ::strnlen(header->policy, sizeof header->policy));
      wanted.local = header->clustered == 0;
    }
    if (!fits_cluster(wanted, *index_file)) continue;
    auto tenant = make_tenant(wanted);
    tenant->temporary = !configured;
    auto store = ObjectStore::recover(
        config_for(wanted), pin_collector(tenant_name), std::move(*index_file),
        std::move(*pool_file), [&](std::uint64_t id) {
          const auto found = sessions_.find(id);
          return found != sessions_.end() && found->second->tenant->name == tenant_name;
        });
    if (!store) {
      spdlog::error("event=pool_set_aside namespace={} cause=\"{}\" effect=\"starting it empty\"",
                    tenant_name, store.error().to_string());
      continue;
    }
    tenant->store = std::move(*store);
    const StoreCounters& counters = tenant->store->counters();
    spdlog::info("event=pool_recovered namespace={} objects={} set_aside={} ms={}", tenant_name,
                 counters.recovered, counters.set_aside, (now_ns() - started_ns_) / 1000000);
    MemoryFile versions;
    if (const auto found = kept.find("versions." + tenant_name); found != kept.end()) {
      if (auto file = MemoryFile::adopt(std::move(found->second))) versions = std::move(*file);
    }
    if (Status status = add_tenant(tenant, std::move(versions)); !status.ok()) return status;
    scrubbers_[tenant_name] = std::make_unique<Scrubber>(*tenant->store, wake_.get());
  }
  return {};
}

// ---- Namespaces ---------------------------------------------------------------------------------

Status Agent::open_configured_tenants() {
  std::vector<NamespaceOptions> wanted = options_.namespaces;
  const bool has_default = std::any_of(wanted.begin(), wanted.end(),
                                       [](const auto& ns) { return ns.name == "default"; });
  if (!has_default) wanted.insert(wanted.begin(), NamespaceOptions{});
  for (const NamespaceOptions& options : wanted) {
    if (tenants_.contains(options.name)) continue;
    auto tenant = open_tenant(options, false);
    if (!tenant) return tenant.error();
  }
  return {};
}

std::shared_ptr<Tenant> Agent::make_tenant(const NamespaceOptions& options) const {
  auto tenant = std::make_shared<Tenant>();
  tenant->name = options.name;
  const bool is_default = options.name == "default";
  tenant->isolated = options.isolated || (is_default && options_.mode == "isolated");
  tenant->clustered = cluster_ != nullptr && !options.local;
  tenant->allow_uids = options.allow_uids.empty() ? options_.allow_uids : options.allow_uids;
  tenant->quota_option_bytes = options_.session_quota_bytes;
  return tenant;
}

ObjectStore::Config Agent::config_for(const NamespaceOptions& options) const {
  ObjectStore::Config config;
  config.pool_bytes = options.pool_bytes != 0 ? options.pool_bytes : options_.pool_bytes;
  config.max_pool_bytes =
      options.max_pool_bytes != 0 ? options.max_pool_bytes : options_.max_pool_bytes;
  if (config.max_pool_bytes == 0) config.max_pool_bytes = host_memory_bytes();
  const bool is_default = options.name == "default";
  config.capacity_bytes = options.capacity_bytes != 0 ? options.capacity_bytes
                          : is_default                ? options_.capacity_bytes
                                                      : 0;
  config.arenas = options_.arenas;
  config.huge_pages = options_.huge_pages;
  config.repeatable = options_.repeatable;
  config.policy = options.policy.empty() ? options_.policy : options.policy;
  config.isolated = options.isolated || (is_default && options_.mode == "isolated");
  if (cluster_ && !options.local) config.hash_seed = cluster_->hash_seed(options.name);
  if (node_) {
    config.node_id = node_->node_id();
    config.incarnation = node_->incarnation();
  }
  return config;
}

ObjectStore::CollectPins Agent::pin_collector(const std::string& tenant) {
  return [this, tenant](std::vector<std::uint64_t>& pins) {
    for (const auto& [id, session] : sessions_) {
      if (session->tenant->name == tenant) session->collect_pins(pins);
    }
    const auto found = tenants_.find(tenant);
    if (cluster_ && found != tenants_.end()) cluster_->collect_pins(*found->second, pins);
  };
}

Result<std::shared_ptr<Tenant>> Agent::open_tenant(const NamespaceOptions& options,
                                                   bool temporary) {
  if (tenants_.size() >= MC_MAX_NAMESPACES) {
    return fail(MC_BUSY, "an agent has at most " + std::to_string(MC_MAX_NAMESPACES) +
                             " namespaces; drop one first");
  }
  const ObjectStore::Config config = config_for(options);
  const std::uint64_t left = available_memory_bytes();
  if (free_huge_page_bytes() < config.pool_bytes && config.pool_bytes > left) {
    return fail(MC_NO_MEMORY, "pool_bytes of namespace " + options.name + " is " +
                                  std::to_string(config.pool_bytes >> 20) + " MiB, but only " +
                                  std::to_string(left >> 20) +
                                  " MiB of memory are available; lower pool_bytes");
  }
  auto tenant = make_tenant(options);
  tenant->temporary = temporary;
  auto store = ObjectStore::create(config, pin_collector(options.name));
  if (!store) return fail(store.error());
  tenant->store = std::move(*store);
  if (Status status = add_tenant(tenant, MemoryFile()); !status.ok()) return fail(status);
  return tenant;
}

Status Agent::add_tenant(std::shared_ptr<Tenant> tenant, MemoryFile versions) {
  if (tenant->clustered) {
    if (Status status = cluster_->add_tenant(tenant, std::move(versions)); !status.ok()) {
      return status;
    }
    keep("versions." + tenant->name, cluster_->versions_file(*tenant).fd());
  }
  keep("index." + tenant->name, tenant->store->index().file().fd());
  keep("pool." + tenant->name, tenant->store->pool().file().fd());
  watch(tenant->store->pool().event_fd(), {Watch::Kind::kChunk, 0, tenant});
  tenants_[tenant->name] = std::move(tenant);
  told_core_ = 0;
  return {};
}

void Agent::drop_tenant(const std::string& name) {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return;
  std::vector<std::uint64_t> users;
  for (const auto& [id, session] : sessions_) {
    if (session->tenant == found->second) users.push_back(id);
  }
  for (const std::uint64_t id : users) {
    const int fd = sessions_.at(id)->connection_fd;
    end_session(id);
    close_connection(fd);
  }
  scrubbers_.erase(name);
  if (found->second->clustered) {
    cluster_->remove_tenant(*found->second);
    forget_kept("versions." + name);
  }
  unwatch(found->second->store->pool().event_fd());
  forget_kept("index." + name);
  forget_kept("pool." + name);
  tenants_.erase(found);
}

// ---- Descriptor store ---------------------------------------------------------------------------

void Agent::keep(const std::string& name, int fd) {
  if (Status status = descriptors_->put(name, fd); !status.ok()) {
    spdlog::warn("event=keep_failed name={} cause=\"{}\" effect=\"a crash would lose it\"", name,
                 status.to_string());
  }
}

void Agent::forget_kept(const std::string& name) {
  if (Status status = descriptors_->drop(name); !status.ok()) {
    spdlog::warn("event=drop_failed name={} cause=\"{}\"", name, status.to_string());
  }
}

void Agent::keep_everything_again() {
  keep("node", node_->file().fd());
  for (const auto& [name, tenant] : tenants_) {
    keep("index." + name, tenant->store->index().file().fd());
    keep("pool." + name, tenant->store->pool().file().fd());
    if (tenant->clustered) keep("versions." + name, cluster_->versions_file(*tenant).fd());
  }
  for (const auto& [id, session] : sessions_) {
    keep(kept_name(*session, "file"), session->file().fd());
    keep(kept_name(*session, "pidfd"), session->pidfd.get());
    if (session->staging_file()) {
      keep(kept_name(*session, "staging"), session->staging_file().fd());
    }
  }
}

}  // namespace mc::agent
