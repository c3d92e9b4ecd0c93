// SPDX-License-Identifier: Apache-2.0
//
// The workers of GPUs (mc-gpu) that the agent itself starts and restarts, a process for each GPU.
//   systemd starts the workers of a unit's agent: a child would have the unit's private devices, and
//   no GPU.
//
//   start ──► runs ──► has ended ──► 1 s, 2 s, ... 60 s ──► start
//                 └──► refuses the device (exit status 2): never again
//
// Threads: the agent's loop. No call waits for a process.
// Owns: pidfds. A process ends with the agent, because the link to the agent ends.
// Trusts: nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "agent/options/options.h"
#include "libmc/base/fd.h"

namespace mc::agent {

class GpuProcesses {
 public:
  explicit GpuProcesses(const Options& options);
  GpuProcesses(const GpuProcesses&) = delete;
  GpuProcesses& operator=(const GpuProcesses&) = delete;

  // Takes note of processes that have ended, and starts those that are due. Call often.
  void tick(std::uint64_t now_ns);

 private:
  struct Place {
    int device = 0;
    Fd process;  // pidfd; empty: none runs
    pid_t pid = 0;
    std::uint64_t started_ns = 0;
    std::uint64_t start_at_ns = 0;
    std::uint64_t wait_ns = 0;  // before the last start
    bool refused = false;
  };
  void start(Place& place, std::uint64_t now_ns);
  void look(Place& place, std::uint64_t now_ns);

  const std::string socket_;
  std::vector<Place> places_;
};

}  // namespace mc::agent
