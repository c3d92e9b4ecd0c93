// SPDX-License-Identifier: Apache-2.0
//
// The calls: their numbers on the wire and the limits of their bodies.
// Threads: constants.
// Trusts: nothing. An unknown number has no limits and is refused.
#pragma once

#include <cstdint>

#include "metadata/wire/wire_limits.h"

namespace mc::metadata::wire {

enum class Method : std::uint8_t {
  // To a master.
  kJoin = 1,
  kHeartbeat = 2,
  kLeave = 3,  // empty, answered empty
  kReport = 4,
  kPublish = 5,
  kLocate = 6,
  kChooseHolders = 7,
  kRemove = 8,
  kRemoveMatching = 9,
  kList = 10,
  kMembers = 11,  // empty
  kStats = 12,    // empty
  kDrain = 13,
  kAttend = 14,
  kRelocate = 15,    // answered with the RelocationId of a task, which then runs
  kRelocation = 16,  // RelocationId
  // Answered when all keys have the wanted holders or are gone, at the deadline at the latest.
  kAwaitReplicas = 17,
  // To an agent.
  kDrop = 32,          // answered empty when the agent holds none of the objects any more
  kDropMatching = 33,  // Match; RemoveMatchingAnswer
  kListLocal = 34,     // Match; ListAnswer
  kCopy = 35,          // answered empty after the copy was published
};

struct BodyLimits {
  std::size_t request_bytes = 0;
  std::size_t answer_bytes = 0;
  bool known = false;
};

constexpr BodyLimits body_limits(std::uint8_t method) {
  switch (static_cast<Method>(method)) {
    case Method::kAttend:
    case Method::kJoin:
    case Method::kLeave:
    case Method::kReport:
    case Method::kDrain:
    case Method::kRelocate:
    case Method::kRelocation:
    case Method::kCopy:
    case Method::kStats:
      return {kMaxSmallBody, kMaxSmallBody, true};
    case Method::kPublish:
    case Method::kRemove:
    case Method::kAwaitReplicas:
    case Method::kDrop:
      return {kMaxBatchBody, kMaxBatchBody, true};
    case Method::kChooseHolders:
    case Method::kLocate:
      return {kMaxBatchBody, kMaxLocateAnswerBody, true};
    case Method::kRemoveMatching:
    case Method::kDropMatching:
      return {kMaxMatchBody, kMaxSmallBody, true};
    case Method::kList:
    case Method::kListLocal:
      return {kMaxMatchBody, kMaxListBody, true};
    case Method::kHeartbeat:
    case Method::kMembers:
      return {kMaxSmallBody, kMaxMembersBody, true};
  }
  return {};
}

}  // namespace mc::metadata::wire
