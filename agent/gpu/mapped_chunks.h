// SPDX-License-Identifier: Apache-2.0
//
// Memory of a client that has no IPC handle, because the client made the memory of chunks (cuMemCreate:
//   torch's expandable segments, vLLM's sleep mode). The client sends a descriptor of each chunk, and
//   the chunks are mapped here one after the other, as in the client's reservation.
//
//   reserved  │ chunk 0 │ chunk 1 │ chunk 2 │ grows ──►                │
//
// Threads: one.
// Owns: the reservation and the mappings.
// Trusts: nothing. The driver checks descriptors and sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "libmc/base/fd.h"
#include "libmc/device/driver.h"

namespace mc::gpu {

class MappedChunks {
 public:
  // Errors: MC_INVALID_ARGUMENT (no or too many bytes), MC_DEVICE_FAILED.
  static Result<std::unique_ptr<MappedChunks>> reserve(const device::Driver& driver, int device,
                                                       std::uint64_t bytes);
  MappedChunks(const MappedChunks&) = delete;
  MappedChunks& operator=(const MappedChunks&) = delete;
  // REQUIRES: no copy uses the memory.
  ~MappedChunks();

  // Maps further chunks, all or none. Errors: MC_INVALID_ARGUMENT (beyond the reservation),
  // MC_QUOTA_EXCEEDED, MC_DEVICE_FAILED.
  Status append(std::span<const Fd> chunks, std::span<const std::uint64_t> bytes);

  std::uint64_t address() const { return address_; }
  std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  std::uint64_t mapped_bytes() const { return mapped_bytes_; }

 private:
  static constexpr std::uint64_t kMaxBytes = 1ull << 44;
  static constexpr std::size_t kMaxChunks = 65536;

  MappedChunks(const device::Driver& driver, int device, std::uint64_t bytes)
      : driver_(driver), device_(device), reserved_bytes_(bytes) {}
  Status map(const Fd& chunk, std::uint64_t bytes);
  void unmap_last();

  const device::Driver& driver_;
  const int device_;
  std::uint64_t address_ = 0;
  const std::uint64_t reserved_bytes_;
  std::uint64_t mapped_bytes_ = 0;
  std::vector<std::uint64_t> chunks_;  // bytes of each
};

}  // namespace mc::gpu
