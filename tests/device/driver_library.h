// SPDX-License-Identifier: Apache-2.0
//
// The driver that tests load: the fake driver. With MC_TEST_GPU in the environment: the driver of the host.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "device/fake/abi.h"
#include "device/fake/fake_driver.h"

namespace mc::device::testing {

inline bool has_gpu() { return std::getenv("MC_TEST_GPU") != nullptr; }

inline void* driver_symbol(const char* name) {
  static void* const library =
      ::dlopen(has_gpu() ? "libcuda.so.1" : MC_FAKE_DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library == nullptr ? nullptr : ::dlsym(library, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "the driver has no %s: %s\n", name, ::dlerror());
    std::abort();
  }
  return symbol;
}

// REQUIRES: !has_gpu().
inline const FakeDriver& fake() {
  static const FakeDriver* const driver =
      reinterpret_cast<decltype(&fake_driver)>(driver_symbol("fake_driver"))();
  return *driver;
}

// A function of the driver: CU(cuInit)(0).
#define CU(name) reinterpret_cast<decltype(&::name)>(::mc::device::testing::driver_symbol(#name))

}  // namespace mc::device::testing
