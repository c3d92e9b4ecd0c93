// SPDX-License-Identifier: Apache-2.0
//
// All settings of mc-master, and the table that reads file, environment and flags and
//   prints the help. A new option is a member here and a row in master_options.cc.
// Threads: values.
// Trusts: nothing. Each row's domain checks the text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "libmc/options/option_row.h"
#include "mc/status.h"

namespace mc::metadata {

struct MasterOptions {
  std::string listen = "127.0.0.1:7400";
  std::string advertise;  // empty: listen
  std::string cluster_id = "default";
  std::string cluster_store = "memory://";
  std::uint64_t partitions = 1;
  std::string cluster_key_file;  // empty: the key that the environment names
  bool insecure = false;         // listens beyond loopback without a key
  std::string tls_cert;
  std::string tls_key;
  std::string master_tls_ca;    // for the HTTP port's own questions to masters with TLS
  std::string http_listen;      // empty: no HTTP administration
  std::string metadata_listen;  // empty: no metadata server
  // Beside an agent of the host, which has port 9464.
  std::string metrics_listen = "127.0.0.1:9465";  // or kNoPort
  std::string http_token_file;
  std::string metrics_log = "none";
  std::uint64_t leader_ttl_ms = 1000;
  std::uint64_t recover_ms = 1500;
  std::uint64_t heartbeat_ms = 200;
  std::uint64_t suspect_ms = 600;
  std::uint64_t gone_ms = 1000;
  std::uint64_t max_entries = 64ull << 20;
  std::uint64_t max_nodes = 4096;
  std::uint64_t max_links = 8192;
  std::string log_level = "info";
};

const std::vector<options::OptionRow<MasterOptions>>& master_option_rows();

// Reads the file (none if config_path is empty), then the environment (MC_MASTER_<NAME>), then
// flags (pairs of option name and text). Later sources win. A relative path in the file starts at
// the folder of the file; a relative path of another source, at the working directory. Errors:
// MC_INVALID_ARGUMENT names the option, the place, the accepted values, and the nearest name for an
// unknown name.
Result<MasterOptions> load_master_options(
    const std::string& config_path, const std::vector<std::pair<std::string, std::string>>& flags,
    const char* const* environment);

// Finds contradictions between options, which the rows cannot see. Errors: MC_INVALID_ARGUMENT.
Status check_master_options(const MasterOptions& options);

}  // namespace mc::metadata
