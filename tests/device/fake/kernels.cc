// SPDX-License-Identifier: Apache-2.0
//
// Modules and kernels. The kernels of libmc/device/kernels are compiled for the processor. A
// kernel runs a thread after the other.
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

#include "device/fake/exports.h"
#include "device/fake/memory.h"
#include "device/fake/misuse.h"
#include "device/fake/streams.h"

// The words of CUDA that the kernels use.
// NOLINTBEGIN(bugprone-reserved-identifier)
#define __global__ static
#define __device__
#define __host__
// NOLINTEND(bugprone-reserved-identifier)
namespace {
struct Dimensions {
  unsigned x = 1;
};
thread_local Dimensions threadIdx;
thread_local Dimensions blockIdx;
thread_local Dimensions blockDim;
thread_local Dimensions gridDim;
struct alignas(16) ulonglong2 {
  unsigned long long x;
  unsigned long long y;
};
void atomicXor(unsigned long long* at, unsigned long long value) {
  __atomic_fetch_xor(at, value, __ATOMIC_RELAXED);
}
}  // namespace
#include "libmc/device/kernels/kernels.cu"

namespace mc::fake {

namespace {

constexpr char kImage[] = "kernels of the fake driver";
constexpr unsigned char kFatbinMagic[] = {0x50, 0xed, 0x55, 0xba};
constexpr unsigned kMaxThreads = 1024;

template <typename Value>
Value value_of(const void* at) {
  Value value;
  std::memcpy(&value, at, sizeof value);  // NOLINT(bugprone-sizeof-expression): a pointer's
  return value;
}

// Binds the values of the parameters, which the caller may change after the launch.
template <auto kFunction>
struct Kernel;
template <typename... Parameters, void (*kFunction)(Parameters...)>
struct Kernel<kFunction> {
  static Stream::Work bind(void** parameters) {
    return bind(parameters, std::index_sequence_for<Parameters...>());
  }
  template <std::size_t... kAt>
  static Stream::Work bind(void** parameters, std::index_sequence<kAt...>) {
    return [... values = value_of<Parameters>(parameters[kAt])] { kFunction(values...); };
  }
};

struct Known {
  std::string_view name;
  Stream::Work (*bind)(void** parameters);
};
const Known kKernels[] = {
    {"mc_copy_pieces", Kernel<mc_copy_pieces>::bind},
    {"mc_checksum_pieces", Kernel<mc_checksum_pieces>::bind},
};

std::mutex modules_mutex;
std::set<void*> modules;

void run(const Stream::Work& thread, unsigned blocks, unsigned threads) {
  Memory::get().show(true);
  gridDim.x = blocks;
  blockDim.x = threads;
  // Blocks and threads have no order. Here the last is the first.
  for (blockIdx.x = blocks; blockIdx.x-- > 0;) {
    for (threadIdx.x = threads; threadIdx.x-- > 0;) thread();
  }
  Memory::get().show(false);
}

}  // namespace

const void* kernel_image() { return kImage; }

std::size_t count_modules() {
  const std::lock_guard lock(modules_mutex);
  return modules.size();
}

}  // namespace mc::fake

using namespace mc::fake;  // NOLINT(google-build-using-namespace): the functions below are C

extern "C" {

int cuModuleLoadData(CUmodule* module, const void* image) {
  const Entry entry("cuModuleLoadData");
  if (entry.error() != kSuccess) return entry.error();
  if (std::memcmp(image, kFatbinMagic, sizeof kFatbinMagic) != 0 &&
      std::memcmp(image, kImage, sizeof kImage) != 0) {
    return kInvalidImage;
  }
  *module = new char;
  const std::lock_guard lock(modules_mutex);
  modules.insert(*module);
  return kSuccess;
}

int cuModuleUnload(CUmodule module) {
  const Entry entry("cuModuleUnload");
  if (entry.error() != kSuccess) return entry.error();
  const std::lock_guard lock(modules_mutex);
  if (modules.erase(module) == 0) misuse(entry.call(), "no such module");
  delete static_cast<char*>(module);
  return kSuccess;
}

int cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const Entry entry("cuModuleGetFunction");
  if (entry.error() != kSuccess) return entry.error();
  const std::lock_guard lock(modules_mutex);
  if (!modules.contains(module)) misuse(entry.call(), "no such module");
  for (const Known& known : kKernels) {
    if (known.name != name) continue;
    *function = const_cast<Known*>(&known);
    return kSuccess;
  }
  return kNotFound;
}

int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   CUstream stream, void** parameters, void** extra) {
  const Entry entry("cuLaunchKernel");
  if (entry.error() != kSuccess) return entry.error();
  const auto* const known = static_cast<const Known*>(function);
  if (known < std::begin(kKernels) || known >= std::end(kKernels)) {
    misuse(entry.call(), "no such function");
  }
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_x > kMaxThreads ||
      block_y != 1 || block_z != 1 || shared_bytes != 0 || extra != nullptr) {
    return kInvalidValue;
  }
  Streams::get().submit(
      Streams::get().find(entry.call(), stream),
      [thread = known->bind(parameters), grid_x, block_x] { run(thread, grid_x, block_x); });
  return kSuccess;
}

}  // extern "C"
