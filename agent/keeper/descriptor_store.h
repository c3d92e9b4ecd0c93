// SPDX-License-Identifier: Apache-2.0
//
// The place where the agent leaves its memory files, so that the next agent finds the
//   files after a crash. The place is systemd's descriptor store or a small process of this project
//   ("keeper").
// Threads: the agent's loop only.
// Owns: duplicates of the descriptors that the agent has put.
// Trusts: nothing; the caller checks names and descriptors that come back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc::agent {

class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;
  // Returns all descriptors of the previous agent by name. Call once, at the start. A name has at
  // most 200 letters, digits, '.', '_' and '-'.
  virtual Result<std::map<std::string, Fd>> take_all() = 0;
  // Keeps a duplicate of fd under this name, and replaces an older descriptor.
  virtual Status put(const std::string& name, int fd) = 0;
  virtual Status drop(const std::string& name) = 0;
  // Drops all descriptors, so that the next agent starts empty. Call at a final stop.
  virtual Status drop_all() = 0;
  // Readable when the store has died (keeper only), else -1. After restart(), every put() must be
  // repeated.
  virtual int death_fd() const = 0;
  virtual Status restart() = 0;
};

// A store that keeps nothing.
std::unique_ptr<DescriptorStore> make_null_store();
// A process "mc-agent --keeper" that listens on <runtime_dir>/keeper.sock (0600). Starts the
// process if none is there. The process ends keep_seconds after the last agent left, or after
// drop_all().
Result<std::unique_ptr<DescriptorStore>> make_keeper_store(const std::string& runtime_dir,
                                                           std::uint32_t keep_seconds);
// Uses sd_notify FDSTORE and sd_listen_fds. Errors: MC_UNSUPPORTED if systemd did not start this
// process with a store.
Result<std::unique_ptr<DescriptorStore>> make_systemd_store();

// The keeper's main(); returns the exit code.
int run_keeper(const std::string& runtime_dir, std::uint32_t keep_seconds);

}  // namespace mc::agent
