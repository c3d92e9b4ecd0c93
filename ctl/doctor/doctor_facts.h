// SPDX-License-Identifier: Apache-2.0
//
// The facts that mcctl doctor collects about this host, its kernel and its agent.
// Threads: the main thread.
// Owns: values; nothing stays open.
// Trusts: the kernel. The agent's statements are shown as statements of the agent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ctl/command.h"

namespace mc::ctl {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// Nullopt: the fact could not be determined.
struct HostFacts {
  // Limits of the agent's process if the process is readable; otherwise of this process.
  bool limits_are_the_agents = false;
  std::optional<std::uint64_t> memlock_bytes;
  std::optional<std::uint64_t> open_files;

  std::optional<std::uint64_t> huge_page_bytes;
  std::optional<std::uint64_t> huge_pages_total;
  std::optional<std::uint64_t> huge_pages_free;
  std::string
      shmem_huge;  // "never", "advise", "within_size", "always"...; empty: the file does not exist

  std::optional<std::uint64_t> available_bytes;    // MemAvailable
  std::optional<std::uint64_t> group_limit_bytes;  // of the control group; kUnlimited: no limit
  std::optional<std::uint64_t> group_used_bytes;
  std::optional<std::uint64_t> dev_shm_bytes;

  std::string kernel;      // "6.1.0-18-amd64"
  std::uint32_t cpus = 0;  // that this process may run on
  double cpu_quota = 0;    // of the control group, in CPUs; 0: no quota
  std::string clocksource;
  std::string rdma_devices;  // separated by commas; an EFA counts
  std::uint32_t gpus = 0;    // /dev/nvidia0, ...
  bool systemd_runs = false;
  std::string unit_file;  // empty: not found
};

struct KernelFeatures {
  bool sealed_memfd = false;
  bool pidfd_open = false;
  bool peer_pidfd = false;
  bool futex_waitv = false;
  bool populate_write = false;
  bool io_uring = false;
};

struct PathFacts {
  bool exists = false;
  bool is_socket = false;
  bool is_directory = false;
  std::uint32_t mode = 0;  // permission bits
  std::uint32_t uid = 0;
};

struct AgentFacts {
  std::string socket;
  std::string directory;
  PathFacts socket_facts;
  PathFacts directory_facts;
  std::uint32_t our_uid = 0;
  bool answered = false;
  bool ready = false;
  std::string error;  // the reason why the agent did not answer
  std::uint64_t pid = 0;
  std::string version;
  std::string our_version;
  // For an agent in a cluster: the masters and members, and the transport of large reads beside TCP, if any,
  // with its limits.
  bool in_cluster = false;
  bool master_ready = false;   // the masters of all partitions know the agent
  std::string master_trouble;  // why not, if a reason is known
  // The list of members; empty while no master is ready.
  std::uint32_t members = 0;
  std::string unreachable_members;  // "id at address", separated by commas
  // Of the member whose wall clock differs most from this host's; 0: no other clock is known.
  std::int64_t clock_ahead_ms = 0;
  std::string clock_of;  // "id at address"
  std::uint32_t gpu_workers = 0;
  // A client that copies device memory by itself, and why (own_because of mcctl status).
  std::string own_copies_of;  // "LABEL (pid N)"; empty: none does
  std::string own_copies_because;
  std::string one_sided;
  std::string one_sided_devices;
  std::string one_sided_obstacles;
};

HostFacts probe_host(const AgentFacts& agent);
KernelFeatures probe_kernel();
AgentFacts probe_agent(const Context& context);

}  // namespace mc::ctl
