// SPDX-License-Identifier: Apache-2.0
//
// A recorded run of requests in the format that Mooncake publishes: one JSON object per
//   line, each with the prefix-hash chain of its prompt.
// Threads: any; the functions share nothing.
// Owns: the requests read.
// Trusts: nothing; any user may have written the file. The limits below bound line length, counts
//   and ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace mc::ctl {

struct TraceLimits {
  std::size_t line_bytes = std::size_t{4} << 20;
  std::size_t blocks_per_request = 65'536;
  std::size_t block_references = std::size_t{1} << 28;
  // Every JSON reader keeps numbers up to this one exactly.
  std::uint64_t block_id = (std::uint64_t{1} << 53) - 1;
};

struct TraceRequest {
  std::uint64_t timestamp_ms = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  // The block chain of the prompt; block i-1 is the parent of block i. Blocks are numbered
  // 0..block_count-1 in the order of first appearance, independent of the ids in the file.
  std::vector<std::uint32_t> blocks;
};

struct Trace {
  std::vector<TraceRequest> requests;
  std::size_t block_count = 0;      // distinct blocks
  std::size_t reference_count = 0;  // blocks over all requests
};

// An error names the source, the line and the remedy.
[[nodiscard]] tl::expected<Trace, std::string> read_trace(const std::string& path,
                                                          const TraceLimits& limits = {});
// source: the name of the stream in errors.
[[nodiscard]] tl::expected<Trace, std::string> read_trace(std::istream& in, std::string_view source,
                                                          const TraceLimits& limits = {});

}  // namespace mc::ctl
