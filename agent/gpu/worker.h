// SPDX-License-Identifier: Apache-2.0
//
// The worker of a device: serves the lanes of clients, and does what the agent's link says. One loop
//   polls lanes and copies, pins memory when there is nothing to do, and sleeps when nothing is left.
//
//   The worker is meant to die: after an error of the driver, or a driver call that does not return,
//   it ends, and the agent starts another one.
// Threads: run() is the loop.
// Owns: the memory, the lanes and the imports.
// Trusts: the agent. Lanes check what clients ask.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "agent/gpu/copier.h"
#include "agent/gpu/imports.h"
#include "agent/gpu/lane.h"
#include "agent/gpu/link.h"
#include "agent/gpu/pinned_memory.h"
#include "libmc/base/fd.h"

namespace mc::gpu {

class Worker {
 public:
  // Opens the device and says hello to the agent. Errors: MC_DEVICE_FAILED, MC_AGENT_UNAVAILABLE.
  static Result<std::unique_ptr<Worker>> create(const device::Driver& driver, int device, Fd link);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  // Serves until the agent closes the link (MC_OK). Errors: MC_DEVICE_FAILED.
  Status run();

 private:
  struct Memory {
    std::unique_ptr<PinnedMemory> pinned;
    std::vector<std::uint64_t> backed;  // bytes of each part
  };
  struct Pending {
    Lane* lane = nullptr;
    std::uint64_t client = 0;
    shm::LaneRequest request{};
    std::uint64_t bytes = 0;
    std::vector<Imports::Name> used;
  };
  struct Client {
    std::vector<std::unique_ptr<Lane>> lanes;
    std::vector<Fd> bells;  // the worker's
    Memory staging;
    std::uint32_t pending = 0;
    std::uint64_t pending_bytes = 0;
    bool ending = false;
    std::uint64_t end_ticket = 0;
  };

  Worker(const device::Driver& driver, int device, Fd link);
  Status serve_lanes(bool* busy);
  Status take_ended();
  Result<bool> take_message();
  Status on_message(const LinkMessage& message, std::vector<Fd> fds);
  Status add_pool(const LinkMessage& message, const std::vector<Fd>& fds);
  Status add_lane(const LinkMessage& message, std::vector<Fd> fds);
  Status set_backed(const LinkMessage& message);
  void end_client(const LinkMessage& message);
  void forget(std::uint64_t id);
  void report(std::uint64_t ticket);
  void send(const LinkMessage& message);
  // Pins a piece of a pool or of staging memory. False: all memory is pinned, or the driver refuses.
  bool pin_some(std::uint64_t now);
  // Sleeps until a bell or the link wakes the worker, unless a request came meanwhile. Naps while
  // requests wait for streams.
  void sleep();

  const device::Driver& driver_;
  const int device_;
  const Fd link_;
  Fd epoll_;
  std::unique_ptr<Copier> copier_;
  Imports imports_;
  std::map<std::uint64_t, Memory> pools_;
  std::map<std::uint64_t, Client> clients_;
  std::unordered_map<std::uint64_t, Pending> pending_;
  std::uint64_t next_tag_ = 1;
  std::vector<std::uint64_t> ended_;
  std::uint64_t pin_again_ns_ = 0;  // after a refusal
  WorkerCounters counters_;
};

}  // namespace mc::gpu
