// SPDX-License-Identifier: Apache-2.0
#include "device/signatures.h"

#ifdef MC_CUDA_HEADER
#include MC_CUDA_HEADER
#endif

namespace mc::device::testing {

Signatures cuda_signatures() {
#ifdef MC_CUDA_HEADER
  return {
#include "device/driver_functions.inc"
  };
#else
  return {};
#endif
}

}  // namespace mc::device::testing
