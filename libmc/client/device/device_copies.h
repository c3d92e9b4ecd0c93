// SPDX-License-Identifier: Apache-2.0
//
// Copies of a channel between devices and host memory: large ones of registered memory by the worker
//   of the device, all others through pinned buffers.
//
//   pieces ──┬─ registered, 64 KiB or more, pool or staging ──► lane ──► mc-gpu ──┬─► done
//            └─ else, or the worker cannot ──► pinned buffers ──► this thread ────┘
//
//   The copies begin after the earlier work of the device's default stream.
// Threads: as the channel.
// Owns: lanes and buffers.
// Trusts: the caller checks that the memory is there.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "libmc/client/device/registrations.h"
#include "libmc/client/device/worker_lane.h"
#include "libmc/device/pinned_buffers.h"

namespace mc::client {

class Channel;
class Client;

class DeviceCopies {
 public:
  DeviceCopies(Client& client, Channel& channel) : client_(client), channel_(channel) {}
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  // Returns after the bytes have arrived. Errors: MC_DEVICE_FAILED.
  Status copy(int device, device::Direction direction, std::span<const device::DevicePiece> pieces);
  // The same, but on a stream of the caller, and always by this thread.
  Status copy_here(int device, device::Direction direction,
                   std::span<const device::DevicePiece> pieces, void* stream);
  // The copies for a lane to the worker, which knows the allocations then. Errors: MC_UNSUPPORTED (host
  // memory that no worker knows), and others that count_refusal() takes.
  Status prepare(int device, device::Direction direction,
                 std::span<const device::DevicePiece> pieces, std::vector<shm::LaneCopy>& copies);
  // Counts copies that the caller does because prepare() or the worker refused.
  void count_refusal(std::uint64_t bytes, const Status& why);
  // The worker closes the memory, if the worker has it open.
  void close(const RegisteredMemory& memory);

 private:
  struct Device {
    device::Uuid uuid{};
    std::unique_ptr<WorkerLane> lane;
    std::uint64_t try_again_ns = 0;  // to open a lane
    std::unique_ptr<device::PinnedBuffers> buffers;
    bool has_no_buffers = false;
  };
  Status copy_by_worker(int device, device::Direction direction,
                        std::span<const device::DevicePiece> pieces);
  WorkerLane* lane_of(Device& at, int device);
  // Places host memory in the pool or in staging. False: the worker does not know the memory.
  bool place(const std::byte* host, std::uint64_t bytes, shm::LaneCopy& copy) const;

  Client& client_;
  Channel& channel_;
  std::map<int, Device> devices_;
};

}  // namespace mc::client
