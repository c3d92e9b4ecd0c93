// SPDX-License-Identifier: Apache-2.0
//
// A thread's end of a lane to the worker of a device (shm/device_lane.h). The thread waits for each
//   answer; the worker has many copies of a request under way.
// Threads: one at a time.
// Owns: the mapping, the bells, and the pidfd of the worker.
// Trusts: no completion, but for its status.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "libmc/base/fd.h"
#include "libmc/base/memory_file.h"
#include "libmc/client/device/registrations.h"
#include "shm/device_lane.h"
#include "shm/ring.h"

namespace mc::client {

class WorkerLane {
 public:
  // fds: of the agent's answer to kOpenLane. Errors: MC_VERSION_MISMATCH, MC_NO_MEMORY.
  static Result<std::unique_ptr<WorkerLane>> open(std::vector<Fd> fds, WorkerOfSession worker);
  WorkerLane(const WorkerLane&) = delete;
  WorkerLane& operator=(const WorkerLane&) = delete;

  // The worker's process has ended, and no copy is under way.
  bool has_ended() const;
  // Of the session that the lane was opened for.
  std::uint64_t session() const { return worker_.session; }

  // All return after the worker's answer. Errors: MC_AGENT_UNAVAILABLE (the worker has ended), and
  // those of the worker.
  //
  // MC_BUSY: the worker has not pinned the host memory. REQUIRES: the allocations are shared, and no
  // copy has more than shm::kMaxLaneBytes.
  Status copy(std::span<const shm::LaneCopy> copies);
  // Tells the worker of an allocation, once; the answer stands. Errors also: those of the driver, which
  // exports no descriptor.
  Status share(const device::Driver& driver, RegisteredMemory& memory);
  // The worker closes the allocation, which the client may free then.
  Status close(const RegisteredMemory& memory);

 private:
  WorkerLane(Mapping file, std::vector<Fd> fds, WorkerOfSession worker);
  Status share_chunks(const device::Driver& driver, const RegisteredMemory& memory);
  Status ask(shm::LaneRequest request, std::span<const std::byte> arguments);
  bool take_answer(std::uint64_t request_id, Status* status);
  bool wait_for_answer(std::uint64_t request_id, Status* status);
  shm::DeviceLane& shared() const { return *reinterpret_cast<shm::DeviceLane*>(file_.data()); }

  const Mapping file_;
  const std::vector<Fd> fds_;
  const WorkerOfSession worker_;
  shm::RingProducer requests_;
  shm::RingConsumer completions_;
  std::uint64_t last_id_ = 0;
};

}  // namespace mc::client
