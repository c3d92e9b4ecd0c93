// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/master_options.h"

#include "libmc/base/host_port.h"
#include "libmc/options/option_loader.h"
#include "metadata/directory/key_hash.h"
#include "metadata/store/checks.h"

namespace mc::metadata {

namespace {

using options::OptionRow;
using options::ValueDomain;
using options::ValueKind;

constexpr std::string_view kEnvironmentPrefix = "MC_MASTER_";
constexpr std::uint64_t kMaxPathBytes = 4095;

template <auto kMember>
OptionRow<MasterOptions> row(std::string_view name, ValueDomain domain, std::string_view help,
                             std::string_view alias = {}) {
  return options::row_of<kMember, MasterOptions>(name, std::move(domain), help, alias);
}

ValueDomain text() { return {ValueKind::kText, 0, options::kMaxValueBytes, true, {}}; }
ValueDomain path() { return {ValueKind::kPath, 0, kMaxPathBytes, true, {}}; }
ValueDomain toggle() { return {ValueKind::kSwitch, 0, 1, true, {}}; }
ValueDomain count(std::uint64_t lowest, std::uint64_t highest) {
  return {ValueKind::kCount, lowest, highest, false, {}};
}
ValueDomain choice(std::vector<std::string_view> words) {
  return {ValueKind::kChoice, 0, 0, false, std::move(words)};
}

Status add_file(const std::string& path, options::OptionLoader<MasterOptions>& loader) {
  const auto bytes = options::read_config(path);
  if (!bytes) return bytes.error();
  const auto file = options::parse_config(*bytes, path);
  if (!file) return file.error();
  if (!file->namespaces.empty()) {
    return {MC_INVALID_ARGUMENT, "[[namespace]] (" + file->namespaces[0].where +
                                     "): configure namespaces at the agents, not at the master"};
  }
  return loader.add_table(file->top);
}

}  // namespace

const std::vector<OptionRow<MasterOptions>>& master_option_rows() {
  using O = MasterOptions;
  static const std::vector<OptionRow<MasterOptions>> rows = {
      row<&O::listen>(
          "listen", text(),
          "IP address and port of the socket; an address that other hosts reach needs a "
          "cluster_key_file"),
      row<&O::advertise>(
          "advertise", text(),
          "host:port by which other processes reach this master; empty: as in listen"),
      row<&O::cluster_id>("cluster_id", text(),
                          "name of the cluster: 1 to 64 letters, digits, '.', '_' or '-'"),
      row<&O::cluster_store>(
          "cluster_store", text(),
          "cluster store: memory:// (one master), redis://host:port, etcd://host:port", "store"),
      row<&O::partitions>("partitions", count(1, kMaxPartitions),
                          "number of partitions of the keys; one master leads each partition; all "
                          "masters need the same number, which the first leader fixes",
                          "shares"),
      row<&O::cluster_key_file>(
          "cluster_key_file", path(),
          "file with the cluster's key, mode 0600 (openssl rand -hex 32); empty: the "
          "file in MC_CLUSTER_KEY_FILE, else the key in MC_CLUSTER_KEY",
          "key_file"),
      row<&O::insecure>("insecure", toggle(),
                        "listen on addresses of other hosts without a key, so that every process "
                        "of the network may read and remove objects"),
      row<&O::tls_cert>("tls_cert", path(), "PEM certificate chain; with tls_key, TLS is used"),
      row<&O::tls_key>("tls_key", path(), "PEM private key of tls_cert"),
      row<&O::master_tls_ca>(
          "master_tls_ca", path(),
          "PEM certificates of the authorities that sign the masters' tls_cert, for pages of the "
          "HTTP port about keys; needed with tls_cert",
          "tls_ca"),
      row<&O::http_listen>("http_listen", text(),
                           "IP address and port of Mooncake's HTTP administration (/health, "
                           "/metrics, /get_all_keys ...); empty: none. Beyond loopback a request "
                           "needs the token"),
      row<&O::metadata_listen>("metadata_listen", text(),
                               "IP address and port of Mooncake's HTTP metadata server; empty: "
                               "none. Beyond loopback a request needs the token"),
      row<&O::metrics_listen>("metrics_listen", text(),
                              "IP address and port of the metrics for Prometheus (/metrics), or "
                              "off; a port in use is a warning; beyond loopback a request needs "
                              "the token"),
      row<&O::http_token_file>("http_token_file", path(),
                               "file with the token of the HTTP ports; empty: MC_HTTP_TOKEN_FILE, "
                               "else the token in ADMIN_API_KEY, else a token that follows from "
                               "the cluster's key"),
      row<&O::metrics_log>(
          "metrics_log", choice({"none", "0.3.6", "0.3.13"}),
          "line with metrics in the log every 10 s, in the form of this version of "
          "Mooncake"),
      row<&O::leader_ttl_ms>("leader_ttl_ms", count(200, 60'000),
                             "time without the leader after which another master leads"),
      row<&O::recover_ms>("recover_ms", count(0, 600'000),
                          "least time in which a new leader answers RECOVERING for unknown keys"),
      row<&O::heartbeat_ms>("heartbeat_ms", count(10, 10'000),
                            "interval of the agents' heartbeats"),
      row<&O::suspect_ms>("suspect_ms", count(30, 60'000),
                          "silence after which an agent is suspected"),
      row<&O::gone_ms>("gone_ms", count(50, 600'000), "silence after which an agent is gone"),
      row<&O::max_entries>(
          "max_entries", count(1024, 4ull << 30),
          "(key, holder) pairs of a partition; each takes 40 to 54 bytes of memory"),
      row<&O::max_nodes>("max_nodes", count(1, 4096), "largest number of agents"),
      row<&O::max_links>(
          "max_links", count(1, 65'536),
          "connections with a proof of the key; an agent has one for each partition"),
      row<&O::log_level>("log_level", options::log_levels(),
                         "least severe level of log lines that are written"),
  };
  return rows;
}

Result<MasterOptions> load_master_options(
    const std::string& config_path, const std::vector<std::pair<std::string, std::string>>& flags,
    const char* const* environment) {
  options::OptionLoader<MasterOptions> loader(master_option_rows(), kEnvironmentPrefix);
  Status status;
  if (!config_path.empty()) status = add_file(config_path, loader);
  if (status.ok()) status = loader.add_environment(environment);
  if (status.ok()) status = loader.add_flags(flags);
  if (!status.ok()) return fail(status);
  return loader.values();
}

Status check_master_options(const MasterOptions& given) {
  if (const Status status = check_cluster_id(given.cluster_id); !status.ok()) return status;
  for (const std::string* address :
       {&given.listen, &given.advertise, &given.http_listen, &given.metadata_listen}) {
    if (address->empty() && address != &given.listen) continue;
    if (const auto parts = split_address(*address); !parts) return parts.error();
  }
  if (given.metrics_listen != kNoPort) {
    if (const auto parts = split_address(given.metrics_listen); !parts) return parts.error();
  }
  if (given.suspect_ms < 2 * given.heartbeat_ms ||
      given.gone_ms < given.suspect_ms + 2 * given.heartbeat_ms) {
    return {MC_INVALID_ARGUMENT,
            "suspect_ms must be at least two heartbeat_ms, and gone_ms two heartbeat_ms more than "
            "suspect_ms; the defaults are 200, 600 and 1000"};
  }
  return {};
}

}  // namespace mc::metadata
