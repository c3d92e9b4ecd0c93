// SPDX-License-Identifier: Apache-2.0
//
// A thread's use of a lane to the worker of a device. The thread waits for each answer; the worker has
//   many copies of a request under way.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "libmc/client/device/lane_end.h"
#include "libmc/client/device/registrations.h"

namespace mc::client {

class WorkerLane {
 public:
  explicit WorkerLane(std::unique_ptr<LaneEnd> end) : end_(std::move(end)) {}

  bool has_ended() const { return end_->has_ended(); }
  // Serial of the memory of the session that the lane was opened for.
  std::uint64_t session() const { return end_->worker().session; }

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
  Status share_chunks(const device::Driver& driver, const RegisteredMemory& memory);
  Status ask(shm::LaneRequest request, std::span<const std::byte> arguments);
  bool take_answer(Status* status);
  bool wait_for_answer(Status* status);

  const std::unique_ptr<LaneEnd> end_;
  std::uint64_t last_id_ = 0;
};

// The copies at the start of the list that fit in a request.
std::span<const shm::LaneCopy> first_request(std::span<const shm::LaneCopy> copies);

}  // namespace mc::client
