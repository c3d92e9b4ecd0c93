// SPDX-License-Identifier: Apache-2.0
//
// What it is: memory that peers may reach, and the hook by which its owner stays master of it.
//   The owner of a pool decides at each access whether the bytes are still those meant, and keeps
//   them in place while they leave. Pools are registered kRemoteRead only; kRemoteWrite is for
//   memory that a client handed in for one-sided writes.
// Threads: the transport's. Owns: a RegionTable owns names, never memory.
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

// What a peer wants to do with bytes of a region.
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
  // kDone: until unpin(ticket) the bytes stay what they are (read), or are the peer's (write).
  // Else the access is refused with that outcome: kStale for another generation, kBusy for "as
  // much is pinned as may be". Large transfers ask once for each slice.
  virtual Outcome pin(const Access& access, std::uint64_t* ticket) = 0;
  // A write has come whole: comes before unpin(), and not for one that broke off. What else than
  // kDone is what its peer is told.
  virtual Outcome settle(std::uint64_t ticket) {
    static_cast<void>(ticket);
    return Outcome::kDone;
  }
  // The kernel or the device no longer looks at the bytes.
  virtual void unpin(std::uint64_t ticket) = 0;
};

struct RegionSpec {
  MemoryKind kind = MemoryKind::kHost;
  std::byte* data = nullptr;
  std::uint64_t size_bytes = 0;
  std::uint32_t rights = 0;      // 0: only for pieces of our own operations
  RegionGuard* guard = nullptr;  // none: its bytes never move and any generation will do
  int fd = -1;                   // the memory file or DMA-BUF behind it, where a transport wants it
  // Only parts of it have memory: those that set_backed() has named last. Nothing else is accessed.
  bool sparse = false;
  // Not 0: by which peers can ask for it too, where descriptions do not hold for ever.
  std::uint64_t name = 0;
};

struct MemoryRange {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  bool operator==(const MemoryRange&) const = default;
};

// The regions of one transport, for those whose serving side is a program.
class RegionTable {
 public:
  // salt: differs between incarnations, so that names of an earlier one are stale.
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
  // The guard's word on a write that has come whole.
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
