// SPDX-License-Identifier: Apache-2.0
//
// Libfabric with a second domain, "spare0", on the wire of the first domain. The device
//   of the second domain comes and goes as a test wants.
// Threads: any for break_spare() and mend_spare(); as libfabric for all else.
// Owns: the functions of libfabric as long as the object lives. Only one object may live at a time.
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
  // From now on the device opens no domain and no endpoint. Open domains and endpoints stay open.
  static void break_spare(int error);
  static void mend_spare();
};

}  // namespace mc::transport::testing
