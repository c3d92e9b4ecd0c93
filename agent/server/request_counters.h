// SPDX-License-Identifier: Apache-2.0
//
// The counts of the clients' requests that have ended, and the durations of the requests that have
//   waited.
// Threads: the agent's loop.
// Owns: the counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "agent/server/durations.h"
#include "mc/status.h"
#include "shm/messages.h"

namespace mc::agent {

struct RequestCounters {
  static constexpr std::size_t kOps = shm::kLastOp + 1;
  static constexpr std::size_t kStatuses = 128;  // larger than each mc_status

  // The index is the operation, then the status. Malformed requests count as kNoop.
  std::array<std::array<std::uint64_t, kStatuses>, kOps> ended{};
  // The requests that have waited for room or for the cluster.
  std::array<DurationCounts, kOps> waited{};

  void count(std::uint16_t op, mc_status status) {
    ++ended[op < kOps ? op : 0]
           [std::min<std::size_t>(static_cast<unsigned>(status), kStatuses - 1)];
  }
};

}  // namespace mc::agent
