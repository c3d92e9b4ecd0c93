// SPDX-License-Identifier: Apache-2.0
#include "agent/options/option_table.h"

#include <algorithm>
#include <iterator>

#include "agent/pool/policy/policy.h"

namespace mc::agent {
namespace {

constexpr std::uint64_t kMaxAnyPoolBytes = kMaxPoolBytesPerArena * kMaxArenas;
// Leaves room for <runtime_dir>/keeper.sock, the longest name in the directory, as a socket path.
constexpr std::uint64_t kMaxRuntimeDirBytes = kMaxSocketPathBytes - sizeof("/keeper.sock") + 1;
constexpr std::uint64_t kMaxUrlBytes = 4096;
constexpr std::uint64_t kMaxKeyPathBytes = 4095;
constexpr std::uint64_t kMaxAddressBytes = 255;
constexpr std::uint32_t kMaxAckTimeout = 22;  // 17 s
constexpr std::uint32_t kMaxSpinUs = 1000000;
constexpr std::uint32_t kMaxKeepSeconds = 7 * 86400;
constexpr std::uint32_t kMaxStopSeconds = 3600;
constexpr std::uint64_t kLeastStripe = 1 << 20;
constexpr std::uint64_t kLeastTier = 64 << 20;

template <auto kMember>
OptionRow<Options> row(std::string_view name, ValueDomain domain, std::string_view help) {
  return row_of<kMember, Options>(name, std::move(domain), help);
}

template <auto kMember>
OptionRow<NamespaceOptions> tenant_row(std::string_view name, ValueDomain domain,
                                       std::string_view help) {
  return row_of<kMember, NamespaceOptions>(name, std::move(domain), help);
}

ValueDomain text(std::uint64_t max_bytes) { return {ValueKind::kText, 0, max_bytes, true, {}}; }
ValueDomain path(std::uint64_t max_bytes) { return {ValueKind::kPath, 0, max_bytes, true, {}}; }
ValueDomain choice(std::vector<std::string_view> words, bool may_be_empty = false) {
  return {ValueKind::kChoice, 0, 0, may_be_empty, std::move(words)};
}
ValueDomain size(std::uint64_t lowest, std::uint64_t highest, bool may_be_zero) {
  return {ValueKind::kSize, lowest, highest, may_be_zero, {}};
}
ValueDomain count(std::uint64_t lowest, std::uint64_t highest) {
  return {ValueKind::kCount, lowest, highest, false, {}};
}
ValueDomain toggle() { return {ValueKind::kSwitch, 0, 1, true, {}}; }
ValueDomain uids() { return {ValueKind::kUids, 0, 0, true, {}}; }

constexpr std::string_view kHugePageWords[] = {"off", "try", "require"};

OptionValue get_huge_pages(const Options& options) {
  return std::string(kHugePageWords[static_cast<std::size_t>(options.huge_pages)]);
}

void set_huge_pages(Options& options, const OptionValue& value) {
  const auto& word = std::get<std::string>(value);
  options.huge_pages = word == "off"   ? HugePages::kOff
                       : word == "try" ? HugePages::kTry
                                       : HugePages::kRequire;
}

OptionValue get_isolated(const NamespaceOptions& options) {
  return std::string(options.isolated ? "isolated" : "direct");
}

void set_isolated(NamespaceOptions& options, const OptionValue& value) {
  options.isolated = std::get<std::string>(value) == "isolated";
}

std::vector<OptionRow<Options>> make_host_rows() {
  using O = Options;
  const auto pool_or_zero = size(kMinPoolBytes, kMaxAnyPoolBytes, true);
  return {
      row<&O::runtime_dir>("runtime_dir", path(kMaxRuntimeDirBytes),
                           "directory of the socket and the agent's state; closed to other users"),
      row<&O::socket>("socket", path(kMaxSocketPathBytes),
                      "socket that clients connect to; empty: agent.sock in runtime_dir"),
      row<&O::socket_mode>(
          "socket_mode", {ValueKind::kOctal, 0600, 0777, false, {}},
          "file mode of the socket; the agent also checks the user of each client"),
      row<&O::allow_uids>("allow_uids", uids(),
                          "users that may connect, beside root and the agent's own user"),
      row<&O::pool_bytes>(
          "pool_bytes", pool_or_zero,
          "memory of the pool, at most 1TiB per arena; 0: the sum of the contributions of processes, such as the segments of mooncake's setup()"),
      row<&O::max_pool_bytes>("max_pool_bytes", pool_or_zero,
                              "largest size of a later resize; 0: this host's memory"),
      row<&O::capacity_bytes>("capacity_bytes", size(1, kMaxAnyPoolBytes, true),
                              "upper limit of the bytes of live objects; 0: the pool's size"),
      row<&O::arenas>("arenas", count(1, kMaxArenas),
                      "parts of the pool that allocate independently"),
      row<&O::policy>("policy", choice(policy_names(), true), "eviction policy of a full pool"),
      row<&O::mode>(
          "mode", choice({"direct", "isolated"}),
          "direct: clients write into their reservations in the pool themselves; isolated: the agent copies the bytes of clients"),
      {"huge_pages", choice({"off", "try", "require"}), get_huge_pages, set_huge_pages,
       "huge pages for the pool: try takes the free ones, require refuses to start without enough of them, off takes none"},
      row<&O::gpus>(
          "gpus", {ValueKind::kText, 1, kMaxAddressBytes, false, {}},
          "comma-separated numbers of the GPUs for which the agent starts a worker, mc-gpu; auto: all GPUs, but none under systemd, which starts mc-gpu@N.service; none"),
      row<&O::session_quota_bytes>(
          "session_quota_bytes", size(1, kMaxAnyPoolBytes, true),
          "upper limit of one client's reservations and staging memory; 0: half of the pool"),
      row<&O::max_sessions_per_user>(
          "max_sessions_per_user", count(1, MC_MAX_SESSIONS),
          "upper limit of one user's open clients; a client counts once per namespace"),
      row<&O::spin_us>("spin_us", count(0, kMaxSpinUs),
                       "time that an idle agent polls its rings before it sleeps, in microseconds"),
      row<&O::descriptor_store>(
          "descriptor_store", choice({"auto", "systemd", "keeper", "none"}),
          "keeper of the pool's memory while no agent runs: systemd, a keeper process, or none; auto takes systemd where the unit offers a store"),
      row<&O::keep_seconds>(
          "keep_seconds", count(1, kMaxKeepSeconds),
          "time that the keeper waits for the next agent, and that the contribution of a crashed process stays"),
      row<&O::end_idle_seconds>(
          "end_idle_seconds", count(0, kMaxKeepSeconds),
          "time without sessions and contributions after which the agent ends; 0: never"),
      row<&O::repeatable>(
          "repeatable", toggle(),
          "the same calls by one client lead to the same evictions, for replays: the hash seed is fixed, and the agent does not collect noted reads in between"),
      row<&O::isolated_allow_same_user>(
          "isolated_allow_same_user", toggle(),
          "isolated namespaces admit clients of the agent's own user, who could read the agent's memory anyway"),
      row<&O::log_level>("log_level", log_levels(),
                         "least severe level of log lines that are written"),
      row<&O::metrics_listen>(
          "metrics_listen", {ValueKind::kText, 1, kMaxAddressBytes, false, {}},
          "IP address and port of the metrics for Prometheus (/metrics), or off; a port in use is a warning; beyond loopback a request needs the token"),
      row<&O::http_token_file>(
          "http_token_file", path(kMaxKeyPathBytes),
          "file with the token of metrics_listen; empty: MC_HTTP_TOKEN_FILE, else the token in ADMIN_API_KEY, else a token that follows from the cluster's key"),
      row<&O::tier_paths>(
          "tier_paths", text(kMaxUrlBytes),
          "comma-separated files, directories or block devices for objects that leave DRAM; empty: no tier on disks"),
      row<&O::tier_bytes>(
          "tier_bytes", size(kLeastTier, kMaxAnyPoolBytes, true),
          "bytes that the tier takes on each of tier_paths; 0: the present size of the file or device"),
      row<&O::tier_endurance_bytes_per_day>(
          "tier_endurance_bytes_per_day", size(kLeastTier, kMaxAnyPoolBytes, true),
          "bytes that may be written to all tier_paths together in a day; if they run short, only objects that were read again go there; 0: no limit"),
      row<&O::tier_stop_seconds>(
          "tier_stop_seconds", count(0, kMaxStopSeconds),
          "time for which an agent that ends writes the pools' objects to tier_paths; 0: objects that are only in DRAM are lost"),
  };
}

std::vector<OptionRow<Options>> make_cluster_rows() {
  using O = Options;
  return {
      row<&O::cluster_store>(
          "cluster_store", text(kMaxUrlBytes),
          "store in which agents find the cluster's leader: redis://, etcd://, or http://host:port/metadata; empty: the addresses in masters are used alone"),
      row<&O::masters>(
          "masters", text(kMaxUrlBytes),
          "comma-separated addresses (host:port) of masters; the agent has no cluster if masters, cluster_store and master_listen are all empty"),
      row<&O::master_listen>(
          "master_listen", text(kMaxAddressBytes),
          "IP address and port of a master that runs inside this agent; empty: none"),
      row<&O::cluster_id>("cluster_id", {ValueKind::kName, 1, 0, false, {}},
                          "name of the cluster in its store"),
      row<&O::cluster_key_file>(
          "cluster_key_file", path(kMaxKeyPathBytes),
          "file with the secret that all members prove, of mode 0600; empty: the file in MC_CLUSTER_KEY_FILE, else the key in MC_CLUSTER_KEY; required if listen is not a local address"),
      row<&O::insecure>(
          "insecure", toggle(),
          "listen on addresses of other hosts without a key, so that every process of the network may read and remove objects"),
      row<&O::peer_tls_cert>(
          "peer_tls_cert", path(kMaxKeyPathBytes),
          "PEM certificate chain; with peer_tls_key and peer_tls_ca, agents talk TLS 1.3 to each other, refuse peers without TLS, and move bytes over TCP alone"),
      row<&O::peer_tls_key>("peer_tls_key", path(kMaxKeyPathBytes),
                            "PEM private key of peer_tls_cert"),
      row<&O::peer_tls_ca>(
          "peer_tls_ca", path(kMaxKeyPathBytes),
          "PEM certificates of the authorities that sign the agents' certificates"),
      row<&O::peer_tls_name>(
          "peer_tls_name", text(kMaxAddressBytes),
          "name that the certificates of peers must carry; empty: the address that the peer advertises"),
      row<&O::master_tls_ca>(
          "master_tls_ca", path(kMaxKeyPathBytes),
          "PEM certificates of the authorities that sign the masters' tls_cert; with this file agents talk only TLS 1.3 to masters, and a master inside this agent presents peer_tls_cert"),
      row<&O::master_tls_name>(
          "master_tls_name", text(kMaxAddressBytes),
          "name that the certificates of masters must carry; empty: the host in the master's address"),
      row<&O::listen>("listen", text(kMaxAddressBytes),
                      "IP address and port for peers; port 0: any free port"),
      row<&O::advertise>("advertise", text(kMaxAddressBytes),
                         "IP address and port that peers dial; empty: as listen"),
      row<&O::zone>("zone", text(kMaxAddressBytes),
                    "name of this host's rack or zone; readers prefer holders in their own zone"),
      row<&O::reads_without_lease>(
          "reads_without_lease", choice({"serve", "miss"}),
          "a host that the masters do not hear serves its own objects to its clients, which may read replaced or removed objects, or does not read them (MC_NO_MASTER)"),
      row<&O::transports>(
          "transports", choice({"auto", "tcp", "rdma", "fabric"}),
          "transport for bytes from peers: auto takes RDMA or an EFA where both hosts have a device, else TCP; rdma and fabric (libfabric) refuse to start without a device"),
      row<&O::rdma_devices>(
          "rdma_devices", text(kMaxUrlBytes),
          "comma-separated names of RDMA devices, as rdma link shows them; empty: all devices with an active port"),
      row<&O::fabric_provider>(
          "fabric_provider", {ValueKind::kText, 1, kMaxAddressBytes, false, {}},
          "provider of libfabric, as fi_info names it: efa or, for example, tcp;ofi_rxm; must be equal on all hosts"),
      row<&O::stripe_bytes>(
          "stripe_bytes", size(kLeastStripe, kMaxAnyPoolBytes, true),
          "larger objects are put in stripes of this size on several hosts; 0: only objects that no host has room for"),
      row<&O::stripe_grace_seconds>(
          "stripe_grace_seconds", count(1, kMaxKeepSeconds),
          "time that a host keeps its stripes of an object while another host of the object is lost and may come back"),
      row<&O::rdma_ack_timeout>(
          "rdma_ack_timeout", count(1, kMaxAckTimeout),
          "time until RDMA repeats an unanswered packet: 4.096 us * 2^N; 14 is 67 ms"),
  };
}

std::vector<OptionRow<Options>> make_agent_rows() {
  auto rows = make_host_rows();
  std::ranges::copy(make_cluster_rows(), std::back_inserter(rows));
  return rows;
}

std::vector<OptionRow<NamespaceOptions>> make_namespace_rows() {
  using N = NamespaceOptions;
  const auto pool_or_zero = size(kMinPoolBytes, kMaxAnyPoolBytes, true);
  return {
      tenant_row<&N::name>("name", {ValueKind::kName, 1, 0, false, {}},
                           "name that clients ask for"),
      {"mode", choice({"direct", "isolated"}), get_isolated, set_isolated,
       "direct: clients write into their reservations in the pool themselves; isolated: the agent copies the bytes of clients"},
      tenant_row<&N::pool_bytes>("pool_bytes", pool_or_zero,
                                 "memory of this namespace; 0: as the agent's pool_bytes"),
      tenant_row<&N::max_pool_bytes>("max_pool_bytes", pool_or_zero,
                                     "largest size of a later resize; 0: this host's memory"),
      tenant_row<&N::capacity_bytes>(
          "capacity_bytes", size(1, kMaxAnyPoolBytes, true),
          "upper limit of the bytes of live objects; 0: the pool's size"),
      tenant_row<&N::policy>("policy", choice(policy_names(), true),
                             "eviction policy; empty: as the agent's policy"),
      tenant_row<&N::reads_without_lease>("reads_without_lease", choice({"serve", "miss"}, true),
                                          "empty: as the agent's reads_without_lease"),
      tenant_row<&N::allow_uids>("allow_uids", uids(),
                                 "users that may connect; empty: as the agent's allow_uids"),
      tenant_row<&N::local>(
          "local", toggle(),
          "true: a namespace of this host alone, even if the agent is in a cluster"),
      tenant_row<&N::tier>("tier", toggle(),
                           "true: evicted objects go to the agent's tier_paths, if there are any"),
  };
}

}  // namespace

const std::vector<OptionRow<Options>>& agent_rows() {
  static const auto rows = make_agent_rows();
  return rows;
}

const std::vector<OptionRow<NamespaceOptions>>& namespace_rows() {
  static const auto rows = make_namespace_rows();
  return rows;
}

}  // namespace mc::agent
