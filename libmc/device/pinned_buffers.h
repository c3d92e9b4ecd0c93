// SPDX-License-Identifier: Apache-2.0
//
// Copies between a device and host memory that is not pinned, through two pinned buffers: while the
//   device copies one buffer, the processor copies the other buffer.
//
//   device ──copy engine──► buffer 0 ──processor──► host memory
//                           buffer 1
//
// Threads: one at a time.
// Owns: the buffers, which stay pinned.
// Trusts: the caller checks the ranges.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "libmc/device/memory.h"

namespace mc::device {

class PinnedBuffers {
 public:
  // Errors: MC_NO_MEMORY, MC_DEVICE_FAILED (the driver pins no memory).
  static Result<std::unique_ptr<PinnedBuffers>> create(const Driver& driver, int device);
  PinnedBuffers(const PinnedBuffers&) = delete;
  PinnedBuffers& operator=(const PinnedBuffers&) = delete;
  ~PinnedBuffers();

  // Copies the pieces on the stream (null: the default stream), and returns after the bytes have
  // arrived. Errors: MC_DEVICE_FAILED.
  Status copy(Direction direction, std::span<const DevicePiece> pieces, void* stream = nullptr);

 private:
  static constexpr std::uint64_t kBufferBytes = 512 * 1024;

  struct Buffer {
    std::byte* memory = nullptr;
    void* event = nullptr;           // behind the copies of the parts
    std::vector<DevicePiece> parts;  // under way, from the start of the buffer on
  };
  // The parts that fill a buffer.
  class Cutter;

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Pages = std::unique_ptr<std::byte, Free>;

  PinnedBuffers(const Driver& driver, int device, Pages memory)
      : driver_(driver), device_(device), memory_(std::move(memory)) {}
  Status copy_in_turns(Direction direction, std::span<const DevicePiece> pieces, void* stream);
  Status begin(Buffer& buffer, Direction direction, void* stream);
  Status finish(Buffer& buffer, Direction direction);

  const Driver& driver_;
  const int device_;
  const Pages memory_;
  std::array<Buffer, 2> buffers_;
};

}  // namespace mc::device
