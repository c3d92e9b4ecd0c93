// SPDX-License-Identifier: Apache-2.0
//
// What it is: the two curves a policy's hits are judged against: plain LRU and the offline optimum.
// Threads: any; the functions share nothing.
// Owns: nothing.
// Trusts: a Trace that read_trace() returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ctl/replay/trace.h"

namespace mc::ctl {

// Both return prefix hits: block references served while every earlier block of the same request
// also hit. capacity_blocks: how many blocks the cache holds.

// Least recently used; within a request children age before their parents.
[[nodiscard]] std::uint64_t lru_prefix_hits(const Trace& trace, std::size_t capacity_blocks);

// Belady's MIN with bypass: gives up the block whose next use is farthest, which may be the one
// just referenced. L. A. Belady, "A study of replacement algorithms for a virtual-storage
// computer", IBM Systems Journal 5(2), 1966.
[[nodiscard]] std::uint64_t optimal_prefix_hits(const Trace& trace, std::size_t capacity_blocks);

}  // namespace mc::ctl
