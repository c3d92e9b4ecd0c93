// SPDX-License-Identifier: Apache-2.0
//
// A disk of the tier: a file or a block device that reads, writes and flushes,
//   asynchronously. Offsets, sizes and addresses are multiples of kBlockBytes; offset and size of a
//   read may be multiples of a sector. UringDisk and ThreadedDisk are the real ones (open_disk.h);
//   the tests have a model disk with faults.
//   Each submitted operation ends exactly once. The end of a write says that the disk has taken the
//   bytes, not that the bytes survive a power cut: that says the end of a later flush. Operations
//   that are under way together have no order.
// Threads: one thread submits, takes ends and waits. The same thread destroys a disk that has
//   operations under way (uring_disk.h says why). wake() may come from any thread.
// Owns: the descriptor and the threads of the implementation. The caller owns the memory, which stays
//   valid until the operation has ended.
// Trusts: its caller. Bytes that come from the disk may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/tier/layout/layout.h"

namespace mc::tier {

struct BlockOperation {
  enum class Kind : std::uint8_t { kRead, kWrite, kFlush };
  Kind kind = Kind::kRead;
  std::uint64_t offset = 0;
  std::byte* memory = nullptr;  // a read fills the memory; a write only reads the memory
  std::uint64_t bytes = 0;      // kFlush: 0
  std::uint64_t cookie = 0;     // comes back with the end
};

struct BlockEnd {
  std::uint64_t cookie = 0;
  // 0, or the errno: EIO, ENOSPC, ENODEV and so on. A read or write that moved a part of its bytes
  // is continued by the disk; if that fails, the operation ends with the error.
  int error = 0;
};

struct DiskShape {
  std::uint64_t bytes = 0;                   // a multiple of kBlockBytes
  std::uint32_t sector_bytes = kBlockBytes;  // a divisor of kBlockBytes
};

class Disk {
 public:
  // Waits for the operations under way.
  virtual ~Disk() = default;

  virtual DiskShape shape() const = 0;
  virtual std::uint32_t depth() const = 0;  // operations that may be under way at once
  // Begins an operation. The call does not wait for the disk. REQUIRES: fewer than depth()
  // operations are under way, the range lies within the disk, and offset, size and address are multiples as above.
  virtual void submit(const BlockOperation& operation) = 0;
  // Appends the operations that have ended.
  virtual void take_ended(std::vector<BlockEnd>& ended) = 0;
  // Returns when an operation has ended, after wake(), or after the timeout.
  virtual void wait(std::uint64_t timeout_ns) = 0;
  // Ends a present wait() of another thread, or the next one.
  virtual void wake() = 0;
};

}  // namespace mc::tier
