// SPDX-License-Identifier: Apache-2.0
//
// The functions that libfabric exports, as a table; all other calls go through the
//   objects that these functions return. The library is opened at run time, so that the same
//   program serves hosts with and without libfabric.
// Threads: a value. Any thread may call the functions, as with libfabric.
// Owns: nothing. An opened library stays for the life of the process, as the providers need.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <string>

#include "mc/status.h"

namespace mc::transport::fabric {

// The version of the interface that this code uses; the library may be newer.
inline constexpr std::uint32_t kApiVersion = FI_VERSION(1, 14);

struct Library {
  int (*getinfo)(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                 const fi_info* hints, fi_info** list) = nullptr;
  void (*freeinfo)(fi_info* list) = nullptr;
  fi_info* (*dupinfo)(const fi_info* info) = nullptr;  // of null: an empty fi_info
  int (*fabric)(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) = nullptr;
  const char* (*strerror)(int error) = nullptr;
  std::uint32_t version = 0;  // of the library

  // "<what>: <text of the error>"; error as libfabric returns it, negative or not.
  std::string error_text(const std::string& what, long error) const;
};

// Opens libfabric. Sets environment variables that turn the registration caches of libfabric off.
// REQUIRES: no other thread reads the environment meanwhile, and this process has not used
// libfabric before. Errors: MC_UNSUPPORTED: this host has no libfabric, or an old version; with the
// remedy.
Result<Library> load_libfabric();

}  // namespace mc::transport::fabric
