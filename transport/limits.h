// SPDX-License-Identifier: Apache-2.0
//
// What it is: every limit of the data network on one page. What lies beyond is refused before
// anything is allocated; tests try each limit at, below and above.
// Threads: constants.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mc::transport {

inline constexpr std::uint32_t kMaxOperations = 4096;  // in flight in one transport
inline constexpr std::uint32_t kMaxPieces = 1024;      // local pieces of one operation
inline constexpr std::uint64_t kMaxOperationBytes = 1ull << 40;
inline constexpr std::uint32_t kMaxNotificationBytes = 8192;
inline constexpr std::uint32_t kMaxRegions = 4096;  // registered in one transport
inline constexpr std::uint32_t kMaxPeers = 4096;
inline constexpr std::uint32_t kMaxLanes = 17;  // per peer: 16 for bulk and a small one
inline constexpr std::uint32_t kMaxDescriptorBytes = 16 * 1024;

inline constexpr std::uint32_t kMinSliceBytes = 64 * 1024;
inline constexpr std::uint32_t kMaxSliceBytes = 1024 * 1024;
inline constexpr std::uint32_t kMaxLaneRequests = 512;  // asked and not yet answered, per lane
// Asked of all peers together and not yet here, so that many do not overrun one link.
inline constexpr std::uint64_t kMaxAskedBytes = 64ull << 20;
// The same by one NIC: twice what one peer may have under way, so that one that brings nothing does
// not hold up all others. 400 Gb/s bring it in 168 µs.
inline constexpr std::uint64_t kMaxNicAskedBytes = 8ull << 20;
inline constexpr std::uint32_t kMaxServedLanes = 16384;
inline constexpr std::uint32_t kMaxPendingNotifications = 1024;  // arrived, not yet polled

// Sign of life. A lane that is silent for kLaneDeadNs while it owes an answer has failed; a peer
// not heard of for kPeerLostNs that has no lane is lost. Below the second that design.md promises.
inline constexpr std::uint64_t kHeartbeatNs = 200'000'000;
inline constexpr std::uint64_t kLaneDeadNs = 600'000'000;
inline constexpr std::uint64_t kPeerLostNs = 850'000'000;
inline constexpr std::uint64_t kRedialMinNs = 10'000'000;  // doubles up to kRedialMaxNs
inline constexpr std::uint64_t kRedialMaxNs = 1'000'000'000;
// A rail that times its slices and brings none for so long, although it owes some, is left.
inline constexpr std::uint64_t kRailStallNs = 5'000'000;
// The longest that a slice on its way out may hold its bytes; then its lane is cut.
inline constexpr std::uint64_t kMaxPinNs = 5'000'000'000;

inline constexpr std::uint32_t kMaxPendingHandshakes = 256;
inline constexpr std::uint64_t kHandshakeTimeoutNs = 1'000'000'000;

}  // namespace mc::transport
