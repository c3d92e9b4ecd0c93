// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/extents/extent_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace mc::agent {
namespace {

using std::uint32_t;
using std::uint64_t;

BlockId claim(ExtentAllocator& allocator, uint64_t first_granule, uint64_t granules) {
  return ExtentAllocator::Claimer(allocator).claim({first_granule, granules});
}

std::vector<BlockId> claim_all(ExtentAllocator& allocator,
                               const std::vector<GranuleRange>& ranges) {
  ExtentAllocator::Claimer claimer(allocator);
  std::vector<BlockId> blocks;
  for (const GranuleRange& range : ranges) blocks.push_back(claimer.claim(range));
  return blocks;
}

// A slow model of the allocator: the used ranges by address.
class Model {
 public:
  void grow(uint64_t granules) { size_ += granules; }
  void set_limit(uint64_t limit) { limit_ = limit; }
  void truncate(uint64_t size) {
    size_ = size;
    if (limit_ >= size_) limit_ = ExtentAllocator::kMaxGranules;
  }
  uint64_t size() const { return size_; }
  uint64_t limit() const { return limit_; }

  bool is_free(uint64_t first, uint64_t granules) const {
    if (granules == 0 || first + granules > size_) return false;
    const auto after = used_.upper_bound(first);
    if (after != used_.end() && after->first < first + granules) return false;
    if (after == used_.begin()) return true;
    const auto before = std::prev(after);
    return before->first + before->second <= first;
  }
  bool may_allocate(uint64_t first, uint64_t granules) const {
    return is_free(first, granules) && first + granules <= limit_;
  }
  void use(uint64_t first, uint64_t granules) { used_[first] = granules; }
  void free(uint64_t first) { used_.erase(first); }

  uint64_t used_beyond(uint64_t granule) const {
    uint64_t used = 0;
    for (auto it = used_.rbegin(); it != used_.rend(); ++it) {
      const uint64_t end = it->first + it->second;
      if (end <= granule) break;
      used += end - std::max(it->first, granule);
    }
    return used;
  }
  uint64_t largest_free() const {
    const uint64_t usable = std::min(limit_, size_);
    uint64_t largest = 0;
    uint64_t last_end = 0;
    for (const auto& [first, granules] : used_) {
      if (first >= usable) break;
      largest = std::max(largest, first - last_end);
      last_end = first + granules;
    }
    return last_end < usable ? std::max(largest, usable - last_end) : largest;
  }

 private:
  std::map<uint64_t, uint64_t> used_;
  uint64_t size_ = 0;
  uint64_t limit_ = ExtentAllocator::kMaxGranules;
};

// Drives an allocator and a model through the same random operations.
class Pair {
 public:
  explicit Pair(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t bound) { return random_() % bound; }
  uint64_t random_size() {
    switch (below(4)) {
      case 0:
        return 16;
      case 1:
        return 1 + below(64);
      case 2:
        return 1 + below(1000);
      default:
        return uint64_t{1} << below(12);
    }
  }

  void grow(uint64_t granules) {
    ASSERT_TRUE(allocator.grow(granules));
    model.grow(granules);
  }
  void allocate(uint64_t granules) {
    const uint64_t largest = allocator.largest_free();
    const auto got = allocator.allocate(granules);
    if (!got) {
      ASSERT_LT(largest, granules);
      if (++refused_ % 64 == 0) {
        ASSERT_LT(model.largest_free(), granules + granules / 32 + 1);
      }
      return;
    }
    ASSERT_EQ(got->granules, granules);
    ASSERT_TRUE(model.may_allocate(got->first_granule, granules));
    model.use(got->first_granule, granules);
    live.push_back(*got);
  }
  void free_any() {
    if (live.empty()) return;
    std::swap(live[below(live.size())], live.back());
    const Allocation gone = live.back();
    live.pop_back();
    ASSERT_TRUE(allocator.free(gone.node));
    model.free(gone.first_granule);
  }
  void trim_any() {
    if (live.empty()) return;
    Allocation& kept = live[below(live.size())];
    const auto less = static_cast<uint32_t>(1 + below(kept.granules));
    ASSERT_TRUE(allocator.trim(kept.node, less));
    kept.granules = less;
    model.use(kept.first_granule, less);
  }
  void limit(uint64_t granules) {
    allocator.set_limit(granules);
    model.set_limit(granules);
  }
  // Sets the limit to the begin or the end of a used block.
  void limit_at_any() {
    if (live.empty()) return;
    const Allocation& one = live[below(live.size())];
    limit(one.first_granule + (below(2) == 0 ? 0 : one.granules));
  }
  void truncate_at(uint64_t granules) {
    const bool empty = model.used_beyond(granules) == 0;
    ASSERT_EQ(allocator.truncate(granules), empty);
    if (empty && granules < model.size()) model.truncate(granules);
  }
  void compare() {
    ASSERT_EQ(allocator.check(), "");
    ASSERT_EQ(allocator.size_granules(), model.size());
    ASSERT_EQ(allocator.limit_granules(), model.limit());
    ASSERT_EQ(allocator.used_granules(), model.used_beyond(0));
    ASSERT_EQ(allocator.used_beyond(model.limit()), model.used_beyond(model.limit()));
    const uint64_t granule = below(model.size() + 1);
    ASSERT_EQ(allocator.used_beyond(granule), model.used_beyond(granule));
    for (const Allocation& one : live) {
      ASSERT_EQ(allocator.find(one.node).first_granule, one.first_granule);
      ASSERT_EQ(allocator.find(one.node).granules, one.granules);
    }
    const uint64_t largest = model.largest_free();
    ASSERT_LE(allocator.largest_free(), largest);
    ASSERT_GE(allocator.largest_free() + allocator.largest_free() / 32 + 1, largest);
  }
  void step() {
    const uint64_t dice = below(100'000);
    if (dice < 50'000) return allocate(random_size());
    if (dice < 90'000) return free_any();
    if (dice < 99'900) return trim_any();
    if (dice < 99'930) return grow(1 + below(100'000));
    if (dice < 99'945) return limit(below(model.size() + 10'000));
    if (dice < 99'960) return limit_at_any();
    if (dice < 99'970) return limit(ExtentAllocator::kMaxGranules);
    if (dice < 99'980) return truncate_at(below(model.size() + 1));
    shrink();
  }
  // Shrinks as an agent shrinks a pool: limit, empty the tail, truncate.
  void shrink() {
    const uint64_t target = model.size() - below(model.size() / 4 + 1);
    limit(target);
    std::erase_if(live, [&](const Allocation& one) {
      if (one.first_granule + one.granules <= target) return false;
      EXPECT_TRUE(allocator.free(one.node));
      model.free(one.first_granule);
      return true;
    });
    ASSERT_EQ(allocator.used_beyond(target), 0u);
    truncate_at(target);
    ASSERT_EQ(allocator.size_granules(), target);
  }

  ExtentAllocator allocator;
  Model model;
  std::vector<Allocation> live;

 private:
  std::mt19937_64 random_;
  uint64_t refused_ = 0;
};

TEST(ExtentAllocator, AnEmptyOneGrantsNothing) {
  ExtentAllocator allocator;
  EXPECT_FALSE(allocator.allocate(1));
  EXPECT_EQ(allocator.largest_free(), 0u);
  EXPECT_EQ(allocator.size_granules(), 0u);
  EXPECT_EQ(claim(allocator, 0, 1), kNoBlock);
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, GrownSpaceJoinsTheFreeTail) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  ASSERT_TRUE(allocator.grow(0));
  ASSERT_TRUE(allocator.grow(100));
  EXPECT_EQ(allocator.largest_free(), 200u);
  const auto whole = allocator.allocate(200);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->first_granule, 0u);
  EXPECT_FALSE(allocator.allocate(1));
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, ManagesUpToItsLargestRangeAndNoMore) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(ExtentAllocator::kMaxGranules));
  EXPECT_FALSE(allocator.grow(1));
  EXPECT_FALSE(allocator.grow(~uint64_t{0}));
  EXPECT_FALSE(allocator.allocate(ExtentAllocator::kMaxGranules + 1));
  EXPECT_FALSE(allocator.allocate(~uint64_t{0}));
  EXPECT_FALSE(allocator.allocate(0));
  const auto whole = allocator.allocate(ExtentAllocator::kMaxGranules);
  ASSERT_TRUE(whole);
  EXPECT_EQ(allocator.free_granules(), 0u);
  EXPECT_TRUE(allocator.free(whole->node));
  EXPECT_EQ(allocator.largest_free(), ExtentAllocator::kMaxGranules);
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, AFullPoolOfEqualObjectsTakesOneMoreForOneLess) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(1000 * 1000));  // 1000 is no size class's lower edge
  std::vector<BlockId> nodes;
  while (const auto got = allocator.allocate(1000)) nodes.push_back(got->node);
  ASSERT_EQ(nodes.size(), 1000u);
  for (int i = 0; i < 1000; i += 7) {
    ASSERT_TRUE(allocator.free(nodes[static_cast<std::size_t>(i)]));
    EXPECT_EQ(allocator.largest_free(), 1000u);
    ASSERT_TRUE(allocator.allocate(1000));
    EXPECT_FALSE(allocator.allocate(1000));
  }
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, AllocationOfLargestFreeAlwaysSucceeds) {
  Pair pair(1);
  pair.grow(100'000);
  for (int i = 0; i < 400; ++i) pair.allocate(pair.random_size());
  for (int i = 0; i < 200; ++i) pair.free_any();
  while (const uint64_t largest = pair.allocator.largest_free()) {
    ASSERT_TRUE(pair.allocator.allocate(largest));
  }
  EXPECT_EQ(pair.allocator.free_granules(), 0u);
  EXPECT_EQ(pair.allocator.used_granules(), 100'000u);
}

TEST(ExtentAllocator, TrimGivesBackTheTail) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  const auto got = allocator.allocate(60);
  ASSERT_TRUE(got);
  EXPECT_FALSE(allocator.trim(got->node, 0));
  EXPECT_FALSE(allocator.trim(got->node, 61));
  EXPECT_TRUE(allocator.trim(got->node, 60));
  EXPECT_EQ(allocator.free_granules(), 40u);
  EXPECT_TRUE(allocator.trim(got->node, 10));
  EXPECT_EQ(allocator.find(got->node).granules, 10u);
  EXPECT_EQ(allocator.largest_free(), 90u);
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, RefusesNodesThatNameNoAllocation) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  const auto got = allocator.allocate(10);
  ASSERT_TRUE(got);
  EXPECT_TRUE(allocator.free(got->node));
  EXPECT_FALSE(allocator.free(got->node));
  EXPECT_FALSE(allocator.trim(got->node, 1));
  EXPECT_FALSE(allocator.free(kNoBlock));
  EXPECT_FALSE(allocator.free(0xffffffff));
  EXPECT_EQ(allocator.find(got->node).granules, 0u);
  for (BlockId node = 0; node < 10; ++node) EXPECT_FALSE(allocator.free(node));
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, NothingIsAllocatedBeyondTheLimit) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  const auto low = allocator.allocate(30);
  const auto across = allocator.allocate(40);  // 30 to 70
  ASSERT_TRUE(low && across);
  allocator.set_limit(50);
  EXPECT_EQ(allocator.free_granules(), 0u);
  EXPECT_EQ(allocator.used_beyond(50), 20u);
  EXPECT_FALSE(allocator.allocate(1));
  ASSERT_TRUE(allocator.free(across->node));
  EXPECT_EQ(allocator.check(), "");
  EXPECT_EQ(allocator.used_beyond(50), 0u);
  EXPECT_EQ(allocator.free_granules(), 20u);
  EXPECT_FALSE(allocator.allocate(21));
  ASSERT_TRUE(allocator.grow(100));  // the tail that grows meanwhile is withdrawn too
  EXPECT_EQ(allocator.largest_free(), 20u);
  allocator.set_limit(150);
  EXPECT_EQ(allocator.largest_free(), 120u);
  allocator.set_limit(ExtentAllocator::kMaxGranules);
  EXPECT_EQ(allocator.largest_free(), 170u);
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, FreeSpaceIsNotJoinedAcrossTheLimit) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  const auto low = allocator.allocate(50);
  const auto high = allocator.allocate(50);
  ASSERT_TRUE(low && high);
  allocator.set_limit(50);
  ASSERT_TRUE(allocator.free(low->node));
  ASSERT_TRUE(allocator.free(high->node));
  EXPECT_EQ(allocator.check(), "");
  EXPECT_EQ(allocator.largest_free(), 50u);
  allocator.set_limit(100);
  EXPECT_EQ(allocator.largest_free(), 100u);
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, TruncateWaitsUntilTheTailIsEmpty) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  const auto low = allocator.allocate(50);
  const auto high = allocator.allocate(50);
  ASSERT_TRUE(low && high);
  allocator.set_limit(50);
  EXPECT_FALSE(allocator.truncate(50));
  EXPECT_FALSE(allocator.truncate(101));
  ASSERT_TRUE(allocator.free(high->node));
  EXPECT_TRUE(allocator.truncate(70));  // in steps, if the caller likes
  EXPECT_EQ(allocator.limit_granules(), 50u);
  EXPECT_TRUE(allocator.truncate(50));
  EXPECT_EQ(allocator.size_granules(), 50u);
  EXPECT_EQ(allocator.check(), "");
  ASSERT_TRUE(allocator.grow(10));  // the limit went with the tail
  EXPECT_EQ(allocator.largest_free(), 10u);
  ASSERT_TRUE(allocator.free(low->node));
  EXPECT_TRUE(allocator.truncate(0));
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, ClaimRefusesForgedRanges) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  EXPECT_NE(claim(allocator, 10, 10), kNoBlock);
  EXPECT_NE(claim(allocator, 0, 10), kNoBlock);
  EXPECT_NE(claim(allocator, 99, 1), kNoBlock);
  for (const auto& [first, granules] : std::vector<GranuleRange>{{10, 10},
                                                                 {19, 2},
                                                                 {15, 1},
                                                                 {90, 10},
                                                                 {20, 80},
                                                                 {20, 0},
                                                                 {100, 1},
                                                                 {99, 2},
                                                                 {0, 101},
                                                                 {~uint64_t{0}, 2},
                                                                 {2, ~uint64_t{0}},
                                                                 {uint64_t{1} << 32, 1}}) {
    EXPECT_EQ(claim(allocator, first, granules), kNoBlock) << first << " " << granules;
  }
  const BlockId rest = claim(allocator, 20, 79);
  ASSERT_NE(rest, kNoBlock);
  EXPECT_EQ(allocator.free_granules(), 0u);
  EXPECT_TRUE(allocator.free(rest));
  EXPECT_EQ(allocator.largest_free(), 79u);
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, ClaimsBeyondTheLimitKeepTheTailFromGoing) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  allocator.set_limit(50);
  const BlockId across = claim(allocator, 45, 10);
  ASSERT_NE(across, kNoBlock);
  EXPECT_EQ(allocator.used_beyond(50), 5u);
  EXPECT_EQ(allocator.limit_granules(), 50u);
  EXPECT_FALSE(allocator.truncate(50));
  EXPECT_EQ(allocator.check(), "");
  EXPECT_TRUE(allocator.free(across));
  EXPECT_TRUE(allocator.truncate(50));
}

TEST(ExtentAllocator, ClaimsAcceptExactlyTheRangesThatFit) {
  Pair pair(2);
  pair.grow(1 << 20);
  for (int i = 0; i < 100; ++i) pair.allocate(1 + pair.below(50));  // used before
  for (int round = 0; round < 4; ++round) {
    std::vector<GranuleRange> ranges;
    for (int i = 0; i < 20'000; ++i) {
      ranges.push_back({pair.below((1 << 20) + 20), pair.below(40)});
    }
    ranges.push_back({5, ~uint64_t{0} - 2});
    ranges.push_back({~uint64_t{0} - 2, 5});
    std::sort(ranges.begin(), ranges.end(), [](const GranuleRange& a, const GranuleRange& b) {
      return a.first_granule < b.first_granule;
    });
    const std::vector<BlockId> nodes = claim_all(pair.allocator, ranges);
    ASSERT_EQ(nodes.size(), ranges.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const auto& [first, granules] = ranges[i];
      const bool fits =
          granules < (1 << 21) && first < (1 << 21) && pair.model.is_free(first, granules);
      ASSERT_EQ(nodes[i] != kNoBlock, fits) << first << " " << granules;
      if (!fits) continue;
      pair.model.use(first, granules);
      pair.live.push_back(
          {nodes[i], static_cast<uint32_t>(first), static_cast<uint32_t>(granules)});
    }
    pair.compare();
    for (int i = 0; i < 5'000; ++i) pair.free_any();
  }
  while (!pair.live.empty()) pair.free_any();
  EXPECT_EQ(pair.allocator.largest_free(), uint64_t{1} << 20);
}

TEST(ExtentAllocator, ClaimsRefuseRangesOutOfOrder) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  const std::vector<GranuleRange> ranges{{50, 10}, {20, 10}, {60, 10}};
  const std::vector<BlockId> nodes = claim_all(allocator, ranges);
  EXPECT_NE(nodes[0], kNoBlock);
  EXPECT_EQ(nodes[1], kNoBlock);
  EXPECT_NE(nodes[2], kNoBlock);
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocator, ARestartFindsTheSameRanges) {
  Pair pair(3);
  pair.grow(1 << 20);
  for (int i = 0; i < 20'000; ++i) pair.step();
  std::vector<GranuleRange> ranges;
  for (const Allocation& one : pair.live) ranges.push_back({one.first_granule, one.granules});
  std::sort(ranges.begin(), ranges.end(), [](const GranuleRange& a, const GranuleRange& b) {
    return a.first_granule < b.first_granule;
  });
  ExtentAllocator restarted;
  ASSERT_TRUE(restarted.grow(pair.model.size()));
  for (const BlockId node : claim_all(restarted, ranges)) ASSERT_NE(node, kNoBlock);
  restarted.set_limit(pair.model.limit());
  EXPECT_EQ(restarted.check(), "");
  EXPECT_EQ(restarted.used_granules(), pair.allocator.used_granules());
  EXPECT_EQ(restarted.free_granules(), pair.allocator.free_granules());
}

TEST(ExtentAllocator, AMillionRandomOperationsAgreeWithTheModel) {
  Pair pair(4);
  pair.grow(100'000);
  for (int i = 0; i < 1'000'000; ++i) {
    pair.step();
    if (i % 1'000 == 0) pair.compare();
    if (HasFatalFailure()) FAIL() << "at operation " << i;
  }
  pair.limit(ExtentAllocator::kMaxGranules);
  while (!pair.live.empty()) pair.free_any();
  pair.compare();
  EXPECT_EQ(pair.allocator.largest_free(), pair.model.size());
}

TEST(ExtentAllocator, BookkeepingStaysWithinTwentyBytesAnAllocation) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(16'000'000));
  const std::size_t before = allocator.memory_bytes();
  for (int i = 0; i < 1'000'000; ++i) ASSERT_TRUE(allocator.allocate(16));
  const std::size_t chunk_bytes = 20 * 16'384;
  EXPECT_LE(allocator.memory_bytes() - before, 20u * 1'000'000u + chunk_bytes + 1024);
}

// ---- Room at one place

using Side = ExtentAllocator::Side;
using Kind = ExtentAllocator::Neighbour::Kind;

TEST(ExtentAllocatorTest, AnAllocationGrowsIntoTheFreeBlocksBesideIt) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  const BlockId first = allocator.allocate(30)->node;
  const BlockId middle = allocator.allocate(10)->node;
  const BlockId last = allocator.allocate(60)->node;
  EXPECT_EQ(allocator.neighbour(middle, Side::kBefore).node, first);
  EXPECT_EQ(allocator.neighbour(first, Side::kBefore).kind, Kind::kNone);
  EXPECT_EQ(allocator.neighbour(last, Side::kBehind).kind, Kind::kNone);
  EXPECT_EQ(allocator.grow_into(middle, Side::kBefore, 5), 0u) << "it is used";
  ASSERT_TRUE(allocator.free(first));
  ASSERT_TRUE(allocator.free(last));
  EXPECT_EQ(allocator.neighbour(middle, Side::kBehind).kind, Kind::kFree);
  EXPECT_EQ(allocator.grow_into(middle, Side::kBefore, 5), 5u);
  EXPECT_EQ(allocator.check(), "");
  EXPECT_EQ(allocator.grow_into(middle, Side::kBehind, 20), 20u);
  EXPECT_EQ(allocator.check(), "");
  EXPECT_EQ(allocator.find(middle).first_granule, 25u);
  EXPECT_EQ(allocator.find(middle).granules, 35u);
  EXPECT_EQ(allocator.grow_into(middle, Side::kBefore, 1000), 25u);
  EXPECT_EQ(allocator.grow_into(middle, Side::kBehind, 1000), 40u);
  EXPECT_EQ(allocator.check(), "");
  EXPECT_EQ(allocator.used_granules(), 100u);
  EXPECT_EQ(allocator.free_granules(), 0u);
  ASSERT_TRUE(allocator.free(middle));
  EXPECT_EQ(allocator.allocate(100)->first_granule, 0u);
}

TEST(ExtentAllocatorTest, NothingGrowsOverTheLimit) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(100));
  const BlockId node = allocator.allocate(10)->node;
  allocator.set_limit(40);
  EXPECT_EQ(allocator.grow_into(node, Side::kBehind, 90), 30u);
  EXPECT_EQ(allocator.grow_into(node, Side::kBehind, 90), 0u);
  EXPECT_EQ(allocator.neighbour(node, Side::kBehind).kind, Kind::kNone);
  EXPECT_EQ(allocator.take_behind(node, 10, 100), kNoBlock);
  EXPECT_EQ(allocator.check(), "");
}

TEST(ExtentAllocatorTest, AnOwnerStaysWithItsAllocationOnly) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(20));
  const BlockId first = allocator.allocate(10)->node;
  const BlockId second = allocator.allocate(10)->node;
  EXPECT_EQ(allocator.neighbour(first, Side::kBehind).owner, ExtentAllocator::kNoOwner);
  allocator.set_owner(second, 77);
  EXPECT_EQ(allocator.neighbour(first, Side::kBehind).owner, 77u);
  ASSERT_TRUE(allocator.free(second));
  allocator.set_owner(second, 78);
  EXPECT_EQ(allocator.check(), "") << "a free block has none";
  ASSERT_EQ(allocator.allocate(10)->first_granule, 10u);
  EXPECT_EQ(allocator.neighbour(first, Side::kBehind).owner, ExtentAllocator::kNoOwner);
}

TEST(ExtentAllocatorTest, TheNextFreeBlockBehindIsFoundPastTheEnd) {
  ExtentAllocator allocator;
  ASSERT_TRUE(allocator.grow(50));
  std::vector<BlockId> nodes;
  for (int i = 0; i < 5; ++i) nodes.push_back(allocator.allocate(10)->node);
  ASSERT_TRUE(allocator.free(nodes[1]));
  EXPECT_EQ(allocator.take_behind(nodes[3], 4, 2), kNoBlock) << "too far";
  const BlockId taken = allocator.take_behind(nodes[3], 4, 3);
  ASSERT_NE(taken, kNoBlock);
  EXPECT_EQ(allocator.find(taken).first_granule, 10u);
  EXPECT_EQ(allocator.find(taken).granules, 4u);
  EXPECT_EQ(allocator.check(), "");
  const BlockId rest = allocator.take_behind(taken, 100, 1);
  EXPECT_EQ(allocator.find(rest).granules, 6u);
  EXPECT_EQ(allocator.check(), "");
}

}  // namespace
}  // namespace mc::agent
