// SPDX-License-Identifier: Apache-2.0
//
// A recorded trace from an untrusted source.
#include <sstream>

#include "bytes.h"
#include "ctl/replay/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  mc::ctl::TraceLimits limits;
  limits.line_bytes = 4096;
  limits.blocks_per_request = 64;
  limits.block_references = 256;
  const auto trace = mc::ctl::read_trace(in, "fuzz", limits);
  if (!trace) {
    mc::fuzz::require(trace.error().starts_with("fuzz"));
    return 0;
  }
  std::size_t references = 0;
  for (const auto& request : trace->requests) {
    mc::fuzz::require(request.blocks.size() <= limits.blocks_per_request);
    references += request.blocks.size();
    for (const std::uint32_t block : request.blocks) mc::fuzz::require(block < trace->block_count);
  }
  mc::fuzz::require(references == trace->reference_count && references <= limits.block_references);
  return 0;
}
