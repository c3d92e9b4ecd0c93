// SPDX-License-Identifier: Apache-2.0
//
// Every limit of the data network on one page. A request beyond a limit is refused
//   before memory is allocated. Tests try each limit at, below and above.
// Threads: constants.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mc::transport {

inline constexpr std::uint32_t kMaxOperations = 4096;  // in flight in a transport
inline constexpr std::uint32_t kMaxPieces = 1024;      // local pieces of an operation
inline constexpr std::uint64_t kMaxOperationBytes = 1ull << 40;
inline constexpr std::uint32_t kMaxNotificationBytes = 32 * 1024;
inline constexpr std::uint32_t kMaxRegions = 4096;  // registered in a transport
inline constexpr std::uint32_t kMaxPeers = 4096;
inline constexpr std::uint32_t kMaxLanes = 17;  // per peer: 16 bulk lanes and a small lane
inline constexpr std::uint32_t kMaxDescriptorBytes = 16 * 1024;

inline constexpr std::uint32_t kMinSliceBytes = 64 * 1024;
inline constexpr std::uint32_t kMaxSliceBytes = 1024 * 1024;
inline constexpr std::uint32_t kMaxLaneRequests = 512;  // asked and not yet answered, per lane
// Bytes that are asked of all peers together and not here yet, so that many peers cannot overrun
// a link.
inline constexpr std::uint64_t kMaxAskedBytes = 64ull << 20;
// The same limit for a NIC: twice the bytes that one peer may have under way, so that a peer that
// sends nothing does not block all other peers. A NIC of 400 Gb/s receives these bytes in 168 µs.
inline constexpr std::uint64_t kMaxNicAskedBytes = 8ull << 20;
inline constexpr std::uint32_t kMaxServedLanes = 16384;
inline constexpr std::uint32_t kMaxPendingNotifications = 1024;  // arrived, not yet polled

// Signs of life. A lane that owes an answer and is silent for kLaneDeadNs has failed. A peer
// without a lane that was not heard for kPeerLostNs is lost.
inline constexpr std::uint64_t kHeartbeatNs = 200'000'000;
inline constexpr std::uint64_t kLaneDeadNs = 600'000'000;
inline constexpr std::uint64_t kPeerLostNs = 850'000'000;
inline constexpr std::uint64_t kRedialMinNs = 10'000'000;  // doubles up to kRedialMaxNs
inline constexpr std::uint64_t kRedialMaxNs = 1'000'000'000;
// A rail that times slices is left if no slice arrives for so long although slices are under
// way.
inline constexpr std::uint64_t kRailStallNs = 5'000'000;
// The longest time for which a slice on its way out may be pinned; then the lane is cut.
inline constexpr std::uint64_t kMaxPinNs = 5'000'000'000;

inline constexpr std::uint32_t kMaxPendingHandshakes = 256;
inline constexpr std::uint64_t kHandshakeTimeoutNs = 1'000'000'000;

}  // namespace mc::transport
