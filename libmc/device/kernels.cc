// SPDX-License-Identifier: Apache-2.0
#include "libmc/device/kernels.h"

#include <string>

#ifdef MC_KERNEL_IMAGE
// The assembler reads the file that nvcc made.
asm(".pushsection .rodata\n"
    ".balign 8\n"
    "mc_kernel_image_start: .incbin \"" MC_KERNEL_IMAGE
    "\"\n"
    "mc_kernel_image_end:\n"
    ".popsection\n");
extern "C" const std::byte mc_kernel_image_start[];
extern "C" const std::byte mc_kernel_image_end[];
#endif

namespace mc::device {

namespace {

constexpr unsigned kThreads = 256;

}  // namespace

std::span<const std::byte> kernel_image() {
#ifdef MC_KERNEL_IMAGE
  return {mc_kernel_image_start, mc_kernel_image_end};
#else
  return {};
#endif
}

Result<std::unique_ptr<Kernels>> Kernels::load(const Driver& driver, int device,
                                               std::span<const std::byte> image) {
  if (image.empty()) {
    return fail(
        MC_UNSUPPORTED,
        "this build of mc has no kernels for devices, because nvcc was missing or failed; build mc "
        "with the CUDA toolkit, or set -DMC_NVCC=PATH");
  }
  const Current current(driver, device);
  if (!current.status().ok()) return fail(current.status());
  std::unique_ptr<Kernels> made(new Kernels(driver, device));
  Status status = driver.call<&Calls::module_load_data>(&made->module_, image.data());
  if (status.ok()) {
    status =
        driver.call<&Calls::module_get_function>(&made->copy_, made->module_, "mc_copy_pieces");
  }
  if (status.ok()) {
    status = driver.call<&Calls::module_get_function>(&made->checksum_, made->module_,
                                                      "mc_checksum_pieces");
  }
  if (!status.ok()) return fail(status);
  return made;
}

Kernels::~Kernels() {
  if (module_ == nullptr) return;
  const Current current(driver_, device_);
  if (current.status().ok()) static_cast<void>(driver_.calls().module_unload(module_));
}

Status Kernels::launch(void* function, const void* pieces, std::uint32_t count,
                       std::uint32_t blocks, void* stream) const {
  const Current current(driver_, device_);
  if (!current.status().ok()) return current.status();
  void* parameters[] = {&pieces, &count};
  return driver_.call<&Calls::launch_kernel>(function, blocks, 1U, 1U, kThreads, 1U, 1U, 0U, stream,
                                             static_cast<void**>(parameters), nullptr);
}

Status Kernels::copy(const CopiedPiece* pieces, std::uint32_t count, std::uint32_t blocks,
                     void* stream) const {
  return launch(copy_, pieces, count, blocks, stream);
}

Status Kernels::checksum(const SummedPiece* pieces, std::uint32_t count, std::uint32_t blocks,
                         void* stream) const {
  return launch(checksum_, pieces, count, blocks, stream);
}

}  // namespace mc::device
