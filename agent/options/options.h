// SPDX-License-Identifier: Apache-2.0
//
// What it is: the agent's options, from one table: name, default, range, help. The same table
// parses the TOML file, the environment (MC_AGENT_<NAME>) and flags (--pool-bytes), prints itself
// (mcctl config), and refuses an unknown name with the nearest match. Later sources win: defaults,
// file, environment, flags.
// Threads: values. Trusts nothing it reads: every value has a range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libmc/base/memory_file.h"
#include "libmc/options/option_value.h"
#include "mc/limits.h"
#include "mc/status.h"

namespace mc::agent {

struct NamespaceOptions {
  std::string name = "default";
  bool isolated = false;                  // mode = "direct" | "isolated"
  bool local = false;                     // of this host alone, also in a cluster
  std::uint64_t pool_bytes = 0;           // 0: Options::pool_bytes
  std::uint64_t max_pool_bytes = 0;       // how far it may be resized; 0: this host's memory
  std::uint64_t capacity_bytes = 0;       // live objects never exceed it; 0: the pool's size
  std::string policy;                     // empty: Options::policy
  std::vector<std::uint32_t> allow_uids;  // empty: Options::allow_uids
};

inline constexpr const char* kEfaProvider = "efa";

struct Options {
  std::string runtime_dir;  // default: /run/mc for root under systemd, else /dev/shm/mc-UID
  std::string socket;       // default: <runtime_dir>/agent.sock
  std::uint32_t socket_mode = 0600;       // octal in text
  std::vector<std::uint32_t> allow_uids;  // beside the agent's own user and root
  std::uint64_t pool_bytes = 1ull << 30;
  std::uint64_t max_pool_bytes = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t arenas = 1;                // 1..64
  std::string policy = "";                 // empty: the first of policy_names()
  std::string mode = "direct";             // of the namespace "default"
  HugePages huge_pages = HugePages::kTry;  // "off" | "try" | "require"
  std::uint64_t session_quota_bytes =
      0;  // reservations and staging of one session; 0: half the pool
  std::uint32_t max_sessions_per_user = MC_DEFAULT_SESSIONS_PER_USER;  // 1..MC_MAX_SESSIONS
  std::uint32_t spin_us = 50;  // how long an idle agent looks at its rings before it sleeps
  std::string descriptor_store = "auto";  // "auto" | "systemd" | "keeper" | "none"
  std::uint32_t keep_seconds = 600;       // how long the keeper waits for an agent to come back
  bool isolated_allow_same_user = false;
  bool repeatable = false;
  std::string log_level = "info";
  // The cluster; alone while these three are empty.
  std::string cluster_store;  // URL: redis://… etcd://… http://…
  std::string masters;        // addresses, with commas between them
  std::string master_listen;  // of a master inside this agent; empty: none
  std::string cluster_id = "default";
  std::string cluster_key_file;
  std::string peer_tls_cert;  // PEM files; the lanes speak TLS with all three, plainly with none
  std::string peer_tls_key;
  std::string peer_tls_ca;
  std::string peer_tls_name;  // that peers' certificates must say; empty: the address dialed
  std::string master_tls_ca;  // PEM file; masters are spoken to under TLS with it, plainly without
  std::string master_tls_name;  // that masters' certificates must say; empty: the host dialed
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // what peers dial; empty: listen, with the port that was taken
  std::string zone;
  std::string transports = "auto";             // "auto" | "tcp" | "rdma" | "fabric"
  std::string rdma_devices;                    // names, with commas between them; empty: all
  std::string fabric_provider = kEfaProvider;  // of libfabric
  std::uint32_t rdma_ack_timeout = 14;         // of InfiniBand: 4.096 us * 2^it
  std::uint64_t stripe_bytes = 0;            // larger objects lie on several hosts; 0: if they must
  std::uint32_t stripe_grace_seconds = 60;   // how long stripes wait for others' lost ones
  std::vector<NamespaceOptions> namespaces;  // [[namespace]] tables, beside "default"
};

struct OptionText {
  std::string name, value, default_value, source, help;  // source: default, file, environment, flag
};

// What the sources said, checked. text: for mcctl config.
struct LoadedOptions {
  Options options;
  std::vector<OptionText> text;
};

// config_path: may be empty. flags: pairs of option name (with '_') and text. environment: usually
// ::environ. Errors: MC_INVALID_ARGUMENT naming the option, its source, the accepted values and,
// for an unknown name, the nearest one.
Result<LoadedOptions> load_options(const std::string& config_path,
                                   const std::vector<std::pair<std::string, std::string>>& flags,
                                   const char* const* environment);
// "name=value" lines, as mc_open_options.embedded_config has them.
Result<LoadedOptions> load_embedded_options(std::string_view lines);
// Name, default and help of every option, for --help and the example configuration.
std::vector<OptionText> option_table();
using options::parse_size;
// The items of a list with commas between them.
std::vector<std::string> split_list(const std::string& text);

}  // namespace mc::agent
