// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a pool: one sparse memory file cut into arenas, with an allocator each.
//   A thread takes memory chunk by chunk, and each chunk serves at once. A shrink gives memory back
//   from the tail of each arena.
//
//   file   0          stride      2 x stride              max_bytes
//          ├─ arena 0 ─┄┄┄├─ arena 1 ─┄┄┄├─ …    ─ reserved   ┄ hole
//
// Threads: the agent's loop; the reserving thread is private.
// Owns: file, mapping, allocators.
// Trusts: its caller; at recovery claim_all() refuses overlapping ranges.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/pool/extents/extent_allocator.h"
#include "libmc/base/memory_file.h"
#include "shm/layout.h"

namespace mc::agent {

// A piece of the pool: an extent and the allocator's name of the extent.
struct PoolExtent {
  std::uint64_t offset_bytes;
  std::uint64_t length_bytes;  // whole granules
  BlockId node;
};

struct PoolExtents {
  PoolExtents() {}  // sets only count: extents are copied on every put
  std::uint32_t count = 0;
  PoolExtent at[MC_MAX_EXTENTS];
  std::uint64_t bytes() const;
};

// Calls take(offset in the pool, bytes) for each contiguous piece of a range of an object.
template <typename Take>
void each_piece(const PoolExtents& extents, std::uint64_t from, std::uint64_t bytes, Take take) {
  std::uint64_t begins = 0;
  for (std::uint32_t i = 0; i < extents.count && bytes > 0; ++i) {
    const std::uint64_t ends = begins + extents.at[i].length_bytes;
    if (from < ends) {
      const std::uint64_t size = std::min(ends - from, bytes);
      take(extents.at[i].offset_bytes + (from - begins), size);
      from += size;
      bytes -= size;
    }
    begins = ends;
  }
}

class ExtentPool {
 public:
  // header: of the index file, which keeps the sizes for the next agent.
  static Result<std::unique_ptr<ExtentPool>> create(shm::IndexHeader* header,
                                                    std::uint64_t pool_bytes,
                                                    std::uint64_t max_bytes, std::uint32_t arenas,
                                                    HugePages huge);
  // Takes over the file of an earlier agent; the header gives the arenas, and all space is free. The
  // size of a resize stays, unless pool_bytes differs from the pool_bytes of the last start.
  static Result<std::unique_ptr<ExtentPool>> adopt(shm::IndexHeader* header, MemoryFile file,
                                                   std::uint64_t pool_bytes, HugePages huge);
  // The largest sizes of the parts of the pool file of this index: an arena each.
  static std::vector<std::uint64_t> part_bytes(const shm::IndexHeader& header);
  ~ExtentPool();

  const MemoryFile& file() const { return file_; }
  std::byte* data() const { return mapping_.data(); }
  // Readable when a chunk has been reserved; then call on_chunk().
  int event_fd() const { return chunk_event_.get(); }
  // Returns true if the pool has grown.
  bool on_chunk();

  // Allocates a single extent if possible; else, with may_split, up to MC_MAX_EXTENTS.
  bool allocate(std::uint64_t bytes, bool may_split, PoolExtents& extents);
  void free(const PoolExtent& extent);
  // Prefetch the memory that free() needs: first the extent's node, some time later the neighbours.
  void prefetch(const PoolExtent& extent) const {
    arenas_[extent.offset_bytes / stride_]->prefetch(extent.node);
  }
  void prefetch_neighbours(const PoolExtent& extent) const {
    arenas_[extent.offset_bytes / stride_]->prefetch_neighbours(extent.node);
  }
  // Keeps the first bytes of the extents.
  void trim(PoolExtents& extents, std::uint64_t bytes);
  // ---- Making room at one place (clearing.h): an extent grows over the neighbours.
  using Side = ExtentAllocator::Side;
  using Neighbour = ExtentAllocator::Neighbour;
  // Sets the owner of an extent, by number.
  void set_owner(const PoolExtent& extent, std::uint32_t owner) {
    arenas_[extent.offset_bytes / stride_]->set_owner(extent.node, owner);
  }
  // Returns the neighbour of a used or free block in the extent's arena.
  Neighbour neighbour(const PoolExtent& extent, BlockId node, Side side) const {
    return arenas_[extent.offset_bytes / stride_]->neighbour(node, side);
  }
  // Grows the extent by up to `most_bytes` of the free block beside it. False if the block is used.
  bool grow_into(PoolExtent& extent, Side side, std::uint64_t most_bytes);
  // Takes up to this much of the largest free block. Returns false if no space is free.
  bool take_largest(std::uint64_t most_bytes, PoolExtent& extent);
  // Takes up to this much of the next free block behind an extent; see
  // ExtentAllocator::take_behind().
  bool take_behind(const PoolExtent& from, std::uint64_t most_bytes, unsigned tries,
                   PoolExtent& extent);

  // Marks extents, sorted by offset, as used, and sets their blocks and the blocks' owners. The block
  // of an extent that overlaps another or is out of bounds stays kNoBlock.
  struct Claim {
    shm::ExtentRecord extent;
    std::uint32_t owner;
    std::uint32_t part;  // number of this extent among the owner's extents
    BlockId block = kNoBlock;
  };
  void claim_all(std::span<Claim> sorted);

  // Changes the target; growing and shrinking continue in the background.
  void resize(std::uint64_t pool_bytes);
  // True if the extent lies in the tail that a shrink removes.
  bool must_leave(std::uint64_t offset_bytes, std::uint64_t length_bytes) const;
  bool shrinking() const;
  // The owners of up to `most` extents at the ends of the arenas, which must leave first: an equal share
  // of each arena, so that extents that stay in one arena hide none of another.
  std::vector<std::uint32_t> tail_owners(std::size_t most) const;
  // Gives empty ends of the arenas back to the system, a step at a time. Call when extents have left,
  // and after on_chunk(). Returns false if nothing could be given back.
  bool give_back_tails();
  // Gives back pages beyond the end of one arena, of each arena in turn. A shrunken file keeps its length,
  // and a process that reads the empty end makes pages there. Call now and then.
  void give_back_strays();

  // A part of another mapping that must move into huge pages before the pool; nullopt:
  // nothing left.
  struct Elsewhere {
    const Mapping* mapping;
    std::uint64_t offset_bytes;
    std::uint64_t bytes;
  };
  void collapse_first(std::function<std::optional<Elsewhere>()> next) {
    collapse_first_ = std::move(next);
  }
  // The pool takes memory from the system only while this is true; asked again at retry_growth().
  void grow_if(std::function<bool()> may_grow) { may_grow_ = std::move(may_grow); }
  // Pages cannot be touched during the move, so the move only runs while the agent is idle.
  void set_idle(bool idle);
  bool growing() const { return reserved_bytes() < target_bytes_ && !blocked_; }
  // The reason why growth has stopped; ok() if growth continues.
  const Status& growth_status() const { return growth_status_; }
  // Tries to grow again after a failure, and continues the move into huge pages.
  void retry_growth();
  std::uint64_t target_bytes() const { return target_bytes_; }
  std::uint64_t max_bytes() const { return stride_ * arenas_.size(); }
  std::uint64_t reserved_bytes() const;
  // The ranges of the file with reserved memory: the beginning of each arena.
  std::vector<shm::ExtentRecord> reserved_ranges() const;
  // Number of changes of these ranges, and number of changes that removed memory.
  std::uint64_t size_changes() const { return size_changes_; }
  std::uint64_t losses() const { return losses_; }
  std::uint64_t used_bytes() const;
  std::uint64_t free_bytes() const;  // allocatable bytes, without a tail that a shrink removes
  std::size_t arena_count() const { return arenas_.size(); }
  std::size_t memory_bytes() const;

 private:
  class Reserver;
  ExtentPool() = default;
  Status attach(shm::IndexHeader* header, std::uint32_t arenas);
  void note_sizes(std::uint64_t configured_bytes);
  void set_limit(std::size_t arena);
  void order_punch(std::size_t arena, std::uint64_t offset_bytes, std::uint64_t bytes);
  std::uint64_t arena_target(std::size_t arena) const;
  void order_next_chunk();
  bool order_collapse();
  void publish_size();

  shm::IndexHeader* header_ = nullptr;
  MemoryFile file_;
  Mapping mapping_;
  std::vector<std::unique_ptr<ExtentAllocator>> arenas_;
  std::uint64_t stride_ = 0;
  std::uint64_t target_bytes_ = 0;
  std::size_t next_arena_ = 0;
  std::size_t next_stray_ = 0;                  // the arena that give_back_strays() looked at last
  std::vector<std::uint64_t> collapsed_bytes_;  // by arena: bytes moved into huge pages
  std::function<std::optional<Elsewhere>()> collapse_first_;
  std::function<bool()> may_grow_;
  bool may_collapse_ = false;
  bool idle_ = false;
  bool blocked_ = false;
  bool punching_ = false;  // the thread gives pages back
  Status growth_status_;
  std::uint64_t size_changes_ = 0;
  std::uint64_t losses_ = 0;
  Fd chunk_event_;
  std::unique_ptr<Reserver> reserver_;
};

}  // namespace mc::agent
