// SPDX-License-Identifier: Apache-2.0
//
// The error of an exception that ends at the border of the C ABI. Callers in C cannot catch exceptions.
// Threads: any.
#pragma once

#include "mc/mc.h"

namespace mc {

struct Caught {
  mc_status code;
  const char* text;  // lives as long as the process; takes no memory
};
// REQUIRES: the caller is in a catch block.
Caught caught_exception() noexcept;

}  // namespace mc
