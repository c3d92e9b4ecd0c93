// SPDX-License-Identifier: Apache-2.0
//
// Device memory that this process has registered, so that the worker of the device (agent/gpu) may copy
//   there. A worker learns of an allocation at the first copy (worker_lane.h).
//
//   registered range ──► whole allocation: a handle, or chunks ──► number, which the worker knows
//
//   A number is never used again. Other memory may come to lie at the same address, so the driver's
//   id of each chunk is compared before each use.
// Threads: any.
// Trusts: the caller registers memory before the memory is freed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "libmc/base/mutex.h"
#include "libmc/client/device/lane_end.h"
#include "libmc/device/memory.h"

namespace mc::client {

struct RegisteredMemory {
  struct Chunk {
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;  // of the driver, never used again
  };

  std::uint64_t number = 0;
  int device = 0;
  std::uint64_t base = 0;  // of the allocation
  std::uint64_t bytes = 0;
  std::vector<Chunk> chunks;
  device::IpcHandle handle{};
  Status handle_error;  // not MC_OK: the memory has no handle, and its chunks go to the worker
  // A thread tells the worker; the others wait, and take the same answer.
  Mutex sharing;
  WorkerOfSession told MC_GUARDED_BY(sharing);
  Status answer MC_GUARDED_BY(sharing);
};

class Registrations {
 public:
  using Memory = std::shared_ptr<RegisteredMemory>;

  // Registers the allocation of the range, once more if it is known. Returns null for host memory.
  // *replaced: memory that lay there before, or null. Errors: MC_INVALID_ARGUMENT (a part of the range
  // has no memory).
  Result<Memory> add(const device::Driver& driver, const void* address, std::uint64_t bytes,
                     Memory* replaced);
  // Ends a registration of the allocation at the address. Returns null while there is another one, and
  // for memory that is not registered.
  Memory remove(const void* address);
  std::vector<Memory> remove_all();
  // The allocation that has the whole range; null: not registered, or the memory has changed.
  Memory find(const device::Driver& driver, std::uint64_t address, std::uint64_t bytes) const;

 private:
  struct Entry {
    Memory memory;
    unsigned times = 0;
  };

  mutable Mutex mutex_;
  std::map<std::uint64_t, Entry> table_ MC_GUARDED_BY(mutex_);  // by base
  std::uint64_t next_number_ MC_GUARDED_BY(mutex_) = 1;
};

}  // namespace mc::client
