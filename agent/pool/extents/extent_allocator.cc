// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/extents/extent_allocator.h"

#include <algorithm>
#include <bit>

namespace mc::agent {
namespace {

// Blocks of the size's own class that are examined before a larger class is cut. An exact fit (a
// pool full of equal objects) is found at once, and the tail of the list costs nothing.
constexpr int kQuickTries = 4;
// The same if no larger class has a free block.
constexpr int kLastTries = 64;

// Row 0 has a bin for each size below 32; each further row cuts a power of two into 32 bins.
std::uint32_t size_class(std::uint32_t granules) {
  if (granules < 32) return granules;
  const auto log = static_cast<std::uint32_t>(std::bit_width(granules)) - 1;
  return (log - 4) * 32 + ((granules >> (log - 5)) & 31);
}

// The bits of a word above this bit.
std::uint32_t bits_above(std::uint32_t bit) { return 0xfffffffeu << bit; }

}  // namespace

ExtentAllocator::ExtentAllocator() {
  chunks_.push_back(std::make_unique_for_overwrite<Node[]>(kChunkNodes));
  node_count_ = 1;
  at(kRing) = Node{0, kRing, kRing, kRingMark, kNoBlock};
}

// ---- bins --------------------------------------------------------------------------------------

std::uint32_t ExtentAllocator::bin_of(const Node& node) const {
  return node.first >= limit_ ? kWithdrawnBin : size_class(granules(node));
}

void ExtentAllocator::put_in_bin(BlockId id, std::uint32_t bin) {
  Node& node = at(id);
  node.bin_prev = kNoBlock;
  node.bin_next = bins_[bin];
  if (node.bin_next != kNoBlock) at(node.bin_next).bin_prev = id;
  bins_[bin] = id;
  if (bin == kWithdrawnBin) return;
  filled_bins_[bin / 32] |= 1u << (bin % 32);
  filled_rows_ |= 1u << (bin / 32);
}

[[gnu::hot]] void ExtentAllocator::take_from_bin(BlockId id, std::uint32_t bin) {
  const Node& node = at(id);
  if (node.bin_next != kNoBlock) at(node.bin_next).bin_prev = node.bin_prev;
  if (node.bin_prev != kNoBlock) {
    at(node.bin_prev).bin_next = node.bin_next;
    return;
  }
  bins_[bin] = node.bin_next;
  if (node.bin_next != kNoBlock || bin == kWithdrawnBin) return;
  filled_bins_[bin / 32] &= ~(1u << (bin % 32));
  if (filled_bins_[bin / 32] == 0) filled_rows_ &= ~(1u << (bin / 32));
}

[[gnu::hot]] void ExtentAllocator::move_bin(BlockId id, std::uint32_t old_bin) {
  const std::uint32_t bin = bin_of(at(id));
  if (bin == old_bin) return;
  take_from_bin(id, old_bin);
  put_in_bin(id, bin);
}

BlockId ExtentAllocator::fit_in_bin(std::uint32_t bin, std::uint32_t wanted, int tries) const {
  BlockId id = bins_[bin];
  for (; id != kNoBlock && tries > 0; --tries, id = at(id).bin_next) {
    if (granules(at(id)) >= wanted) return id;
  }
  return kNoBlock;
}

std::uint32_t ExtentAllocator::next_filled_bin(std::uint32_t bin) const {
  std::uint32_t row = bin / 32;
  std::uint32_t bins = filled_bins_[row] & bits_above(bin % 32);
  if (bins == 0) {
    const std::uint32_t rows = filled_rows_ & bits_above(row);
    if (rows == 0) return kWithdrawnBin;
    row = static_cast<std::uint32_t>(std::countr_zero(rows));
    bins = filled_bins_[row];
  }
  return row * 32 + static_cast<std::uint32_t>(std::countr_zero(bins));
}

// ---- blocks ------------------------------------------------------------------------------------

// Inserts a used block that begins at `first`, inside the block before `next`, and takes the rest
// of that block.
[[gnu::hot]] BlockId ExtentAllocator::insert_used_before(BlockId next, std::uint32_t first) {
  BlockId id = spare_;
  if (id != kNoBlock) {
    spare_ = at(id).next;
  } else {
    id = node_count_++;
    if (id >> kChunkBits == chunks_.size()) {
      chunks_.push_back(std::make_unique_for_overwrite<Node[]>(kChunkNodes));
    }
  }
  const BlockId prev = at(next).prev;
  at(id) = Node{first, prev, next, kUsedMark, kNoOwner};
  at(prev).next = id;
  at(next).prev = id;
  return id;
}

// The granules go to the previous block.
void ExtentAllocator::erase(BlockId id) {
  Node& node = at(id);
  at(node.prev).next = node.next;
  at(node.next).prev = node.prev;
  node.bin_prev = kSpareMark;
  node.next = spare_;
  spare_ = id;
}

// Turns a used block into free or withdrawn space, in two parts if the block crosses the limit.
void ExtentAllocator::release(BlockId id) {
  const Node& node = at(id);
  if (node.first < limit_ && limit_ < end(node)) {
    const BlockId beyond = insert_used_before(node.next, static_cast<std::uint32_t>(limit_));
    release_on_one_side(beyond);
  }
  release_on_one_side(id);
}

void ExtentAllocator::release_on_one_side(BlockId id) {
  const Node& node = at(id);
  const std::uint32_t freed = granules(node);
  used_ -= freed;
  if (node.first >= limit_) {
    used_beyond_limit_ -= freed;
  } else {
    free_ += freed;
  }
  const BlockId prev = node.prev;
  const BlockId next = node.next;
  const bool join_prev = is_free(at(prev)) && node.first != limit_;
  const bool join_next = is_free(at(next)) && at(next).first != limit_;
  if (join_prev) {
    const std::uint32_t prev_bin = bin_of(at(prev));
    if (join_next) {
      take_from_bin(next, bin_of(at(next)));
      erase(next);
    }
    erase(id);
    move_bin(prev, prev_bin);
  } else if (join_next) {
    const std::uint32_t next_bin = bin_of(at(next));
    at(next).first = node.first;
    erase(id);
    move_bin(next, next_bin);
  } else {
    put_in_bin(id, bin_of(node));
  }
}

bool ExtentAllocator::grow(std::uint64_t more) {
  if (more > kMaxGranules - size_ || out_of_nodes()) return false;
  if (more == 0) return true;
  const auto first = static_cast<std::uint32_t>(size_);
  size_ += more;
  used_ += more;
  if (size_ > limit_) used_beyond_limit_ += size_ - std::max<std::uint64_t>(first, limit_);
  at(kRing).first = static_cast<std::uint32_t>(size_);
  release(insert_used_before(kRing, first));
  return true;
}

[[gnu::hot]] BlockId ExtentAllocator::take(std::uint64_t wanted) {
  if (wanted == 0 || wanted > free_ || out_of_nodes()) return kNoBlock;
  const auto count = static_cast<std::uint32_t>(wanted);
  const std::uint32_t own_bin = size_class(count);
  std::uint32_t bin = own_bin;
  BlockId id = fit_in_bin(bin, count, kQuickTries);
  if (id == kNoBlock) {
    bin = next_filled_bin(own_bin);
    if (bin != kWithdrawnBin) {
      id = bins_[bin];
    } else {
      bin = own_bin;
      id = fit_in_bin(bin, count, kLastTries);
      if (id == kNoBlock) return kNoBlock;
    }
  }
  used_ += count;
  free_ -= count;
  Node& node = at(id);
  if (granules(node) == count) {
    take_from_bin(id, bin);
    node.bin_prev = kUsedMark;
    node.bin_next = kNoOwner;
    return id;
  }
  // The rest keeps the node and, within its size class, the place in the bin.
  const BlockId used = insert_used_before(id, node.first);
  node.first += count;
  move_bin(id, bin);
  return used;
}

std::uint64_t ExtentAllocator::largest_free() const {
  if (filled_rows_ == 0) return 0;
  const auto row = static_cast<std::uint32_t>(std::bit_width(filled_rows_)) - 1;
  const auto column = static_cast<std::uint32_t>(std::bit_width(filled_bins_[row])) - 1;
  // Only the blocks that allocate() examines too.
  std::uint32_t largest = 0;
  BlockId id = bins_[row * 32 + column];
  for (int tries = kQuickTries; id != kNoBlock && tries > 0; --tries, id = at(id).bin_next) {
    largest = std::max(largest, granules(at(id)));
  }
  return largest;
}

bool ExtentAllocator::free(BlockId id) {
  if (!is_used(id)) return false;
  release(id);
  return true;
}

bool ExtentAllocator::trim(BlockId id, std::uint64_t new_granules) {
  if (!is_used(id) || out_of_nodes()) return false;
  const Node& node = at(id);
  const std::uint32_t old_granules = granules(node);
  if (new_granules == 0 || new_granules > old_granules) return false;
  if (new_granules == old_granules) return true;
  release(insert_used_before(node.next, node.first + static_cast<std::uint32_t>(new_granules)));
  return true;
}

Allocation ExtentAllocator::find(BlockId id) const {
  if (!is_used(id)) return Allocation{};
  return Allocation{id, at(id).first, granules(at(id))};
}

// ---- room at one place -------------------------------------------------------------------------

ExtentAllocator::Neighbour ExtentAllocator::neighbour(BlockId id, Side side) const {
  Neighbour beside;
  const BlockId other = side == Side::kBefore ? at(id).prev : at(id).next;
  if (other == kRing || at(other).first >= limit_) return beside;
  const Node& node = at(other);
  beside.kind = is_free(node) ? Neighbour::Kind::kFree : Neighbour::Kind::kUsed;
  beside.node = other;
  beside.owner = is_free(node) ? kNoOwner : node.bin_next;
  beside.granules = granules(node);
  return beside;
}

std::uint64_t ExtentAllocator::grow_into(BlockId id, Side side, std::uint64_t most) {
  if (!is_used(id) || most == 0) return 0;
  const Neighbour beside = neighbour(id, side);
  if (beside.kind != Neighbour::Kind::kFree) return 0;
  const auto count = static_cast<std::uint32_t>(std::min(most, beside.granules));
  const std::uint32_t bin = bin_of(at(beside.node));
  used_ += count;
  free_ -= count;
  if (side == Side::kBefore) at(id).first -= count;
  if (count == beside.granules) {
    take_from_bin(beside.node, bin);
    erase(beside.node);
    return count;
  }
  if (side == Side::kBehind) at(beside.node).first += count;
  move_bin(beside.node, bin);
  return count;
}

BlockId ExtentAllocator::take_behind(BlockId id, std::uint64_t most, unsigned tries) {
  if (most == 0 || out_of_nodes()) return kNoBlock;
  for (; tries > 0; --tries) {
    id = at(id).next;
    if (id == kRing || at(id).first >= limit_) id = at(kRing).next;
    if (id == kRing) return kNoBlock;
    if (!is_free(at(id)) || at(id).first >= limit_) continue;
    const std::uint64_t count = std::min<std::uint64_t>(most, granules(at(id)));
    return carve(id, at(id).first, static_cast<std::uint32_t>(count));
  }
  return kNoBlock;
}

// ---- recovery ----------------------------------------------------------------------------------

// Makes a part of a free block used.
BlockId ExtentAllocator::carve(BlockId id, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t bin = bin_of(at(id));
  const std::uint32_t block_end = end(at(id));
  used_ += count;
  free_ -= count;
  BlockId used = id;
  if (at(id).first == first) {
    take_from_bin(id, bin);
    at(id).bin_prev = kUsedMark;
    at(id).bin_next = kNoOwner;
  } else {
    used = insert_used_before(at(id).next, first);
    move_bin(id, bin);
  }
  if (first + count != block_end) {
    const BlockId rest = insert_used_before(at(used).next, first + count);
    put_in_bin(rest, bin_of(at(rest)));
  }
  return used;
}

// Without a limit a free block never has two parts, so each range lies in a single block.
ExtentAllocator::Claimer::Claimer(ExtentAllocator& allocator)
    : allocator_(allocator), limit_(allocator.limit_) {
  allocator_.set_limit(kMaxGranules);
  cursor_ = allocator_.at(kRing).next;
}

BlockId ExtentAllocator::Claimer::claim(const GranuleRange& range) {
  const std::uint64_t size = allocator_.size_;
  if (range.granules == 0 || range.granules > size || allocator_.out_of_nodes()) return kNoBlock;
  if (range.first_granule > size - range.granules) return kNoBlock;
  while (allocator_.end(allocator_.at(cursor_)) <= range.first_granule) {
    cursor_ = allocator_.at(cursor_).next;
  }
  const Node& node = allocator_.at(cursor_);
  if (!is_free(node) || range.first_granule < node.first) return kNoBlock;
  if (range.first_granule + range.granules > allocator_.end(node)) return kNoBlock;
  cursor_ = allocator_.carve(cursor_, static_cast<std::uint32_t>(range.first_granule),
                             static_cast<std::uint32_t>(range.granules));
  return cursor_;
}

// ---- the limit ---------------------------------------------------------------------------------

void ExtentAllocator::set_limit(std::uint64_t new_limit) {
  new_limit = std::min(new_limit, kMaxGranules);
  const std::uint64_t lowest = std::min(limit_, new_limit);
  if (new_limit == limit_) return;
  if (lowest >= size_) {
    limit_ = new_limit;
    return;
  }
  // First, everything beyond becomes used or loose. Then each loose block is released under the new
  // limit, which sorts, cuts and joins the blocks.
  BlockId id = at(kRing).prev;
  BlockId lowest_id = kRing;
  for (; id != kRing && end(at(id)) > lowest; id = at(id).prev) {
    lowest_id = id;
    Node& node = at(id);
    if (!is_free(node)) continue;
    take_from_bin(id, bin_of(node));
    if (node.first < limit_) free_ -= granules(node);
    used_ += granules(node);
    node.bin_prev = kLooseMark;
  }
  limit_ = new_limit;
  used_beyond_limit_ = size_ > limit_ ? size_ - limit_ : 0;
  for (id = lowest_id; id != kRing;) {
    const BlockId next = at(id).next;
    if (at(id).bin_prev == kLooseMark) release(id);
    id = next;
  }
}

std::uint64_t ExtentAllocator::used_beyond(std::uint64_t granule) const {
  if (granule == limit_) return used_beyond_limit_;
  std::uint64_t used = 0;
  for (BlockId id = at(kRing).prev; id != kRing && end(at(id)) > granule; id = at(id).prev) {
    const Node& node = at(id);
    if (!is_free(node)) used += end(node) - std::max<std::uint64_t>(node.first, granule);
  }
  return used;
}

void ExtentAllocator::owners_beyond_limit(std::size_t most,
                                          std::vector<std::uint32_t>& owners) const {
  for (BlockId id = at(kRing).prev; id != kRing && end(at(id)) > limit_; id = at(id).prev) {
    const Node& node = at(id);
    if (is_free(node)) continue;
    if (most-- == 0) return;
    if (node.bin_next != kNoOwner) owners.push_back(node.bin_next);
  }
}

bool ExtentAllocator::truncate(std::uint64_t new_size) {
  if (new_size >= size_) return new_size == size_;
  if (used_beyond(new_size) != 0) return false;
  // Cuts the free block that may cross the new end, so that all space beyond is withdrawn.
  if (limit_ > new_size) set_limit(new_size);
  const BlockId tail = at(kRing).prev;
  if (at(tail).first == new_size) {
    take_from_bin(tail, kWithdrawnBin);
    erase(tail);
  }
  size_ = new_size;
  at(kRing).first = static_cast<std::uint32_t>(new_size);
  if (limit_ == new_size) set_limit(kMaxGranules);
  return true;
}

// ---- figures and checks ------------------------------------------------------------------------

std::size_t ExtentAllocator::memory_bytes() const {
  return sizeof(*this) + chunks_.capacity() * sizeof(chunks_[0]) +
         chunks_.size() * kChunkNodes * sizeof(Node);
}

std::string ExtentAllocator::check() const {
  std::uint64_t free_blocks = 0;
  std::string broken = check_blocks(&free_blocks);
  return broken.empty() ? check_bins(free_blocks) : broken;
}

std::string ExtentAllocator::check_blocks(std::uint64_t* free_blocks) const {
  const auto block = [](BlockId id) { return "block " + std::to_string(id); };
  if (at(kRing).first != size_ || at(kRing).bin_prev != kRingMark) return "the ring is not closed";
  std::uint64_t used = 0, beyond = 0, usable = 0, blocks = 1, expected_first = 0;
  for (BlockId id = at(kRing).next; id != kRing; id = at(id).next, ++blocks) {
    if (id >= node_count_ || blocks >= node_count_) return "the ring does not end";
    const Node& node = at(id);
    if (node.first != expected_first) return block(id) + " does not begin where the last one ends";
    if (end(node) <= node.first) return block(id) + " is empty or ends before it begins";
    if (at(node.next).prev != id) return block(id) + " is not its next one's previous one";
    expected_first = end(node);
    if (node.bin_prev == kUsedMark) {
      used += granules(node);
      if (end(node) > limit_) beyond += end(node) - std::max<std::uint64_t>(node.first, limit_);
      continue;
    }
    if (!is_free(node)) return block(id) + " is neither used nor free";
    ++*free_blocks;
    if (node.first < limit_) usable += granules(node);
    if (node.first < limit_ && limit_ < end(node)) return block(id) + " is free across the limit";
    if (is_free(at(node.next)) && end(node) != limit_) return block(id) + " is not joined";
  }
  if (expected_first != size_) return "the blocks do not fill the range";
  if (used != used_) return "wrong count of used granules";
  if (beyond != used_beyond_limit_) return "wrong count of used granules beyond the limit";
  if (usable != free_) return "wrong count of free granules";
  for (BlockId id = spare_; id != kNoBlock; id = at(id).next, ++blocks) {
    if (blocks >= node_count_) return "the list of spare nodes does not end";
    if (at(id).bin_prev != kSpareMark) return block(id) + " is spare, but not marked so";
  }
  return blocks == node_count_ ? "" : "a node is lost";
}

std::string ExtentAllocator::check_bins(std::uint64_t free_blocks) const {
  std::uint64_t binned = 0;
  for (std::uint32_t bin = 0; bin <= kWithdrawnBin; ++bin) {
    const std::string name = "bin " + std::to_string(bin);
    if (bin < kWithdrawnBin) {
      const bool marked = (filled_bins_[bin / 32] >> (bin % 32) & 1) != 0;
      if (marked != (bins_[bin] != kNoBlock)) return name + " is marked wrongly";
      const bool row_marked = (filled_rows_ >> (bin / 32) & 1) != 0;
      if (row_marked != (filled_bins_[bin / 32] != 0)) return name + "'s row is marked wrongly";
    }
    BlockId prev = kNoBlock;
    for (BlockId id = bins_[bin]; id != kNoBlock; prev = id, id = at(id).bin_next) {
      if (++binned > free_blocks) return name + " holds a block that is not free, or does not end";
      if (at(id).bin_prev != prev) return name + " has a broken link";
      if (bin_of(at(id)) != bin) return name + " holds a block of another class";
    }
  }
  return binned == free_blocks ? "" : "a free block is in no bin";
}

}  // namespace mc::agent
