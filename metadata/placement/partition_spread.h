// SPDX-License-Identifier: Apache-2.0
//
// What it is: which master should lead which partition, from what all of them read in the cluster
//   store: who is there, and who leads what. Whoever leads goes on, up to its part; what is too
//   much for it, or led by nobody, goes to those who have less. The parts differ by one at most.
// Threads: any; a pure function: all masters come to the same result.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace mc::metadata {

// leaders: of each partition; empty: nobody. Gives the master of each partition; empty: there is none.
// A leader that is not among the masters keeps what it has: its lease has not ended.
std::vector<std::string> spread_partitions(std::span<const std::string> masters,
                                           std::span<const std::string> leaders);

}  // namespace mc::metadata
