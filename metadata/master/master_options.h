// SPDX-License-Identifier: Apache-2.0
//
// What it is: all settings of mc-master, and the table by which flags and environment are read and
//   help is printed: a new option is a member and a row in master_options.cc.
// Threads: values. Trusts: nothing; each row checks its range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"

namespace mc::metadata {

struct MasterOptions {
  std::string listen = "127.0.0.1:7400";
  std::string advertise;  // empty: listen
  std::string cluster_id = "default";
  std::string store = "memory://";
  std::string key_file;
  std::string tls_cert;
  std::string tls_key;
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

struct MasterOptionRow {
  std::string_view name;
  std::string MasterOptions::*text = nullptr;  // one of the two
  std::uint64_t MasterOptions::*number = nullptr;
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  std::string_view help;
};
const std::vector<MasterOptionRow>& master_option_rows();

// Sets one option from its text. Errors: MC_INVALID_ARGUMENT with the range.
Status set_master_option(MasterOptions& options, const MasterOptionRow& row,
                         const std::string& text);
// As it is printed, and as it may be given.
std::string text_of(const MasterOptions& options, const MasterOptionRow& row);
// What the rows cannot see: contradictions between options. Errors: MC_INVALID_ARGUMENT.
Status check_master_options(const MasterOptions& options);

}  // namespace mc::metadata
