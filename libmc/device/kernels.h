// SPDX-License-Identifier: Apache-2.0
//
// The device code of mc (kernels/kernels.cu), as loaded into a device's primary context: copies of
//   many pieces by a single call, and checksums of device memory.
//
//   kernels.cu ──nvcc──► an image in this library ──the driver──► functions of a device
//
// Threads: any.
// Owns: the loaded module. The destructor must not run before the streams have done the work.
// Trusts: the caller. A bad address ends the context of the whole process.
#pragma once

#include <memory>
#include <span>

#include "libmc/device/driver.h"
#include "libmc/device/kernels/piece.h"

namespace mc::device {

// The image of this build. Empty: the build machine had no nvcc.
std::span<const std::byte> kernel_image();

class Kernels {
 public:
  // Errors: MC_UNSUPPORTED (the image is empty), MC_DEVICE_FAILED (the driver refuses the image).
  static Result<std::unique_ptr<Kernels>> load(const Driver& driver, int device,
                                               std::span<const std::byte> image = kernel_image());
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  ~Kernels();

  // Both return at once. The stream does the work in its order. The list must stay as it is until
  // then, in memory that the device can read.
  // blocks: how many thread blocks share the list; each takes a multiprocessor from the engine.
  Status copy(const CopiedPiece* pieces, std::uint32_t count, std::uint32_t blocks,
              void* stream) const;
  Status checksum(const SummedPiece* pieces, std::uint32_t count, std::uint32_t blocks,
                  void* stream) const;

 private:
  Kernels(const Driver& driver, int device) : driver_(driver), device_(device) {}
  Status launch(void* function, const void* pieces, std::uint32_t count, std::uint32_t blocks,
                void* stream) const;

  const Driver& driver_;
  const int device_;
  void* module_ = nullptr;
  void* copy_ = nullptr;
  void* checksum_ = nullptr;
};

}  // namespace mc::device
