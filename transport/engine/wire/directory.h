// SPDX-License-Identifier: Apache-2.0
//
// What it is: an engine's region table as peers read it: from memory that is registered for remote
//   reading, so nobody has to be asked and nothing pushed.
//
//   0       8         10            12      16           24         32      64        112
//   │ magic │ version │ entry bytes │ count │ generation │ checksum │ nonce │ entry 0 │ entry 1 …
//   entry   0         8      16       20  24
//           │ address │ size │ rights │ order │ descriptor (24) │
//
//   The highest bit of order: only its owner reaches the memory (a device's), within the host, too.
//   The owner changes it in place: generation first, then entries, checksum last. A reader that
//   meets a change sees a checksum that does not match, and reads again.
// Threads: the engine's lock. Owns: values; DirectoryWriter owns the memory that peers read.
// Trusts: nothing that was read: count, order, overlap and rights are checked.
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
  std::uint64_t checksum;    // XXH3-64 of head and entries, with this field 0
  Nonce nonce;
};
static_assert(sizeof(DirectoryHead) == kDirectoryHeadBytes);

inline constexpr std::uint32_t kByOwnerOnly = 1u << 31;

struct DirectoryEntry {
  std::uint64_t address;
  std::uint64_t size_bytes;
  std::uint32_t rights;
  std::uint32_t order;  // among those of its owner: the first that was registered is the lowest
  RegionText descriptor;

  bool by_owner_only() const { return (order & kByOwnerOnly) != 0; }
};
static_assert(sizeof(DirectoryEntry) == kDirectoryEntryBytes);

struct Directory {
  std::uint64_t generation = 0;
  std::vector<DirectoryEntry> entries;  // by address, none overlaps another

  // The entry that holds the whole range; null: none does.
  const DirectoryEntry* find(std::uint64_t address, std::uint64_t size_bytes) const;
};

// How many bytes the table has, from its head alone. Errors: MC_CORRUPT, MC_VERSION_MISMATCH.
Result<std::size_t> directory_size(std::span<const std::byte> head);
// MC_BUSY: it was being changed; read again. Else MC_CORRUPT, MC_VERSION_MISMATCH.
Result<Directory> decode_directory(std::span<const std::byte> bytes);

class DirectoryWriter {
 public:
  explicit DirectoryWriter(const Nonce& nonce);
  // entries by address. REQUIRES: at most MC_MAX_TRANSFER_REGIONS.
  void publish(std::span<const DirectoryEntry> entries);
  std::byte* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace mc::transfer
