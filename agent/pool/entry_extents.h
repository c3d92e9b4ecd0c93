// SPDX-License-Identifier: Apache-2.0
//
// The extents of the index's entries: where the bytes of each reservation and object
//   lie, and the allocator's name of each extent. The index file holds offsets and lengths; the
//   names of the allocator's blocks are private and rebuilt after a crash.
// Threads: the agent's loop.
// Owns: the block names. Index and pool belong to the ObjectStore.
// Trusts: its caller; Recovery checks the entries of an earlier agent.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "agent/pool/extents/extent_pool.h"
#include "agent/pool/index/object_index.h"

namespace mc::agent {

class EntryExtents {
 public:
  EntryExtents(ObjectIndex& index, ExtentPool& pool) : index_(index), pool_(pool) {}

  // Writes length and extents of an entry that no reader can see yet. Returns false, and keeps the
  // extents with the caller, if memory for the record of several extents is short.
  bool assign(std::uint32_t entry, const PoolExtents& extents, std::uint64_t length);
  // Keeps the first bytes of an unpublished entry. Returns false if memory is short.
  bool trim(std::uint32_t entry, std::uint64_t length);
  PoolExtents of(std::uint32_t entry) const;
  // Frees extents, key record and entry. REQUIRES: no reader can hold a pin on the entry.
  void free(std::uint32_t entry);
  // Prefetch the memory that free() needs: the entry, then the block, then the block's neighbours.
  // Each step needs the memory of the step before.
  void prefetch_entry(std::uint32_t entry) const {
    __builtin_prefetch(&index_.entry(entry));
    __builtin_prefetch(&blocks_[entry]);
  }
  void prefetch_block(std::uint32_t entry) const {
    if (has_one_extent(entry)) pool_.prefetch(only_extent(entry));
  }
  void prefetch_neighbours(std::uint32_t entry) const {
    if (has_one_extent(entry)) pool_.prefetch_neighbours(only_extent(entry));
  }

  // The entry's bytes as a single stretch. REQUIRES: the range lies within the entry.
  void read(std::uint32_t entry, std::uint64_t offset, std::span<std::byte> to) const;
  void write(std::uint32_t entry, std::uint64_t offset, std::span<const std::byte> from);
  // Bytes of extents that lie, partly or wholly, in the tail that a shrink removes.
  std::uint64_t tail_bytes(std::uint32_t entry) const;

  // ---- Recovery
  // Makes room for the names of this many entries.
  void expect(std::size_t entry_count) { blocks_.resize(entry_count, kNoBlock); }
  // Notes extent number `part` of `count`; block is kNoBlock if the claim was refused.
  void claimed(std::uint32_t entry, std::uint32_t part, std::uint32_t count, BlockId block);
  // Frees the claimed extents of an entry that is set aside.
  void unclaim(std::uint32_t entry);

  std::uint64_t memory_bytes() const { return blocks_.capacity() * sizeof(BlockId); }

 private:
  bool has_one_extent(std::uint32_t entry) const {
    return key_field(index_.entry(entry)).extent_count == 1;
  }
  PoolExtent only_extent(std::uint32_t entry) const {
    return {index_.entry(entry).extent.load_relaxed(), 0, blocks_[entry]};
  }
  template <typename Step>
  void for_stretch(std::uint32_t entry, std::uint64_t offset, std::uint64_t bytes, Step step) const;

  ObjectIndex& index_;
  ExtentPool& pool_;
  std::vector<BlockId> blocks_;  // by entry: the block of the first extent
  std::unordered_map<std::uint32_t, std::vector<BlockId>> many_blocks_;  // of several extents
};

}  // namespace mc::agent
