// SPDX-License-Identifier: Apache-2.0
//
// An engine's region table, as peers read it. The table lies in memory that is
//   registered for remote reads, so the engine answers no questions and pushes no changes.
//
//   0       8         10            12      16           24         32      64        112
//   │ magic │ version │ entry bytes │ count │ generation │ checksum │ nonce │ entry 0 │ entry 1 …
//   entry   0         8      16       20  24
//           │ address │ size │ rights │ order │ descriptor (24) │
//
// The highest bit of order says that only the owner reaches the memory (device memory), also within
// the host. The owner changes the table in place: first the generation, then the entries, last the
// checksum. A reader that meets a change finds a wrong checksum and reads again.
//
// Threads: under the engine's lock.
// Owns: values. DirectoryWriter owns the memory that peers read.
// Trusts: no table. Count, order, overlap and rights are checked.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mc/limits.h"
#include "transport/engine/wire/engine_descriptor.h"

namespace mc::transfer {

inline constexpr std::uint64_t kDirectoryMagic = 0x3152494452434dull;  // "MCRDIR1" as bytes
inline constexpr std::uint16_t kDirectoryVersion = 1;
inline constexpr std::size_t kDirectoryHeadBytes = 64;
inline constexpr std::size_t kDirectoryEntryBytes = 48;
inline constexpr std::size_t kMaxDirectoryBytes =
    kDirectoryHeadBytes + MC_MAX_TRANSFER_REGIONS * kDirectoryEntryBytes;

struct DirectoryHead {
  std::uint64_t magic;
  std::uint16_t version;
  std::uint16_t entry_bytes;
  std::uint32_t count;
  std::uint64_t generation;  // grows with every change
  std::uint64_t checksum;    // XXH3-64 of head and entries, computed with checksum = 0
  Nonce nonce;
};
static_assert(sizeof(DirectoryHead) == kDirectoryHeadBytes);

inline constexpr std::uint32_t kByOwnerOnly = 1u << 31;

struct DirectoryEntry {
  std::uint64_t address;
  std::uint64_t size_bytes;
  std::uint32_t rights;
  std::uint32_t order;  // registrations of the owner, numbered from the first
  RegionText descriptor;

  bool by_owner_only() const { return (order & kByOwnerOnly) != 0; }
};
static_assert(sizeof(DirectoryEntry) == kDirectoryEntryBytes);

struct Directory {
  std::uint64_t generation = 0;
  std::vector<DirectoryEntry> entries;  // sorted by address, without overlaps

  // The entry that contains the whole range; null: none does.
  const DirectoryEntry* find(std::uint64_t address, std::uint64_t size_bytes) const;
};

// The size of the table, from the head alone. Errors: MC_CORRUPT, MC_VERSION_MISMATCH.
Result<std::size_t> directory_size(std::span<const std::byte> head);
// Errors: MC_BUSY (the owner was changing the table; read again), MC_CORRUPT, MC_VERSION_MISMATCH.
Result<Directory> decode_directory(std::span<const std::byte> bytes);

class DirectoryWriter {
 public:
  explicit DirectoryWriter(const Nonce& nonce);
  // entries: sorted by address. REQUIRES: at most MC_MAX_TRANSFER_REGIONS.
  void publish(std::span<const DirectoryEntry> entries);
  std::byte* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace mc::transfer
