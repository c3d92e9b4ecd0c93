// SPDX-License-Identifier: Apache-2.0
#include "transport/outcome.h"

namespace mc::transport {

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return "done";
    case Outcome::kInvalid:
      return "invalid";
    case Outcome::kUnsupported:
      return "unsupported";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kStale:
      return "stale";
    case Outcome::kBusy:
      return "busy";
    case Outcome::kTimedOut:
      return "timed_out";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kPeerLost:
      return "peer_lost";
    case Outcome::kCorrupt:
      return "corrupt";
  }
  return "unknown";
}

Status to_status(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return {};
    case Outcome::kInvalid:
      return {MC_INVALID_ARGUMENT, "a range lies outside the peer's region, or a limit was passed"};
    case Outcome::kUnsupported:
      return {MC_UNSUPPORTED, "this transport cannot do that; choose one by its capabilities"};
    case Outcome::kRefused:
      return {MC_PERMISSION_DENIED, "the peer did not register that memory for such access"};
    case Outcome::kStale:
      return {MC_NOT_FOUND, "the peer's memory holds other bytes by now; look the key up again"};
    case Outcome::kBusy:
      return {MC_BUSY, "the peer is busy; try again"};
    case Outcome::kTimedOut:
      return {MC_TIMEOUT, "the transfer did not end by its deadline"};
    case Outcome::kCancelled:
      return {MC_CANCELLED};
    case Outcome::kPeerLost:
      return {MC_AGENT_UNAVAILABLE, "no path to the peer is left; try another replica"};
    case Outcome::kCorrupt:
      return {MC_CORRUPT,
              "the bytes at the peer differ from those that were written; write them again"};
  }
  return {MC_INTERNAL};
}

}  // namespace mc::transport
