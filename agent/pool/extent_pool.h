// SPDX-License-Identifier: Apache-2.0
//
// What it is: the bytes of a pool: one sparse memory file cut into arenas, each with an allocator
// of
//   its own. Memory is taken chunk by chunk by a thread, and used as it comes; it is given back
//   from the tail of each arena.
//
//   file   0          stride      2 x stride              max_bytes
//          ├─ arena 0 ─┄┄┄├─ arena 1 ─┄┄┄├─ …    ─ reserved   ┄ hole
//
// Threads: the agent's loop; the reserving thread is private.
// Owns: file, mapping, allocators. Trusts: its caller; at recovery claim() refuses what overlaps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/pool/extent_allocator.h"
#include "libmc/base/memory_file.h"
#include "shm/layout.h"

namespace mc::agent {

// A piece of the pool: an extent and the allocator's name for it.
struct PoolExtent {
  std::uint64_t offset_bytes;
  std::uint64_t length_bytes;  // whole granules
  BlockId node;
};

struct PoolExtents {
  PoolExtents() {}  // only count is set: extents are copied about on every put
  std::uint32_t count = 0;
  PoolExtent at[MC_MAX_EXTENTS];
  std::uint64_t bytes() const;
};

class ExtentPool {
 public:
  // header: of the index file, where sizes are kept for the next agent.
  static Result<std::unique_ptr<ExtentPool>> create(shm::IndexHeader* header,
                                                    std::uint64_t pool_bytes,
                                                    std::uint64_t max_bytes, std::uint32_t arenas,
                                                    HugePages huge);
  // The file of an earlier agent; its arenas as the header says, everything free.
  static Result<std::unique_ptr<ExtentPool>> adopt(shm::IndexHeader* header, MemoryFile file,
                                                   std::uint64_t pool_bytes, HugePages huge);
  ~ExtentPool();

  const MemoryFile& file() const { return file_; }
  std::byte* data() const { return mapping_.data(); }
  // Readable when a chunk has been reserved; then call on_chunk().
  int event_fd() const { return chunk_event_.get(); }
  // True if the pool has become larger.
  bool on_chunk();

  // One extent if there is one large enough; else, if allowed, up to MC_MAX_EXTENTS.
  bool allocate(std::uint64_t bytes, bool may_split, PoolExtents& extents);
  void free(const PoolExtent& extent);
  // Start loading what free() will need: first the extent's own, some time later its neighbours'.
  void prefetch(const PoolExtent& extent) const {
    arenas_[extent.offset_bytes / stride_]->prefetch(extent.node);
  }
  void prefetch_neighbours(const PoolExtent& extent) const {
    arenas_[extent.offset_bytes / stride_]->prefetch_neighbours(extent.node);
  }
  // Keeps the first bytes of the extents.
  void trim(PoolExtents& extents, std::uint64_t bytes);
  // ---- Making room at one place (clearing.cc): an extent is grown over what lies beside it.
  using Side = ExtentAllocator::Side;
  using Neighbour = ExtentAllocator::Neighbour;
  // Whose an extent is, by number.
  void set_owner(const PoolExtent& extent, std::uint32_t owner) {
    arenas_[extent.offset_bytes / stride_]->set_owner(extent.node, owner);
  }
  // What lies beside a block, used or free, of the same arena as the extent.
  Neighbour neighbour(const PoolExtent& extent, BlockId node, Side side) const {
    return arenas_[extent.offset_bytes / stride_]->neighbour(node, side);
  }
  // Grows the extent by up to `most_bytes` of the free block beside it. False: it is not free.
  bool grow_into(PoolExtent& extent, Side side, std::uint64_t most_bytes);
  // Up to this much of the largest free block there is. False: nothing is free.
  bool take_largest(std::uint64_t most_bytes, PoolExtent& extent);
  // Up to this much of the next free block behind an extent, as ExtentAllocator::take_behind().
  bool take_behind(const PoolExtent& from, std::uint64_t most_bytes, unsigned tries,
                   PoolExtent& extent);

  // Marks ranges, sorted by offset, as used; node kNoNode where one overlaps or is out of bounds.
  std::vector<BlockId> claim_all(std::span<const shm::ExtentRecord> sorted);

  // Changes the target; growing and shrinking go on in the background.
  void resize(std::uint64_t pool_bytes);
  // Shrinking: true if the extent lies in a part that is to go.
  bool must_leave(std::uint64_t offset_bytes, std::uint64_t length_bytes) const;
  bool shrinking() const;
  // Gives back tails that have become empty. True when nothing is left to do.
  bool finish_shrinking();

  // What is to be moved into huge pages before the pool itself; nullopt: nothing (more).
  struct Elsewhere {
    const Mapping* mapping;
    std::uint64_t offset_bytes;
    std::uint64_t bytes;
  };
  void collapse_first(std::function<std::optional<Elsewhere>()> next) {
    collapse_first_ = std::move(next);
  }
  // Pages that are being moved cannot be touched meanwhile, so it is done when nobody is busy.
  void set_idle(bool idle);
  bool growing() const { return reserved_bytes() < target_bytes_ && !blocked_; }
  // Why growing has stopped; ok() when it has not.
  const Status& growth_status() const { return growth_status_; }
  // Tries to grow again after a failure, and goes on with huge pages.
  void retry_growth();
  std::uint64_t target_bytes() const { return target_bytes_; }
  std::uint64_t max_bytes() const { return stride_ * arenas_.size(); }
  std::uint64_t reserved_bytes() const;
  // The parts of the file that have memory: of each arena the first so many bytes.
  std::vector<shm::ExtentRecord> reserved_ranges() const;
  // How often they have changed, and how often one has become smaller.
  std::uint64_t size_changes() const { return size_changes_; }
  std::uint64_t losses() const { return losses_; }
  std::uint64_t used_bytes() const;
  std::uint64_t free_bytes() const;  // what may be allocated: nothing of a tail that is to go
  std::size_t arena_count() const { return arenas_.size(); }
  std::size_t memory_bytes() const;

 private:
  class Reserver;
  ExtentPool() = default;
  Status attach(shm::IndexHeader* header, std::uint32_t arenas);
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
  std::vector<std::uint64_t> collapsed_bytes_;  // of each arena: moved into huge pages
  std::function<std::optional<Elsewhere>()> collapse_first_;
  bool may_collapse_ = false;
  bool idle_ = false;
  bool blocked_ = false;
  Status growth_status_;
  std::uint64_t size_changes_ = 0;
  std::uint64_t losses_ = 0;
  Fd chunk_event_;
  std::unique_ptr<Reserver> reserver_;
};

}  // namespace mc::agent
