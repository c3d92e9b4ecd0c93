// SPDX-License-Identifier: Apache-2.0
//
// Small request traces of known shapes, for judging eviction policies on more than one
//   recording. The same seed gives the same trace.
// Threads: Any; the functions have no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ctl/replay/trace.h"

namespace mc::test {

struct SyntheticTrace {
  std::string name;
  ctl::Trace trace;
  std::vector<std::size_t> capacities;  // blocks: tight, middling, roomy for this trace
};

std::vector<SyntheticTrace> synthetic_traces(std::uint64_t seed);

}  // namespace mc::test
