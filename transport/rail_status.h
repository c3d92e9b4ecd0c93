// SPDX-License-Identifier: Apache-2.0
//
// The state of a rail, as a transport reports the state for metrics.
// Threads: values.
#pragma once

#include <cstdint>

namespace mc::transport {

enum class RailHealth : std::uint8_t { kDown, kRecovering, kSlow, kUp };
const char* rail_health_name(RailHealth health);

// The state of a rail, for metrics.
struct RailStatus {
  RailHealth health = RailHealth::kDown;
  double bytes_per_ns = 0;  // measured, or RailTraits::bytes_per_ns
  std::uint64_t latency_ns = 0;
  std::uint64_t outstanding_bytes = 0;
  std::uint64_t window_bytes = 0;
  std::uint64_t done_bytes = 0;
  std::uint64_t done_slices = 0;
  std::uint64_t failures = 0;           // counts on_failed()
  std::uint64_t taken_back_slices = 0;  // outstanding at on_failed()
};

}  // namespace mc::transport
