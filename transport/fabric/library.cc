// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace mc::transport::fabric {

namespace {

constexpr const char* kLibrary = "libfabric.so.1";

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::string Library::error_text(const std::string& what, long error) const {
  return what + ": " + strerror(static_cast<int>(std::labs(error)));
}

Result<Library> load_libfabric() {
  // With caches, a closed registration stays, and peers still reach the memory.
  ::setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
  ::setenv("FI_EFA_MR_CACHE_ENABLE", "0", 1);
  // PSM, a library that libfabric loads, would handle SIGSEGV of this process and write files.
  ::setenv("IPATH_NO_BACKTRACE", "1", 1);
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(MC_UNSUPPORTED,
                "no libfabric: libfabric.so.1 is not on this host; install libfabric1 (Debian), or "
                "on AWS the EFA installer");
  }
  Library calls;
  std::uint32_t (*version)() = nullptr;
  const bool complete =
      find(library, "fi_getinfo", calls.getinfo) && find(library, "fi_freeinfo", calls.freeinfo) &&
      find(library, "fi_dupinfo", calls.dupinfo) && find(library, "fi_fabric", calls.fabric) &&
      find(library, "fi_strerror", calls.strerror) && find(library, "fi_version", version);
  if (complete) calls.version = version();
  if (!complete || FI_VERSION_LT(calls.version, kApiVersion)) {
    return fail(MC_UNSUPPORTED,
                "no libfabric: this host's libfabric.so.1 is older than 1.14 (end "
                "of 2021); update it");
  }
  return calls;
}

}  // namespace mc::transport::fabric
