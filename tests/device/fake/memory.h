// SPDX-License-Identifier: Apache-2.0
//
// The memory of this process that the driver knows: device memory, which the host cannot access, and
//   pinned host memory.
//
//   shown, PROT_NONE: device addresses   ┐
//   behind, for the stream threads       ┘ two mappings of the same bytes of a block
//
// Threads: any.
// Owns: the mappings.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "device/fake/machine.h"

namespace mc::fake {

// An allocation, or a chunk of a reservation.
struct Chunk {
  enum class Kind { kAllocated, kOpened, kMapped, kManaged };
  Kind kind = Kind::kAllocated;
  std::uint64_t bytes = 0;
  int device = 0;                 // of the machine
  int block = -1;                 // the place in the machine's tables
  std::uint64_t offset = 0;       // within the block
  std::uint64_t reserved_at = 0;  // the reservation
  std::uint64_t reserved_bytes = 0;
  std::uint64_t buffer_id = 0;
  int opens = 1;           // of an IPC handle
  bool accessible = true;  // false: cuMemSetAccess() was not called
  bool sync_memops = false;
  int busy = 0;  // copies that were submitted and have not ended
};

struct Pin {
  std::uint64_t bytes = 0;
  unsigned flags = 0;
  std::uint64_t alias = 0;  // the device address
  int busy = 0;
};

enum class Side { kDevice, kHost, kEither };

// An end of a copy.
struct Place {
  std::byte* host = nullptr;  // where the bytes are; null: device memory with a hole
  CUdeviceptr chunk = 0;      // the first chunk; 0: host memory
  std::uint64_t pin = 0;      // of host memory; 0: not pinned
  bool is_alias = false;      // the address is the device's address of pinned memory
};

// While a process pins memory, some calls of all processes wait.
void wait_for_pinning();

class Memory {
 public:
  static Memory& get();

  // Device memory. 0: none is left.
  CUdeviceptr allocate(std::uint64_t bytes, int device, bool managed);
  void free(const char* call, CUdeviceptr address);

  CUdeviceptr reserve(std::uint64_t bytes);
  void unreserve(const char* call, CUdeviceptr address, std::uint64_t bytes);
  // The host address of device memory; null: none is mapped there.
  std::byte* host_address(CUdeviceptr address);
  int map(const char* call, CUdeviceptr address, std::uint64_t bytes, int block);
  void unmap(const char* call, CUdeviceptr address, std::uint64_t bytes);
  int set_access(CUdeviceptr address, std::uint64_t bytes);

  // A mapping of another process' block, counted. 0: the block is gone.
  CUdeviceptr open(int block, std::uint64_t offset);
  // False: not the address of an opened block.
  bool close(CUdeviceptr address);
  // Aborts if a copy uses the memory at the address.
  void check_idle(const char* call, CUdeviceptr address);

  int pin(void* host, std::uint64_t bytes, unsigned flags);
  int unpin(const char* call, void* host);
  int alias_of(void* host, CUdeviceptr* alias);
  void set_pin_limit(std::uint64_t bytes);

  // Calls the function with the chunk at the address. False: no device memory.
  template <typename Function>
  bool with_chunk(CUdeviceptr address, Function function) {
    const std::lock_guard lock(mutex_);
    const auto at = find(address);
    if (at == chunks_.end()) return false;
    function(at->first, at->second);
    return true;
  }

  // Errors: kInvalidValue (no memory of that side; a part of the range is pinned, or the range spans two pins).
  int find_place(CUdeviceptr address, std::uint64_t bytes, Side side, Place* place);
  // The range is in use by a stream, or no longer.
  void use(const Place& place, int change);
  // Lets this thread access device memory at its device addresses while a kernel runs.
  void show(bool on);

  std::string leaks();

 private:
  using Chunks = std::map<CUdeviceptr, Chunk>;
  struct Reservation {
    std::uint64_t bytes = 0;
    std::byte* behind = nullptr;
  };
  // Allocations that share a block of 2 MiB.
  struct SharedBlock {
    int block = -1;
    std::uint64_t used = 0;
    int allocations = 0;
  };
  // Where an allocation lies: the reservation of the block, and the offset there.
  struct Cut {
    CUdeviceptr reserved_at = 0;
    int block = -1;
    std::uint64_t offset = 0;
  };

  Chunks::iterator find(CUdeviceptr address);
  CUdeviceptr reserve_locked(std::uint64_t bytes);
  void unreserve_locked(CUdeviceptr address);
  // Maps the block's bytes at an address of a reservation, and behind it.
  void map_bytes(CUdeviceptr address, std::uint64_t bytes, int fd, bool managed);
  void unmap_bytes(CUdeviceptr address, std::uint64_t bytes);
  std::byte* behind(CUdeviceptr address);
  Cut cut(std::uint64_t bytes, int device, bool managed);
  void protect(const Chunks::value_type& chunk, bool on);

  std::mutex mutex_;
  Chunks chunks_;
  std::map<CUdeviceptr, Reservation> reservations_;
  std::map<std::uint64_t, Pin> pins_;
  std::map<CUdeviceptr, SharedBlock> shared_;    // by reservation
  std::array<CUdeviceptr, kDevices> cutting_{};  // the shared block of new allocations
  int showing_ = 0;
  std::uint64_t next_buffer_ = 1;
  std::uint64_t pinned_ = 0;
  std::uint64_t pin_limit_ = ~std::uint64_t{0};
};

}  // namespace mc::fake
