// SPDX-License-Identifier: Apache-2.0
//
// The agent's options, from one table with name, default, range and help. The same
//   table parses the TOML file, the environment (MC_AGENT_<NAME>) and flags (--pool-bytes), and
//   prints the options (mcctl config). The table refuses an unknown name with the nearest match.
//   Later sources win: defaults, file, environment, flags.
// Threads: values.
// Trusts: nothing; every value has a range.
#pragma once

#include <cstdint>
#include <optional>
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
  bool local = false;                     // this host only, also in a cluster
  bool tier = true;                       // evicted objects go to Options::tier_paths
  std::uint64_t pool_bytes = 0;           // 0: Options::pool_bytes
  std::uint64_t max_pool_bytes = 0;       // upper limit of a resize; 0: this host's memory
  std::uint64_t capacity_bytes = 0;       // upper limit of live objects; 0: the pool's size
  std::string policy;                     // empty: Options::policy
  std::string reads_without_lease;        // empty: Options::reads_without_lease
  std::vector<std::uint32_t> allow_uids;  // empty: Options::allow_uids
};

struct Options {
  std::string runtime_dir;  // default: /run/mc for root under systemd, else /dev/shm/mc-UID
  std::string socket;       // default: <runtime_dir>/agent.sock
  std::uint32_t socket_mode = 0600;       // octal in text
  std::vector<std::uint32_t> allow_uids;  // beside the agent's own user and root
  std::uint64_t pool_bytes = 1ull << 30;  // 0: the sum of the contributions of processes
  std::uint64_t max_pool_bytes = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t arenas = 1;                // 1..64
  std::string policy = "";                 // empty: the first of policy_names()
  std::string mode = "direct";             // of the namespace "default"
  HugePages huge_pages = HugePages::kTry;  // "off" | "try" | "require"
  std::string gpus = "auto";  // that the agent starts mc-gpu for: "auto" | "none" | numbers
  std::uint64_t session_quota_bytes =
      0;  // reservations and staging of one session; 0: half of the pool
  std::uint32_t max_sessions_per_user = MC_DEFAULT_SESSIONS_PER_USER;  // 1..MC_MAX_SESSIONS
  std::uint32_t spin_us = 50;             // time without work before the loop sleeps
  std::string descriptor_store = "auto";  // "auto" | "systemd" | "keeper" | "none"
  // time that the keeper waits for an agent, and a pool for a contributor that crashed
  std::uint32_t keep_seconds = 600;
  std::uint32_t end_idle_seconds = 0;  // time without sessions until the agent ends; 0: never
  bool isolated_allow_same_user = false;
  bool repeatable = false;
  std::string log_level = "info";
  std::string metrics_listen = "127.0.0.1:9464";  // host:port, or kNoPort
  std::string http_token_file;                    // for metrics_listen beyond loopback
  // The tier on local disks.
  std::string tier_paths;                          // comma-separated; empty: none
  std::uint64_t tier_bytes = 0;                    // of each path; 0: the present size
  std::uint64_t tier_endurance_bytes_per_day = 0;  // of all paths together; 0: no limit
  std::uint32_t tier_stop_seconds = 30;  // for the pools' objects at a stop; 0: they are lost
  // The cluster. Without cluster_store, masters and master_listen the agent is alone.
  std::string cluster_store;  // URL: redis://… etcd://… http://…
  std::string masters;        // comma-separated addresses
  std::string master_listen;  // address of a master inside this agent; empty: none
  std::string cluster_id = "default";
  std::string cluster_key_file;  // empty: the key that the environment names
  bool insecure = false;         // listens beyond loopback without a key
  std::string peer_tls_cert;  // PEM files; the lanes use TLS with all three, and plain TCP without
  std::string peer_tls_key;
  std::string peer_tls_ca;
  std::string peer_tls_name;    // name in the certificates of peers; empty: the dialed address
  std::string master_tls_ca;    // PEM file; with this file agents talk TLS to the masters
  std::string master_tls_name;  // name in the certificates of masters; empty: the dialed host
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // address that peers dial; empty: listen, with the actual port
  std::string zone;
  std::string reads_without_lease = "serve";  // "serve" | "miss"
  std::string transports = "auto";            // "auto" | "tcp" | "rdma" | "fabric"
  std::string rdma_devices;                   // comma-separated names; empty: all
  std::string fabric_provider = "efa";        // libfabric's name of the provider
  std::uint32_t rdma_ack_timeout = 14;        // exponent N of InfiniBand's timeout: 4.096 us * 2^N
  // larger objects are striped; 0: only objects that no host has room for
  std::uint64_t stripe_bytes = 0;
  // time that stripes wait for the lost stripes of other hosts
  std::uint32_t stripe_grace_seconds = 60;
  std::vector<NamespaceOptions> namespaces;  // [[namespace]] tables, beside "default"

  std::uint64_t keep_ns() const { return keep_seconds * 1'000'000'000ull; }
};

struct OptionText {
  std::string name, value, default_value, source, help;  // source: default, file, environment, flag
  // In option_table() only: "SIZE", and the earlier name of the option, if there is one.
  std::string type = {};
  std::string alias = {};
};

// The checked options of all sources. text: for mcctl config.
struct LoadedOptions {
  Options options;
  std::vector<OptionText> text;
};

// config_path may be empty. A relative path in the file starts at the folder of the file. A
// relative path of another source starts at the working directory. flags: pairs of option name
// (with '_') and text. environment: usually ::environ. Errors: MC_INVALID_ARGUMENT with the option,
// its source, the accepted values and, for an unknown name, the nearest name.
Result<LoadedOptions> load_options(const std::string& config_path,
                                   const std::vector<std::pair<std::string, std::string>>& flags,
                                   const char* const* environment);
// Reads "name=value" lines, the format of mc_open_options.embedded_config.
Result<LoadedOptions> load_embedded_options(std::string_view lines);
// Name, default and help of every option, for --help and the example configuration.
std::vector<OptionText> option_table();
using options::parse_size;
// The GPUs of Options::gpus; nullopt: "auto". Errors: MC_INVALID_ARGUMENT.
Result<std::optional<std::vector<int>>> numbers_of_gpus(const std::string& gpus);
// The items of a comma-separated list.
std::vector<std::string> split_list(const std::string& text);

}  // namespace mc::agent
