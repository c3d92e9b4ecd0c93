// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/master_options.h"

#include <charconv>

#include "metadata/rpc/dialer.h"
#include "metadata/store/checks.h"

namespace mc::metadata {

const std::vector<MasterOptionRow>& master_option_rows() {
  using O = MasterOptions;
  static const std::vector<MasterOptionRow> rows = {
      {"listen", &O::listen, nullptr, 0, 0,
       "IP address and port of the one socket; beyond this host only with a key_file"},
      {"advertise", &O::advertise, nullptr, 0, 0,
       "host:port by which others reach this master; empty: as in listen"},
      {"cluster_id", &O::cluster_id, nullptr, 0, 0,
       "name of the cluster: 1 to 64 letters, digits, '.', '_' or '-'"},
      {"store", &O::store, nullptr, 0, 0,
       "cluster store: memory:// (one master), redis://host:port, etcd://host:port"},
      {"key_file", &O::key_file, nullptr, 0, 0,
       "file with the cluster's key, mode 0600 (openssl rand -hex 32)"},
      {"tls_cert", &O::tls_cert, nullptr, 0, 0, "PEM certificate chain; with tls_key, TLS is used"},
      {"tls_key", &O::tls_key, nullptr, 0, 0, "PEM private key of tls_cert"},
      {"leader_ttl_ms", nullptr, &O::leader_ttl_ms, 200, 60'000,
       "after so long without the leader another one leads"},
      {"recover_ms", nullptr, &O::recover_ms, 0, 600'000,
       "a new leader says RECOVERING for what it does not know, for so long at least"},
      {"heartbeat_ms", nullptr, &O::heartbeat_ms, 10, 10'000, "how often agents are heard"},
      {"suspect_ms", nullptr, &O::suspect_ms, 30, 60'000, "silence after which one is suspected"},
      {"gone_ms", nullptr, &O::gone_ms, 50, 600'000, "silence after which one is gone"},
      {"max_entries", nullptr, &O::max_entries, 1024, 4ull << 30,
       "(key, holder) pairs; each takes 40 to 54 bytes of memory"},
      {"max_nodes", nullptr, &O::max_nodes, 1, 4096, "members"},
      {"max_links", nullptr, &O::max_links, 1, 65'536, "connections that have proven the key"},
      {"log_level", &O::log_level, nullptr, 0, 0, "trace, debug, info, warn, err, critical or off"},
  };
  return rows;
}

Status set_master_option(MasterOptions& options, const MasterOptionRow& row,
                         const std::string& text) {
  if (row.text != nullptr) {
    if (text.size() > 4096) {
      return {MC_INVALID_ARGUMENT, std::string(row.name) + " is longer than 4,096 bytes"};
    }
    options.*row.text = text;
    return {};
  }
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || value < row.least || value > row.most) {
    return {MC_INVALID_ARGUMENT, std::string(row.name) + " is '" + text + "'; give a number from " +
                                     std::to_string(row.least) + " to " + std::to_string(row.most)};
  }
  options.*row.number = value;
  return {};
}

std::string text_of(const MasterOptions& options, const MasterOptionRow& row) {
  return row.text != nullptr ? options.*row.text : std::to_string(options.*row.number);
}

Status check_master_options(const MasterOptions& options) {
  if (const Status status = check_cluster_id(options.cluster_id); !status.ok()) return status;
  for (const std::string* address : {&options.listen, &options.advertise}) {
    if (address->empty() && address == &options.advertise) continue;
    if (const auto parts = rpc::split_address(*address); !parts) return parts.error();
  }
  if (options.suspect_ms < 2 * options.heartbeat_ms || options.gone_ms <= options.suspect_ms) {
    return {MC_INVALID_ARGUMENT,
            "suspect_ms must be at least two heartbeat_ms, and gone_ms more than suspect_ms; the "
            "defaults are 200, 600 and 1000"};
  }
  return {};
}

}  // namespace mc::metadata
