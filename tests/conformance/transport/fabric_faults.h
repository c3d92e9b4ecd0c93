// SPDX-License-Identifier: Apache-2.0
//
// What it is: libfabric with a second domain, "spare0", on the wire of the first one, whose device
//   comes and goes as a test wants.
// Threads: break_spare() and mend_spare(): any; the rest as libfabric.
// Owns: the functions of libfabric for as long as it lives; there is one at a time.
#pragma once

#include "transport/fabric/library.h"

namespace mc::transport::testing {

class FabricFaults {
 public:
  static constexpr const char* kSpare = "spare0";

  explicit FabricFaults(const fabric::Library& real);
  ~FabricFaults();
  FabricFaults(const FabricFaults&) = delete;
  FabricFaults& operator=(const FabricFaults&) = delete;

  fabric::Library library() const;
  // From now on it opens no domain and no endpoint; what is open goes on.
  static void break_spare(int error);
  static void mend_spare();
};

}  // namespace mc::transport::testing
