// SPDX-License-Identifier: Apache-2.0
//
// The engine's use of device memory: which caller ranges lie on a device, and how many
//   bytes are staged in host memory (staging.h) at once.
// Threads: stage() and release() run without the engine's lock; the rest runs under the lock.
// Owns: the counters.
// Trusts: the device driver.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "mc/transfer.h"
#include "transport/engine/batch.h"
#include "transport/engine/local/staging.h"

namespace mc::transfer {

class DeviceStaging {
 public:
  // Host pages that stand for a registered range of a device; null: the range is host memory.
  Result<std::unique_ptr<StagedRegion>> stand_in(const mc_transfer_range& range);

  // Stages the local device memory of all requests, or of none. Copies from the device take time.
  // Errors: MC_BUSY (MC_MAX_TRANSFER_DEVICE_BYTES are staged), the driver's.
  Status stage(std::span<Request> requests);
  // Releases requests that were staged but never started.
  void release(std::span<Request> requests);
  // Ends the staging of an ended request: copies the bytes of a successful read to the device.
  Status unstage(Request& request);

  // Bytes that were copied between devices and the host.
  std::uint64_t moved_bytes() const { return moved_bytes_; }

 private:
  Status stage(Request& request);

  std::atomic<std::uint64_t> staged_bytes_{0};
  std::uint64_t moved_bytes_ = 0;
};

}  // namespace mc::transfer
