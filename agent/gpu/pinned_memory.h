// SPDX-License-Identifier: Apache-2.0
//
// Host memory that a device copies from and to, pinned in small pieces: a driver holds locks of the
//   whole host while pinning. A pool has parts that grow and shrink.
//
//   part 0  │ pinned │ pinned │ pinn│ backed    no memory    │
//   part 1  │ pinned │ backed              no memory         │     a copy stays within one piece
//
// Threads: one.
// Owns: the mapping and the registrations.
// Trusts: the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "libmc/base/memory_file.h"
#include "libmc/device/driver.h"

namespace mc::gpu {

class PinnedMemory {
 public:
  static constexpr std::uint64_t kPieceBytes = 16 << 20;  // about 1 ms, if the memory is there

  // memory: parts of equal size, one after the other. writable: the mapping is, too.
  PinnedMemory(const device::Driver& driver, int device, Mapping memory, std::uint64_t part_bytes,
               bool writable);
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  // REQUIRES: no copy uses the memory.
  ~PinnedMemory();

  std::byte* data() const { return memory_.data(); }
  std::uint64_t size_bytes() const { return memory_.size_bytes(); }
  bool is_writable() const { return writable_; }
  // The bytes from the offset to the end of its piece; 0: not pinned.
  std::uint64_t pinned_from(std::uint64_t offset) const;
  std::uint64_t pinned_bytes() const { return pinned_bytes_; }

  // Pins the next piece below the backed end of a part. False: nothing was left to pin.
  // Errors: MC_DEVICE_FAILED (the driver refuses).
  Result<bool> grow(std::size_t part, std::uint64_t backed_bytes);
  // Unpins the pieces beyond the end; the memory there may then be given back.
  // REQUIRES: no copy uses memory beyond the end.
  void shrink(std::size_t part, std::uint64_t backed_bytes);

 private:
  const device::Driver& driver_;
  const int device_;
  const Mapping memory_;
  const std::uint64_t part_bytes_;
  const bool writable_;
  // Offset to bytes. The pieces of a part are neighbours, from its start on.
  std::map<std::uint64_t, std::uint64_t> pieces_;
  std::vector<std::uint64_t> pinned_ends_;  // of each part
  std::uint64_t pinned_bytes_ = 0;
};

}  // namespace mc::gpu
