// SPDX-License-Identifier: Apache-2.0
//
// What it is: the calls that libfabric exports, as one table of functions; all others go through
//   what these return. The library is opened at run time, so that one program serves hosts with and
//   without it.
// Threads: a value; its functions follow libfabric: any thread.
// Owns: nothing; a library once opened stays for the life of the process, as its providers want.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <string>

#include "mc/status.h"

namespace mc::transport::fabric {

// Of the interface that we speak; a library may be newer.
inline constexpr std::uint32_t kApiVersion = FI_VERSION(1, 14);

struct Library {
  int (*getinfo)(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                 const fi_info* hints, fi_info** list) = nullptr;
  void (*freeinfo)(fi_info* list) = nullptr;
  fi_info* (*dupinfo)(const fi_info* info) = nullptr;  // null: an empty one
  int (*fabric)(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) = nullptr;
  const char* (*strerror)(int error) = nullptr;
  std::uint32_t version = 0;  // of the library

  // "what: text of the error"; error as libfabric returns it, negative or not.
  std::string error_text(const std::string& what, long error) const;
};

// Sets environment variables that turn its caches of registered memory off. REQUIRES: no other
// thread reads the environment meanwhile; nobody else in this process has used libfabric before.
// Errors: MC_UNSUPPORTED: this host has no libfabric, or too old a one; with the remedy.
Result<Library> load_libfabric();

}  // namespace mc::transport::fabric
