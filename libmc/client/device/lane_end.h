// SPDX-License-Identifier: Apache-2.0
//
// The client's end of a lane to the worker of a device (shm/device_lane.h): requests, completions, bells.
// Threads: one at a time, but has_ended().
// Owns: the mapping, the bells, and the pidfd of the worker.
// Trusts: no completion, but for its status.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "libmc/base/fd.h"
#include "libmc/base/memory_file.h"
#include "mc/status.h"
#include "shm/device_lane.h"
#include "shm/messages.h"
#include "shm/ring.h"

namespace mc::client {

// A worker knows the allocations of a session.
struct WorkerOfSession {
  std::uint64_t worker = 0;   // the agent's number
  std::uint64_t session = 0;  // serial of the session's memory
  bool operator==(const WorkerOfSession&) const = default;
};

class LaneEnd {
 public:
  // fds: of the agent's answer to kOpenLane. Errors: MC_VERSION_MISMATCH, MC_NO_MEMORY.
  static Result<std::unique_ptr<LaneEnd>> open(std::vector<Fd> fds, WorkerOfSession worker);
  LaneEnd(const LaneEnd&) = delete;
  LaneEnd& operator=(const LaneEnd&) = delete;

  const WorkerOfSession& worker() const { return worker_; }
  // The worker has ended the lane, because the agent ended the session, or has ended itself. No copy is
  // under way.
  bool has_ended() const;
  // Readable: the worker rang.
  int bell() const;
  // Readable or hung up: the worker has ended, and the lane has ended.
  std::array<int, 2> ends() const;
  shm::DeviceLane& lane() const { return *reinterpret_cast<shm::DeviceLane*>(file_.data()); }

  // Writes the arguments, and publishes the request. REQUIRES: room in the ring and in the arguments.
  void publish(shm::LaneRequest request, std::uint32_t argument_offset,
               std::span<const std::byte> arguments);
  std::optional<shm::LaneCompletion> poll();
  Status send_descriptors(std::span<const int> fds);
  // The worker rings from now on. Look for completions once more before a wait.
  void expect_bell();
  void take_bell();

 private:
  LaneEnd(Mapping file, std::vector<Fd> fds, WorkerOfSession worker);

  const Mapping file_;
  const std::vector<Fd> fds_;
  const WorkerOfSession worker_;
  shm::RingProducer requests_;
  shm::RingConsumer completions_;
};

inline mc_status status_of(const shm::LaneCompletion& completion) {
  return static_cast<mc_status>(shm::known_status(completion.status));
}

shm::LaneRequest lane_request(shm::LaneOp op, std::uint64_t a = 0, std::uint64_t b = 0);

}  // namespace mc::client
