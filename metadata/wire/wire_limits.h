// SPDX-License-Identifier: Apache-2.0
//
// Every bound of the wire between agents, tools and masters. A message beyond a bound
//   is refused before memory is allocated.
// Threads: constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mc/limits.h"

namespace mc::metadata::wire {

inline constexpr std::size_t kMaxItems = MC_MAX_BATCH_ITEMS;  // keys of one message
inline constexpr std::size_t kMaxListed = 4096;               // keys of a listing
inline constexpr std::size_t kMaxHoldersPerKey = 32;
inline constexpr std::size_t kMaxAddressBytes = 255;
inline constexpr std::size_t kMaxPatternBytes = 4096;
inline constexpr std::size_t kMaxUnreachable = 64;  // peers' reports in one heartbeat
inline constexpr std::size_t kMaxNamedNodes = 64;   // preferred, or excluded
inline constexpr std::size_t kMaxMembers = 4096;
inline constexpr std::size_t kMaxDown = 1024;  // members that are down, in one answer
inline constexpr std::size_t kMaxRefusalBytes = 1024;
inline constexpr std::uint64_t kMaxCapacityBytes = 1ull << 50;
inline constexpr std::uint32_t kMaxLeaseMs = 600u * 1000u;
inline constexpr std::uint32_t kMaxPromiseMs = 2 * kMaxLeaseMs;
inline constexpr std::uint32_t kMaxWaitMs = 3600u * 1000u;

// Bodies. A batch of kMaxItems fits, with room for fields of later versions.
inline constexpr std::size_t kMaxSmallBody = 2048;
inline constexpr std::size_t kMaxMatchBody = 8192;
inline constexpr std::size_t kMaxBatchBody = 64u << 10;
inline constexpr std::size_t kMaxLocateAnswerBody = 320u << 10;  // 32 holders of every key
inline constexpr std::size_t kMaxListBody = 1280u << 10;
inline constexpr std::size_t kListedBytes =
    512u << 10;  // of the keys in one answer, with 16 beside each
inline constexpr std::size_t kMaxMembersBody = 2u << 20;

}  // namespace mc::metadata::wire
