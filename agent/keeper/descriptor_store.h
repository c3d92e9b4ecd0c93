// SPDX-License-Identifier: Apache-2.0
//
// What it is: where the agent leaves its memory files so that the next agent finds them after a
// crash:
//   systemd's descriptor store, or a small process of ours ("keeper") that does nothing but hold
//   them.
// Threads: the agent's loop only.
// Owns: duplicates of what it was given.
// Trusts: names and descriptors that come back are checked by whoever uses them.
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
  // Everything kept by the agent before this one, by name; called once, at start. A name may only
  // contain letters, digits, '.', '_' and '-', at most 200 of them.
  virtual Result<std::map<std::string, Fd>> take_all() = 0;
  // Keeps a duplicate of fd under name, replacing an older one.
  virtual Status put(const std::string& name, int fd) = 0;
  virtual Status drop(const std::string& name) = 0;
  // Lets go of everything: the next agent starts empty. Called at a clean stop for good.
  virtual Status drop_all() = 0;
  // Readable when the store has died (keeper only), else -1. After restart() every put() must be
  // repeated.
  virtual int death_fd() const = 0;
  virtual Status restart() = 0;
};

// Keeps nothing.
std::unique_ptr<DescriptorStore> make_null_store();
// A process "mc-agent --keeper" listening on <runtime_dir>/keeper.sock (0600), started when none is
// there. It ends keep_seconds after the last agent left, or when drop_all() told it to.
Result<std::unique_ptr<DescriptorStore>> make_keeper_store(const std::string& runtime_dir,
                                                           std::uint32_t keep_seconds);
// sd_notify FDSTORE / sd_listen_fds. Errors: MC_UNSUPPORTED when not started by systemd with a
// store.
Result<std::unique_ptr<DescriptorStore>> make_systemd_store();

// The keeper's main(): returns its exit code.
int run_keeper(const std::string& runtime_dir, std::uint32_t keep_seconds);

}  // namespace mc::agent
