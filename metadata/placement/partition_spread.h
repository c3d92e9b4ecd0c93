// SPDX-License-Identifier: Apache-2.0
//
// Assigns partitions to masters, from the list of masters and the present leaders in
//   the cluster store. A leader keeps the partitions up to a fair part. Surplus and vacant
//   partitions go to masters with fewer. The parts differ by at most one.
// Threads: any; a pure function. All masters compute the same result.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace mc::metadata {

// leaders: of each partition; empty: no leader. Returns the master of each partition; empty: there
// are no masters. A leader that is not among the masters keeps the partitions, because the lease
// has not ended.
std::vector<std::string> spread_partitions(std::span<const std::string> masters,
                                           std::span<const std::string> leaders);

}  // namespace mc::metadata
