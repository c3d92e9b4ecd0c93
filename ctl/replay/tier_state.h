// SPDX-License-Identifier: Apache-2.0
//
// The counters of an agent's tier on local disks, and the file of a tier that lives as long as a replay.
// Threads: the main thread.
// Owns: an SsdFile owns its file.
// Trusts: nothing in the agent's answers; a missing field is 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <json/forwards.h>

#include "mc/status.h"

namespace mc::ctl {

// Counters since the agent's start.
struct TierState {
  bool serving = false;      // all disks serve
  std::string problem = {};  // of a disk that does not serve
  std::uint64_t demoted_blocks = 0, demoted_bytes = 0;
  std::uint64_t lost_blocks = 0;    // evicted, and not written to any disk
  std::uint64_t written_bytes = 0;  // to all disks, with headers, footers and copies
  std::uint64_t copied_bytes = 0;   // by the cleaners
  std::uint64_t dropped_blocks = 0;
  std::uint64_t read_blocks = 0, promoted_blocks = 0;
  std::uint64_t on_the_way_blocks = 0;  // served from DRAM before they were on a disk

  // Bytes written for each byte that was demoted; 0 if none was.
  double amplification() const;
};

// status: the answer to the verb "status". Nullopt: the agent has no tier.
std::optional<TierState> tier_of(const Json::Value& status);

// Of objects that have left a pool, and are on their way to a disk.
std::uint64_t demoting_bytes(const Json::Value& status);

// An empty file with a name of its own. The file is removed as soon as the agent has opened it, so that nothing
// stays behind if the process is killed.
class SsdFile {
 public:
  // folder: empty: the directory for temporary files.
  static Result<SsdFile> create(const std::string& folder);
  SsdFile() = default;
  SsdFile(SsdFile&& other) noexcept;
  SsdFile& operator=(SsdFile&& other) noexcept;
  SsdFile(const SsdFile&) = delete;
  ~SsdFile() { remove(); }

  const std::string& path() const { return path_; }  // empty: removed
  void remove();

 private:
  explicit SsdFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace mc::ctl
