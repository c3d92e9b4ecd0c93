// SPDX-License-Identifier: Apache-2.0
#include "agent/namespaces/namespaces.h"

#include <spdlog/spdlog.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "agent/pool/version_book.h"
#include "agent/server/local_disks.h"
#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

std::uint64_t host_memory_bytes() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

constexpr std::uint64_t kSecondNs = 1'000'000'000;

// The own size of a recovered pool: the configured size, unless a resize came after. Files of older
// agents hold no own size, and their pools have no contributions.
void take_own_size(Tenant& tenant, std::uint64_t configured_bytes) {
  shm::IndexHeader& header = tenant.store->index().header();
  const std::uint64_t target = tenant.store->pool().target_bytes();
  if (target != configured_bytes) {
    const std::uint64_t own = header.own_pool_bytes.load_relaxed();
    if (own != 0) tenant.own_pool_bytes = own;
    if (own == 0 && tenant.own_pool_bytes != 0) tenant.own_pool_bytes = target;
  }
  header.own_pool_bytes.store_relaxed(tenant.own_pool_bytes);
}

// The capacity of a recovered pool: the capacity that an operator has set, unless another one is
// configured since then.
void take_set_capacity(Tenant& tenant) {
  shm::IndexHeader& header = tenant.store->index().header();
  const std::uint64_t set = header.set_capacity.load_relaxed();
  if (set == 0) return;
  if (header.configured_capacity_bytes.load_relaxed() == tenant.capacity_option_bytes) {
    tenant.capacity_option_bytes = set - 1;
  } else {
    header.set_capacity.store_relaxed(0);
  }
}

// Of the first part of an index file.
Result<Mapping> map_index_header(int fd) {
  return Mapping::map(fd, sizeof(shm::IndexHeader), Mapping::Access::kRead);
}

// The name of a part of a memory file in the descriptor store: index0.NS, index1.NS, pool0.NS.
std::string part_name(const std::string& kind, std::size_t part, const std::string& name_space) {
  return kind + std::to_string(part) + "." + name_space;
}

void set_aside(const std::string& name_space, const Status& cause) {
  spdlog::error("event=pool_set_aside namespace={} cause=\"{}\" effect=\"starting it empty\"",
                name_space, cause.to_string());
}

// The header's part is kept last and forgotten first: where this part is, all parts are.
constexpr std::string_view kFirstIndexPart = "index0.";
constexpr std::string_view kOneFileIndex = "index.";  // of layout versions before parts

std::vector<Fd> take_parts(KeptDescriptors& kept, const std::string& kind,
                           const std::string& name_space) {
  std::vector<Fd> fds;
  for (;;) {
    const auto found = kept.find(part_name(kind, fds.size(), name_space));
    if (found == kept.end() || !found->second) return fds;
    fds.push_back(std::move(found->second));
  }
}

// Systemd ends an agent that starts for longer than TimeoutStartSec, unless the agent asks for more
// time before. A hundred million objects take a minute.
class StartTimeout {
 public:
  void extend() {
    const std::uint64_t now = now_ns();
    if (now < next_ns_) return;
    next_ns_ = now + kSecondNs;
    ::sd_notify(0, "EXTEND_TIMEOUT_USEC=60000000");
  }

 private:
  std::uint64_t next_ns_ = 0;
};

const shm::IndexHeader& header_in(const Mapping& mapping) {
  return *reinterpret_cast<const shm::IndexHeader*>(mapping.data());
}

}  // namespace

Namespaces::Namespaces(const Surroundings& around, CollectPins collect_pins,
                       std::function<void()> on_room)
    : around_(around),
      options_(around.options),
      collect_pins_(std::move(collect_pins)),
      on_room_(std::move(on_room)) {}

std::shared_ptr<Tenant> Namespaces::find(const std::string& name) const {
  const auto found = tenants_.find(name);
  return found == tenants_.end() ? nullptr : found->second;
}

bool Namespaces::admits(const PeerCredentials& peer, const Tenant* tenant) const {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  const auto listed = [&](const std::vector<std::uint32_t>& uids) {
    return std::find(uids.begin(), uids.end(), peer.uid) != uids.end();
  };
  if (tenant != nullptr) return listed(tenant->allow_uids);
  return listed(options_.allow_uids) ||
         std::any_of(tenants_.begin(), tenants_.end(),
                     [&](const auto& entry) { return listed(entry.second->allow_uids); });
}

// ---- Opening and dropping -----------------------------------------------------------------------

Status Namespaces::open_configured() {
  std::vector<NamespaceOptions> wanted = options_.namespaces;
  const bool has_default = std::any_of(wanted.begin(), wanted.end(),
                                       [](const auto& ns) { return ns.name == "default"; });
  if (!has_default) wanted.insert(wanted.begin(), NamespaceOptions{});
  for (const NamespaceOptions& options : wanted) {
    if (tenants_.contains(options.name)) continue;
    auto tenant = open(options, false);
    if (!tenant) return tenant.error();
  }
  return {};
}

std::shared_ptr<Tenant> Namespaces::make_tenant(const NamespaceOptions& options) const {
  auto tenant = std::make_shared<Tenant>();
  tenant->name = options.name;
  const bool is_default = options.name == "default";
  tenant->isolated = options.isolated || (is_default && options_.mode == "isolated");
  tenant->clustered = around_.cluster != nullptr && !options.local;
  const std::string& without_lease = options.reads_without_lease.empty()
                                         ? options_.reads_without_lease
                                         : options.reads_without_lease;
  tenant->reads_need_lease = tenant->clustered && without_lease == "miss";
  tenant->wants_disks = options.tier;
  tenant->allow_uids = options.allow_uids.empty() ? options_.allow_uids : options.allow_uids;
  tenant->quota_option_bytes = options_.session_quota_bytes;
  tenant->own_pool_bytes = options.pool_bytes != 0 ? options.pool_bytes : options_.pool_bytes;
  tenant->capacity_option_bytes = config_for(options).capacity_bytes;
  return tenant;
}

ObjectStore::Config Namespaces::config_for(const NamespaceOptions& options) const {
  ObjectStore::Config config;
  config.pool_bytes = options.pool_bytes != 0 ? options.pool_bytes : options_.pool_bytes;
  if (config.pool_bytes == 0) config.pool_bytes = kLeastContributedPoolBytes;
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
  if (around_.cluster != nullptr && !options.local) {
    config.hash_seed = around_.cluster->hash_seed(options.name);
  }
  config.node_id = around_.node.node_id();
  config.incarnation = around_.node.incarnation();
  return config;
}

ObjectStore::CollectPins Namespaces::pin_collector(const std::string& tenant) const {
  return [this, tenant](std::vector<std::uint64_t>& pins) {
    collect_pins_(tenant, pins);
    const auto found = tenants_.find(tenant);
    if (around_.cluster != nullptr && found != tenants_.end()) {
      around_.cluster->collect_pins(*found->second, pins);
    }
  };
}

Result<std::shared_ptr<Tenant>> Namespaces::open(const NamespaceOptions& options, bool temporary) {
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
  tenant->store->index().header().own_pool_bytes.store_relaxed(tenant->own_pool_bytes);
  fit(*tenant);
  if (Status status = add(tenant, MemoryFile()); !status.ok()) return fail(status);
  return tenant;
}

Status Namespaces::add(std::shared_ptr<Tenant> tenant, MemoryFile versions) {
  tenant->store->index().header().readable_until_ns.store_relaxed(
      tenant->reads_need_lease ? shm::kLeaseIsOver : shm::kNoLeaseNeeded);
  const int chunk_event = tenant->store->pool().event_fd();
  Status status = around_.events.watch(chunk_event, [this, at = tenant.get()] { on_chunk(*at); });
  if (!status.ok()) return status;
  if (tenant->clustered) status = around_.cluster->add_tenant(tenant, std::move(versions));
  if (!status.ok()) {
    around_.events.unwatch(chunk_event);
    return status;
  }
  // A namespace of an admin verb may be dropped, while a disk keeps its objects.
  if (around_.disks != nullptr && !tenant->temporary && tenant->wants_disks) {
    around_.disks->add_tenant(
        tenant, tenant->clustered ? around_.cluster->shared_objects(*tenant) : nullptr);
  }
  if (around_.may_grow) {
    tenant->store->pool().grow_if([this, at = tenant.get()] { return around_.may_grow(*at); });
  }
  keep(*tenant);
  tenant->scrubber = std::make_unique<Scrubber>(*tenant->store, around_.wake);
  tenants_[tenant->name] = std::move(tenant);
  told_core_ = 0;
  return {};
}

void Namespaces::drop(const std::string& name) {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return;
  Tenant& tenant = *found->second;
  tenant.scrubber.reset();
  const auto parts = kept_parts(tenant);
  if (tenant.clustered) around_.cluster->remove_tenant(tenant);
  around_.events.unwatch(tenant.store->pool().event_fd());
  std::for_each(parts.rbegin(), parts.rend(),
                [&](const auto& part) { around_.kept.forget(part.first); });
  tenants_.erase(found);
}

// ---- Sizes --------------------------------------------------------------------------------------

void Namespaces::resize(Tenant& tenant, std::uint64_t own_pool_bytes) {
  tenant.own_pool_bytes = own_pool_bytes;
  tenant.store->index().header().own_pool_bytes.store_relaxed(own_pool_bytes);
  fit(tenant);
}

void Namespaces::set_capacity(Tenant& tenant, std::uint64_t capacity_bytes) {
  shm::IndexHeader& header = tenant.store->index().header();
  if (header.set_capacity.load_relaxed() == 0) {
    header.configured_capacity_bytes.store_relaxed(tenant.capacity_option_bytes);
  }
  header.set_capacity.store_relaxed(capacity_bytes + 1);
  tenant.capacity_option_bytes = capacity_bytes;
  fit(tenant);
}

void Namespaces::fit(Tenant& tenant) {
  const std::uint64_t contributed = tenant.contributions.bytes();
  const std::uint64_t bytes =
      std::min(tenant.pool_bytes_with(tenant.contributions), tenant.store->pool().max_bytes());
  if (bytes != tenant.store->pool().target_bytes()) tenant.store->resize(bytes);
  std::uint64_t capacity = tenant.own_pool_bytes != 0 ? Evictor::kUnlimited : contributed;
  if (tenant.capacity_option_bytes != 0) {
    capacity = std::min(capacity, tenant.capacity_option_bytes);
  }
  tenant.store->set_capacity(capacity);
}

void Namespaces::keep_contributed(std::uint64_t now_ns) {
  for (auto& [name, tenant] : tenants_) {
    Contributions& contributions = tenant->contributions;
    const std::uint64_t target = tenant->store->pool().target_bytes();
    if (target > tenant->pool_bytes_with(contributions)) {
      contributions.keep(target - contributions.bytes(), now_ns + options_.keep_ns());
    }
    fit(*tenant);
  }
}

bool Namespaces::any_contribution() const {
  return std::any_of(tenants_.begin(), tenants_.end(),
                     [](const auto& entry) { return !entry.second->contributions.empty(); });
}

// ---- Time passes --------------------------------------------------------------------------------

void Namespaces::tick(std::uint64_t now_ns, bool idle) {
  for (auto& [name, tenant] : tenants_) {
    if (tenant->contributions.changed(now_ns)) fit(*tenant);
    tenant->store->pool().set_idle(idle);
    tenant->store->pool().give_back_strays();
    tenant->store->tick(now_ns);
    shrinks_ |= tenant->store->pool().shrinking();
    tenant->store->counters().verified = tenant->scrubber->verified();
  }
}

void Namespaces::shrink_some() {
  shrinks_ = false;
  for (auto& [name, tenant] : tenants_) shrinks_ |= tenant->store->shrink_some();
}

void Namespaces::drop_unused(std::uint64_t now_ns,
                             const std::function<bool(const Tenant&)>& in_use) {
  std::vector<std::string> unused;
  for (auto& [name, tenant] : tenants_) {
    const std::uint64_t wait_s = tenant->store->index().header().drop_unused_s.load_relaxed();
    if (wait_s == 0 || !tenant->temporary) continue;
    if (tenant->last_used_ns == 0 || in_use(*tenant)) tenant->last_used_ns = now_ns;
    if ((now_ns - tenant->last_used_ns) / kSecondNs >= wait_s) unused.push_back(name);
  }
  for (const std::string& name : unused) {
    spdlog::info("event=namespace_dropped namespace={} cause=\"no session uses it\"", name);
    drop(name);
  }
}

void Namespaces::on_chunk(Tenant& tenant) {
  ExtentPool& pool = tenant.store->pool();
  if (pool.on_chunk()) on_room_();
  shrinks_ |= pool.shrinking();  // the system has taken the pages of a step
  if (const Status& status = pool.growth_status(); !status.ok()) {
    spdlog::warn("event=pool_growth_stopped namespace={} reserved_mib={} cause=\"{}\"", tenant.name,
                 pool.reserved_bytes() >> 20, status.to_string());
  }
}

void Namespaces::act_on_findings() {
  for (auto& [name, tenant] : tenants_) {
    for (const Scrubber::Finding& finding : tenant->scrubber->take()) {
      if (!tenant->store->drop_corrupt(finding.entry, finding.version)) continue;
      spdlog::error("event=corrupt_object namespace={} entry={} effect=\"removed\"", name,
                    finding.entry);
    }
  }
}

void Namespaces::write_core(std::uint32_t core, bool serves_many) {
  told_core_ = core;
  told_many_ = serves_many;
  for (auto& [name, tenant] : tenants_) {
    shm::IndexHeader& header = tenant->store->index().header();
    header.agent_core.store_relaxed(core);
    header.agent_serves_many.store_relaxed(serves_many ? 1 : 0);
  }
}

// ---- Restart ------------------------------------------------------------------------------------

Status Namespaces::adopt(KeptDescriptors& kept, const SessionKnown& session_known,
                         std::uint64_t started_ns) {
  for (auto& [kept_name, fd] : kept) {
    if (kept_name.starts_with(kOneFileIndex) && fd) {
      set_aside(kept_name.substr(kOneFileIndex.size()),
                {MC_VERSION_MISMATCH, "the previous agent has another memory layout"});
    }
    if (!kept_name.starts_with(kFirstIndexPart) || !fd) continue;
    const std::string name = kept_name.substr(kFirstIndexPart.size());
    const auto mapping = map_index_header(fd.get());
    if (!mapping) continue;
    const shm::IndexHeader& header = header_in(*mapping);
    auto index_file =
        MemoryFile::adopt_growing(take_parts(kept, "index", name), ObjectIndex::part_bytes(header));
    auto pool_file =
        MemoryFile::adopt_growing(take_parts(kept, "pool", name), ExtentPool::part_bytes(header));
    if (!index_file || !pool_file) {
      set_aside(name, index_file ? pool_file.error() : index_file.error());
      continue;
    }
    MemoryFile versions;
    if (std::vector<Fd> fds = take_parts(kept, "versions", name); !fds.empty()) {
      const std::uint64_t bytes = VersionBook::file_bytes(header.max_entries);
      if (auto file = MemoryFile::adopt_growing(std::move(fds), {&bytes, 1})) {
        versions = std::move(*file);
      }
    }
    if (Status status = adopt_pool(name, std::move(*index_file), std::move(*pool_file),
                                   std::move(versions), session_known, started_ns);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

Status Namespaces::adopt_pool(const std::string& name, MemoryFile index_file, MemoryFile pool_file,
                              MemoryFile versions, const SessionKnown& session_known,
                              std::uint64_t started_ns) {
  bool configured = false;
  const auto wanted = options_of_kept(name, index_file, configured);
  if (!wanted || !fits_cluster(*wanted, index_file)) return {};
  auto tenant = make_tenant(*wanted);
  tenant->temporary = !configured;
  StartTimeout timeout;
  const ObjectStore::Config config = config_for(*wanted);
  auto store = ObjectStore::recover(
      config, pin_collector(name), std::move(index_file), std::move(pool_file),
      [&](std::uint64_t session_id) { return session_known(session_id, name); },
      [&] { timeout.extend(); });
  if (!store) {
    set_aside(name, store.error());
    return {};
  }
  tenant->store = std::move(*store);
  take_own_size(*tenant, config.pool_bytes);
  take_set_capacity(*tenant);
  const StoreCounters& counters = tenant->store->counters();
  spdlog::info("event=pool_recovered namespace={} objects={} set_aside={} ms={} pool_mib={}", name,
               counters.recovered, counters.set_aside, (now_ns() - started_ns) / 1000000,
               tenant->store->pool().target_bytes() >> 20);
  if (Status status = add(tenant, std::move(versions)); !status.ok()) return status;
  return {};
}

Result<NamespaceOptions> Namespaces::options_of_kept(const std::string& name,
                                                     const MemoryFile& index_file,
                                                     bool& configured) const {
  NamespaceOptions wanted;
  wanted.name = name;
  configured = name == "default";
  for (const NamespaceOptions& options : options_.namespaces) {
    if (options.name == name) wanted = options, configured = true;
  }
  if (configured) return wanted;
  // An admin verb created this namespace: the index header holds the options.
  const auto mapping = map_index_header(index_file.part_fd(0));
  if (!mapping) return fail(mapping.error());
  const shm::IndexHeader& header = header_in(*mapping);
  wanted.pool_bytes = header.configured_pool_bytes.load_relaxed();
  if (wanted.pool_bytes == 0) wanted.pool_bytes = header.pool_bytes.load_relaxed();
  const bool own = options_.pool_bytes != 0 || header.own_pool_bytes.load_relaxed() != 0;
  if (!own) wanted.pool_bytes = 0;  // the contributions of processes
  wanted.capacity_bytes = header.capacity_bytes;
  wanted.isolated = header.isolated != 0;
  wanted.policy.assign(header.policy, ::strnlen(header.policy, sizeof header.policy));
  wanted.local = header.clustered == 0;
  if (header.readable_until_ns.load_relaxed() != shm::kNoLeaseNeeded) {
    wanted.reads_without_lease = "miss";
  }
  return wanted;
}

// All members of a cluster must share the seed of key hashes and checksums of a namespace.
bool Namespaces::fits_cluster(const NamespaceOptions& options, const MemoryFile& index_file) const {
  if (around_.cluster == nullptr || options.local) return true;
  const auto mapping = map_index_header(index_file.part_fd(0));
  if (!mapping) return true;  // recovery reports the error
  if (header_in(*mapping).hash_seed == around_.cluster->hash_seed(options.name)) return true;
  if (header_in(*mapping).entry_count.load_relaxed() == 0) return false;  // nothing is lost
  spdlog::warn(
      "event=pool_set_aside namespace={} cause=\"it was filled outside this cluster: with "
      "another cluster_id or cluster key\" effect=\"starting it empty\" try=\"to keep a pool with a "
      "new key, keep the old one in a line 'hashes KEY'\"",
      options.name);
  return false;
}

std::vector<std::pair<std::string, int>> Namespaces::kept_parts(const Tenant& tenant) const {
  std::vector<std::pair<std::string, int>> parts;
  const auto add_parts = [&](const std::string& kind, const MemoryFile& file) {
    for (std::size_t i = file.part_count(); i-- > 0;) {
      parts.emplace_back(part_name(kind, i, tenant.name), file.part_fd(i));
    }
  };
  if (tenant.clustered) add_parts("versions", around_.cluster->versions_file(tenant));
  add_parts("pool", tenant.store->pool().file());
  add_parts("index", tenant.store->index().file());
  return parts;
}

void Namespaces::keep(const Tenant& tenant) {
  for (const auto& [name, fd] : kept_parts(tenant)) around_.kept.keep(name, fd);
}

void Namespaces::keep_all() {
  for (const auto& [name, tenant] : tenants_) keep(*tenant);
}

void Namespaces::add_kept_names(std::set<std::string>& names) const {
  for (const auto& [name, tenant] : tenants_) {
    for (auto& [kept_name, fd] : kept_parts(*tenant)) names.insert(std::move(kept_name));
  }
}

}  // namespace mc::agent
