// SPDX-License-Identifier: Apache-2.0
//
// A trace run against an eviction policy alone, without an agent or bytes. A run makes the
//   same calls in the same order as a live replay.
// Threads: any; a run uses only its arguments.
// Owns: the table of resident blocks during the run.
// Trusts: a Trace that read_trace() returned. The policy is under test and is not trusted: a victim
//   that is not resident ends the run with an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "agent/pool/policy/policy.h"
#include "ctl/replay/trace.h"

namespace mc::ctl {

struct PolicyRun {
  std::uint64_t references = 0;   // requested blocks
  std::uint64_t prefix_hits = 0;  // hits whose earlier blocks of the same request were hits too
  std::uint64_t insertions = 0;
  std::uint64_t evictions = 0;
  std::uint64_t memory_bytes = 0;  // bookkeeping of the policy at the end

  [[nodiscard]] double hit_ratio() const {
    return references == 0 ? 0 : static_cast<double>(prefix_hits) / static_cast<double>(references);
  }
};

// REQUIRES: the policy is empty and capacity_blocks > 0.
[[nodiscard]] tl::expected<PolicyRun, std::string> run_policy(const Trace& trace,
                                                              std::size_t capacity_blocks,
                                                              agent::EvictionPolicy& policy);

}  // namespace mc::ctl
