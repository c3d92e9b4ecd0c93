// SPDX-License-Identifier: Apache-2.0
//
// The allocator of a pool's bytes. It cuts a range of granules into allocations in
//   constant time: two-level size classes with bitmaps (after TLSF, Masmano et al., ECRTS 2004), a
//   good fit, immediate coalescing. All bookkeeping lies outside the managed memory, and the
//   allocator never touches that memory. The memory may therefore lie in a shared file, on a GPU,
//   or nowhere yet.
// Threads: only the owner of the pool.
// Owns: the nodes, 20 bytes per block. The caller keeps the BlockId of an allocation.
// Trusts: its caller, except for ranges passed to claim(). Such ranges come from a file found at
//   restart, and the allocator refuses ranges that do not fit.
//
//   granule 0                                   limit                     size
//   ├── used ──┼── free ──┼── used ──┼── free ──┼── withdrawn ──┼── used ──┤
//
// Blocks tile the range without gaps; a block ends where the next block begins. Two free blocks
// never touch, except at the limit, which no free block crosses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mc::agent {

inline constexpr std::uint64_t kGranuleBytes = 256;

// Names an allocation until the allocation is freed; then the number may be reused.
using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = 0;

struct Allocation {
  BlockId node = kNoBlock;
  std::uint32_t first_granule = 0;
  std::uint32_t granules = 0;
};

struct GranuleRange {
  std::uint64_t first_granule = 0;
  std::uint64_t granules = 0;
};

class ExtentAllocator {
 public:
  static constexpr std::uint64_t kMaxGranules = 0xffffffff;

  // Empty; grow() adds the first space.
  ExtentAllocator();
  ExtentAllocator(const ExtentAllocator&) = delete;
  ExtentAllocator& operator=(const ExtentAllocator&) = delete;

  // Appends usable space at the end. Beyond kMaxGranules: returns false and changes nothing.
  [[nodiscard]] bool grow(std::uint64_t granules);

  // Returns nullopt for 0 granules and if no free block is large enough. A block less than 1/32
  // larger than the request may be missed if many blocks of its size class are free.
  [[nodiscard]] std::optional<Allocation> allocate(std::uint64_t granules) {
    // The result is assembled here, in registers. A result in memory would have to wait for every
    // earlier store, and these stores go to cold cache lines.
    const BlockId node = take(granules);
    if (node == kNoBlock) return std::nullopt;
    return Allocation{node, at(node).first, static_cast<std::uint32_t>(granules)};
  }
  // A size that allocate() can certainly grant now: at most 1/32 less than the largest free block.
  // 0 if no space is free.
  [[nodiscard]] std::uint64_t largest_free() const;

  // Returns false, without a change, if the node names no allocation.
  bool free(BlockId node);
  // Prefetch the memory that free() of this node needs: first the node, some time later
  // its neighbours.
  void prefetch(BlockId node) const { __builtin_prefetch(&at(node)); }
  void prefetch_neighbours(BlockId node) const {
    __builtin_prefetch(&at(at(node).prev), 1);
    __builtin_prefetch(&at(at(node).next), 1);
  }
  // Keeps the first new_granules and frees the rest. Returns false, without a change, if the node
  // names no allocation, or if new_granules is 0 or more than the allocation has.
  bool trim(BlockId node, std::uint64_t new_granules);
  // Returns the place of an allocation; granules is 0 if the node names none.
  [[nodiscard]] Allocation find(BlockId node) const;

  // ---- Making room at one place: an allocation grows over the neighbours.
  // The caller's number for the owner of an allocation; kNoOwner until set.
  static constexpr std::uint32_t kNoOwner = 0xffffffff;
  void set_owner(BlockId node, std::uint32_t owner) {
    if (is_used(node)) at(node).bin_next = owner;
  }
  enum class Side { kBefore, kBehind };
  struct Neighbour {
    enum class Kind { kNone, kFree, kUsed };  // kNone: end of the allocatable range
    Kind kind = Kind::kNone;
    BlockId node = kNoBlock;
    std::uint32_t owner = kNoOwner;  // of a used block
    std::uint64_t granules = 0;
  };
  // Returns the neighbour of a used or free block. Constant time.
  [[nodiscard]] Neighbour neighbour(BlockId node, Side side) const;
  // Takes up to `most` granules of the free block beside an allocation. Returns the number of
  // granules; 0 if that block is not free or the node names no allocation.
  std::uint64_t grow_into(BlockId node, Side side, std::uint64_t most);
  // Allocates the beginning, up to `most` granules, of the next free block behind this block.
  // Passes over at most `tries` blocks, and continues at the start of the range. kNoBlock if none
  // is found.
  [[nodiscard]] BlockId take_behind(BlockId node, std::uint64_t most, unsigned tries);

  // Recovery: marks ranges as used, also beyond the limit, in one walk over the blocks. The ranges
  // come in the order of their first granules. REQUIRES: no other call changes the allocator meanwhile.
  class Claimer {
   public:
    explicit Claimer(ExtentAllocator& allocator);
    ~Claimer() { allocator_.set_limit(limit_); }
    Claimer(const Claimer&) = delete;
    Claimer& operator=(const Claimer&) = delete;
    // Returns kNoBlock for a range that is empty, out of bounds, out of order, or overlaps a used
    // range.
    [[nodiscard]] BlockId claim(const GranuleRange& range);

   private:
    ExtentAllocator& allocator_;
    std::uint64_t limit_;
    BlockId cursor_;  // a block at or before the start of the next range
  };

  // Stops allocation at or beyond the limit: free space there is withdrawn, and so is space that is
  // freed or added there later. A higher limit gives space back. Walks the blocks beyond the lower
  // of the old and new limit. kMaxGranules, the initial value, means no limit.
  void set_limit(std::uint64_t granules);
  // Used granules at or beyond this granule; 0 means that the tail may go. Constant time for the
  // current limit, otherwise walks the blocks beyond.
  [[nodiscard]] std::uint64_t used_beyond(std::uint64_t granule) const;
  // Appends the owners of up to `most` used blocks at or beyond the limit, from the end on. A block
  // without an owner is left out.
  void owners_beyond_limit(std::size_t most, std::vector<std::uint32_t>& owners) const;
  // Cuts the range to this size. Returns false, without a change, if a granule beyond is used or
  // the range is smaller already. Lifts the limit when no space lies beyond it.
  [[nodiscard]] bool truncate(std::uint64_t granules);

  [[nodiscard]] std::uint64_t size_granules() const { return size_; }
  [[nodiscard]] std::uint64_t limit_granules() const { return limit_; }
  [[nodiscard]] std::uint64_t used_granules() const { return used_; }
  // Free space below the limit, without withdrawn space.
  [[nodiscard]] std::uint64_t free_granules() const { return free_; }
  // Heap bytes of the bookkeeping.
  [[nodiscard]] std::size_t memory_bytes() const;

  // For tests: walks all blocks. Returns the first broken invariant, or an empty string.
  [[nodiscard]] std::string check() const;

 private:
  struct Node {
    std::uint32_t first;  // granule
    BlockId prev;         // neighbours by address; next spare node
    BlockId next;
    BlockId bin_prev;  // in a bin: the previous node, or kNoBlock at the head; else a state mark
    BlockId bin_next;  // used: the owner
  };
  static_assert(sizeof(Node) == 20, "the promise of 20 bytes per allocation");

  // Node 0 closes the ring of neighbours. Its first granule is the size of the range, so that any
  // block ends where its next block begins.
  static constexpr BlockId kRing = 0;
  // At this many nodes allocate() and claim() stop. The nodes that free() and set_limit() may still
  // need fit below the marks, the values of bin_prev that are no node id.
  static constexpr BlockId kMaxNodes = 0xfffff000;
  static constexpr BlockId kFirstMark = 0xffffff00;
  static constexpr BlockId kRingMark = 0xfffffffc;
  static constexpr BlockId kSpareMark = 0xfffffffd;
  static constexpr BlockId kLooseMark = 0xfffffffe;  // free, but in no bin while the limit moves
  static constexpr BlockId kUsedMark = 0xffffffff;

  // Nodes come in chunks that never move, so that growth copies no nodes.
  static constexpr unsigned kChunkBits = 14;
  static constexpr std::uint32_t kChunkNodes = 1u << kChunkBits;

  static constexpr std::uint32_t kRows = 28;  // of 32 bins each
  static constexpr std::uint32_t kWithdrawnBin = kRows * 32;

  [[nodiscard]] Node& at(BlockId id) { return chunks_[id >> kChunkBits][id & (kChunkNodes - 1)]; }
  [[nodiscard]] const Node& at(BlockId id) const {
    return chunks_[id >> kChunkBits][id & (kChunkNodes - 1)];
  }
  [[nodiscard]] std::uint32_t end(const Node& node) const { return at(node.next).first; }
  [[nodiscard]] std::uint32_t granules(const Node& node) const { return end(node) - node.first; }
  [[nodiscard]] static bool is_free(const Node& node) { return node.bin_prev < kFirstMark; }
  [[nodiscard]] bool is_used(BlockId id) const {
    return id < node_count_ && at(id).bin_prev == kUsedMark;
  }
  [[nodiscard]] bool out_of_nodes() const { return node_count_ >= kMaxNodes && spare_ == kNoBlock; }

  [[nodiscard]] BlockId take(std::uint64_t granules);
  [[nodiscard]] std::uint32_t bin_of(const Node& node) const;
  [[nodiscard]] BlockId fit_in_bin(std::uint32_t bin, std::uint32_t granules, int tries) const;
  [[nodiscard]] std::uint32_t next_filled_bin(std::uint32_t bin) const;
  void put_in_bin(BlockId id, std::uint32_t bin);
  void take_from_bin(BlockId id, std::uint32_t bin);
  void move_bin(BlockId id, std::uint32_t old_bin);

  [[nodiscard]] BlockId insert_used_before(BlockId next, std::uint32_t first);
  void erase(BlockId id);
  void release(BlockId id);
  void release_on_one_side(BlockId id);
  [[nodiscard]] BlockId carve(BlockId id, std::uint32_t first, std::uint32_t granules);

  [[nodiscard]] std::string check_blocks(std::uint64_t* free_blocks) const;
  [[nodiscard]] std::string check_bins(std::uint64_t free_blocks) const;

  std::vector<std::unique_ptr<Node[]>> chunks_;
  std::uint32_t node_count_ = 0;  // ever made, the ring's own included
  BlockId spare_ = kNoBlock;
  std::uint64_t size_ = 0;
  std::uint64_t limit_ = kMaxGranules;
  std::uint64_t used_ = 0;
  std::uint64_t used_beyond_limit_ = 0;
  std::uint64_t free_ = 0;
  std::uint32_t filled_rows_ = 0;
  std::array<std::uint32_t, kRows> filled_bins_{};
  std::array<BlockId, kWithdrawnBin + 1> bins_{};  // the head of each list
};

}  // namespace mc::agent
