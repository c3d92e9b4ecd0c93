// SPDX-License-Identifier: Apache-2.0
//
// What it is: how an operation ended, in one byte that also travels between hosts (so values are
// never renumbered). Grouped by what is broken for good: the call, the object, the link.
// Threads: values.
#pragma once

#include <cstdint>
#include <string_view>

#include "mc/status.h"

namespace mc::transport {

enum class Outcome : std::uint8_t {
  kDone = 0,
  // The call: the same one fails again.
  kInvalid = 1,      // its arguments; or a range outside the region
  kUnsupported = 2,  // this transport, or this memory, cannot
  kRefused = 3,      // the region was not registered for that
  // The object: ask again where the bytes are.
  kStale = 4,  // no such region, or another generation of bytes there
  // This time: another try may do.
  kBusy = 5,
  kTimedOut = 6,
  kCancelled = 7,
  // The link.
  kPeerLost = 8,
};
inline constexpr std::uint8_t kLastOutcome = 8;

std::string_view outcome_name(Outcome outcome);
// For users: code, cause and remedy.
Status to_status(Outcome outcome);

}  // namespace mc::transport
