// SPDX-License-Identifier: Apache-2.0
//
// Memory that peers may reach, and the hook by which the owner keeps control of the
//   memory. At each access, the owner of a pool decides whether the bytes still belong to the meant
//   object, and keeps the bytes in place until all have left. Pools are registered with kRemoteRead
//   only; kRemoteWrite is for memory that a client handed in for one-sided writes.
// Threads: the transport's.
// Owns: a RegionTable owns names, never memory.
// Trusts: nothing in an Access: region, range and rights are checked before the guard is asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "mc/status.h"
#include "transport/link.h"
#include "transport/outcome.h"

namespace mc::transport {

using RegionId = std::uint64_t;
inline constexpr RegionId kNoRegion = 0;

enum class MemoryKind : std::uint8_t { kHost = 0, kDevice = 1, kFile = 2 };

inline constexpr std::uint32_t kRemoteRead = 1;
inline constexpr std::uint32_t kRemoteWrite = 2;
inline constexpr std::uint32_t kKnownRights = 3;

// A peer's request to read or write bytes of a region.
struct Access {
  NodeId node = 0;
  RegionId region = kNoRegion;
  std::uint64_t generation = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  bool write = false;
};

class RegionGuard {
 public:
  virtual ~RegionGuard() = default;
  // kDone: until unpin(ticket), the bytes do not change (read), or belong to the peer (write).
  // Another outcome refuses the access: kStale for another generation, kBusy if the limit of pinned
  // bytes is reached. A large transfer asks once for each slice.
  virtual Outcome pin(const Access& access, std::uint64_t* ticket) = 0;
  // All bytes of a write have arrived. The call comes before unpin(), and only for complete writes.
  // The peer gets the returned outcome.
  virtual Outcome settle(std::uint64_t ticket) {
    static_cast<void>(ticket);
    return Outcome::kDone;
  }
  // The kernel or the device no longer uses the bytes.
  virtual void unpin(std::uint64_t ticket) = 0;
};

struct RegionSpec {
  MemoryKind kind = MemoryKind::kHost;
  std::byte* data = nullptr;
  std::uint64_t size_bytes = 0;
  std::uint32_t rights = 0;      // 0: only for pieces of this transport's own operations
  RegionGuard* guard = nullptr;  // null: the bytes never move, and every generation is right
  int fd = -1;                   // DMA-BUF of device memory, if a transport needs it
  // Only the parts that the last set_backed() named have memory. Other parts are not accessed.
  bool sparse = false;
  // No device may reach the memory by itself: the guard fills the memory at each access, or the memory may not be
  // pinned.
  bool two_sided_only = false;
  // Not 0: another name by which peers can ask for the region, where descriptions expire.
  std::uint64_t name = 0;
};

struct MemoryRange {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  bool operator==(const MemoryRange&) const = default;
};

// The regions of a transport whose serving side is a program.
class RegionTable {
 public:
  // salt: differs between incarnations, so that names of an earlier incarnation are stale.
  explicit RegionTable(std::uint64_t salt) : salt_(salt) {}

  Result<RegionId> add(const RegionSpec& spec);
  // False while pins are held.
  bool remove(RegionId id);

  struct Grant {
    std::byte* data = nullptr;
    RegionId region = kNoRegion;
    std::uint64_t ticket = 0;
    std::uint64_t size_bytes = 0;
  };
  // Checks and pins. On kDone release() must follow.
  Outcome admit(const Access& access, Grant* grant);
  // The guard's answer to a write whose bytes have all arrived.
  Outcome settle(const Grant& grant);
  void release(const Grant& grant);

  // 24 bytes: region, size, rights.
  Result<std::vector<std::byte>> describe(RegionId id) const;
  static std::optional<RegionId> decode_descriptor(std::span<const std::byte> bytes);

 private:
  struct Row {
    RegionSpec spec;
    std::uint32_t pins = 0;
    bool closed = false;
  };
  std::uint64_t salt_;
  std::uint64_t next_ = 1;
  std::unordered_map<RegionId, Row> rows_;
};

}  // namespace mc::transport
