// SPDX-License-Identifier: Apache-2.0
//
// The place where the agent leaves its memory files, so that the next agent finds the
//   files after a crash. The place is systemd's descriptor store or a small process of this project
//   ("keeper").
// Threads: the agent's loop only; starting a keeper forks. The checks: any thread.
// Owns: duplicates of the descriptors that the agent has put.
// Trusts: nothing; the caller checks names and descriptors that come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc::agent {

inline constexpr std::size_t kMaxStoreNameBytes = 200;

// 1 to kMaxStoreNameBytes of A-Z a-z 0-9 . _ -
bool is_store_name(std::string_view name);
// The checks that every store makes. Errors: MC_INVALID_ARGUMENT.
Status check_store_name(std::string_view name);
Status check_store_entry(std::string_view name, int fd);

class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;
  // Returns all descriptors of the previous agent by name. Call once, at the start.
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
// Returns when the keeper has been started; the keeper need not listen yet. Returns an error if the
// start failed.
using KeeperSpawner = std::function<Status()>;
// The same store; the caller chooses how a keeper is started.
Result<std::unique_ptr<DescriptorStore>> make_keeper_store(const std::string& runtime_dir,
                                                           std::uint32_t keep_seconds,
                                                           KeeperSpawner spawn);
// Uses sd_notify FDSTORE and sd_listen_fds. Errors: MC_UNSUPPORTED if systemd did not start this
// process with a store.
Result<std::unique_ptr<DescriptorStore>> make_systemd_store();
// The listening socket of mc-agent.socket (FileDescriptorName=listener), or no descriptor. Call before
// DescriptorStore::take_all(). Errors: MC_INVALID_ARGUMENT if the unit listens at another path.
Result<Fd> take_unit_socket(const std::string& path);

// The keeper's main(); returns the exit code.
int run_keeper(const std::string& runtime_dir, std::uint32_t keep_seconds);

}  // namespace mc::agent
