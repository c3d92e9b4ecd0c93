// SPDX-License-Identifier: Apache-2.0
//
// The end of an operation, in a byte that also travels between hosts. So a value
//   never gets another number. The groups name the part that is broken for good: the call, the
//   object, the link.
// Threads: values.
#pragma once

#include <cstdint>
#include <string_view>

#include "mc/status.h"

namespace mc::transport {

enum class Outcome : std::uint8_t {
  kDone = 0,
  // The call: the same call fails again.
  kInvalid = 1,      // bad arguments, or a range outside the region
  kUnsupported = 2,  // not by this transport, or not with this memory
  kRefused = 3,      // the region was not registered for the operation
  // The object: ask again for its place.
  kStale = 4,  // no such region, or another generation of bytes there
  // This time: another try may succeed.
  kBusy = 5,
  kTimedOut = 6,
  kCancelled = 7,
  // The link.
  kPeerLost = 8,
  // The object.
  kCorrupt = 9,  // the bytes differ from their checksum
};
inline constexpr std::uint8_t kLastOutcome = 9;

std::string_view outcome_name(Outcome outcome);
// For users: code, cause and remedy.
Status to_status(Outcome outcome);

}  // namespace mc::transport
