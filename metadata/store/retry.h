// SPDX-License-Identifier: Apache-2.0
//
// Retries with growing pauses until the deadline. A call so survives an unavailable
//   server and a failover.
// Threads: the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

#include "libmc/base/clock.h"
#include "metadata/store/cluster_store.h"

namespace mc::metadata {

inline constexpr std::uint64_t kShortestPauseNs = 20 * kMs;
inline constexpr std::uint64_t kLongestPauseNs = 500 * kMs;

// Repeats attempt(deadline_ns) after kStoreUnavailable and, if the call is repeatable (a read),
// after kOutcomeUnknown. Returns the last failure with `name` in front.
template <typename T, typename Attempt>
Result<T> until_deadline(const std::string& name, bool repeatable, std::uint64_t deadline_ns,
                         Attempt attempt) {
  for (std::uint64_t pause_ns = kShortestPauseNs;;
       pause_ns = std::min(pause_ns * 2, kLongestPauseNs)) {
    if (now_ns() >= deadline_ns) {
      return fail(kStoreUnavailable, name + ": the deadline passed before the call");
    }
    Result<T> result = attempt(deadline_ns);
    if (result) return result;
    const Status& status = result.error();
    const bool again =
        status.code() == kStoreUnavailable || (repeatable && status.code() == kOutcomeUnknown);
    if (again && now_ns() + pause_ns < deadline_ns) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
      continue;
    }
    if (!again && status.code() != kOutcomeUnknown) {
      return fail(status.code(), name + ": " + std::string(status.text()));
    }
    if (again) {
      return fail(kStoreUnavailable, name + ": " + std::string(status.text()) +
                                         "; is the server up and reachable from here?");
    }
    return fail(kOutcomeUnknown, name + ": " + std::string(status.text()) +
                                     "; the write may have taken effect: read before a retry");
  }
}

}  // namespace mc::metadata
