// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/index/key_heap.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace mc::agent {
namespace {

using std::uint32_t;
using std::uint64_t;

constexpr uint64_t kMiB = 1024 * 1024;

// The owner of a file of a given size. Counts the requests for more.
struct File {
  uint64_t max_bytes = KeyHeap::kMaxBytes;
  uint64_t usable_bytes = 0;
  int calls = 0;

  KeyHeap::MakeUsable make_usable() {
    return [this](uint64_t first_byte, uint64_t bytes) {
      ++calls;
      EXPECT_EQ(first_byte, usable_bytes);
      if (first_byte + bytes > max_bytes) return false;
      usable_bytes = first_byte + bytes;
      return true;
    };
  }
};

struct Record {
  uint32_t ref;
  uint32_t bytes;
  uint64_t first_byte() const { return uint64_t{ref} * KeyHeap::kUnitBytes; }
};

TEST(KeyHeap, GrantsOnlySizesWithinItsRange) {
  File file;
  KeyHeap heap(file.make_usable());
  EXPECT_FALSE(heap.allocate(0));
  EXPECT_FALSE(heap.allocate(KeyHeap::kMaxRecordBytes + 1));
  EXPECT_FALSE(heap.allocate(0xffffffff));
  EXPECT_EQ(file.calls, 0);
  EXPECT_TRUE(heap.allocate(1));
  EXPECT_TRUE(heap.allocate(KeyHeap::kMaxRecordBytes - 1));
  EXPECT_TRUE(heap.allocate(KeyHeap::kMaxRecordBytes));
  EXPECT_EQ(heap.used_bytes(), 16u + 1200 + 1200);
  EXPECT_EQ(heap.check(), "");
}

TEST(KeyHeap, AsksForMoreOnceAMegabyte) {
  File file;
  KeyHeap heap(file.make_usable());
  for (int i = 0; i < 3 * 1024 * 16; ++i) ASSERT_TRUE(heap.allocate(64));
  EXPECT_EQ(file.calls, 3);
  EXPECT_EQ(heap.reserved_bytes(), 3 * kMiB);
  EXPECT_EQ(heap.used_bytes(), 3 * kMiB);
  EXPECT_EQ(heap.check(), "");
}

TEST(KeyHeap, AFullFileFailsCleanlyAndServesAgainAfterAFree) {
  File file;
  file.max_bytes = 2 * kMiB;
  KeyHeap heap(file.make_usable());
  std::vector<uint32_t> refs;
  while (const auto ref = heap.allocate(100)) refs.push_back(*ref);
  EXPECT_EQ(heap.reserved_bytes(), 2 * kMiB);
  EXPECT_EQ(refs.size(), 32u * (4096 / 7));
  EXPECT_FALSE(heap.allocate(1));
  EXPECT_EQ(heap.check(), "");
  EXPECT_TRUE(heap.free(refs.back(), 100));
  EXPECT_EQ(heap.allocate(97), refs.back());
  EXPECT_FALSE(heap.allocate(97));
}

TEST(KeyHeap, AnEmptySlabServesAnotherClass) {
  File file;
  file.max_bytes = kMiB;
  KeyHeap heap(file.make_usable());
  std::vector<uint32_t> refs;
  while (const auto ref = heap.allocate(16)) refs.push_back(*ref);
  EXPECT_EQ(refs.size(), 65'536u);
  EXPECT_FALSE(heap.allocate(1200));
  const std::size_t full_bytes = heap.memory_bytes();
  for (const uint32_t ref : refs) ASSERT_TRUE(heap.free(ref, 16));
  EXPECT_EQ(heap.used_bytes(), 0u);
  EXPECT_LT(heap.memory_bytes(), full_bytes);
  std::size_t count = 0;
  while (heap.allocate(1200)) ++count;
  EXPECT_EQ(count, 16u * (4096 / 75));
  EXPECT_EQ(heap.check(), "");
}

TEST(KeyHeap, RefusesToFreeAnInvalidRecord) {
  File file;
  KeyHeap heap(file.make_usable());
  const auto ref = heap.allocate(64);
  ASSERT_TRUE(ref);
  EXPECT_FALSE(heap.free(*ref, 80));
  EXPECT_FALSE(heap.free(*ref, 0));
  EXPECT_FALSE(heap.free(*ref + 1, 64));
  EXPECT_FALSE(heap.free(*ref + 4, 64));
  EXPECT_FALSE(heap.free(*ref + 4096, 64));
  EXPECT_FALSE(heap.free(KeyHeap::kNoRef, 64));
  EXPECT_TRUE(heap.free(*ref, 49));  // the same size class
  EXPECT_FALSE(heap.free(*ref, 64));
  EXPECT_EQ(heap.check(), "");
}

TEST(KeyHeap, ClaimRefusesForgedRecords) {
  File file;
  KeyHeap heap(file.make_usable(), kMiB);
  EXPECT_EQ(heap.reserved_bytes(), kMiB);
  EXPECT_TRUE(heap.claim(0, 64));
  EXPECT_FALSE(heap.claim(0, 64)) << "twice";
  EXPECT_FALSE(heap.claim(2, 64)) << "misaligned";
  EXPECT_FALSE(heap.claim(4, 80)) << "another class";
  EXPECT_FALSE(heap.claim(5, 80)) << "another class, aligned for it";
  EXPECT_FALSE(heap.claim(4, 0));
  EXPECT_FALSE(heap.claim(4, 1201));
  EXPECT_FALSE(heap.claim(65'536, 64)) << "beyond the file";
  EXPECT_FALSE(heap.claim(KeyHeap::kNoRef, 16));
  EXPECT_FALSE(heap.claim(4096 + 54 * 75, 1200)) << "the slab's last units are too few";
  EXPECT_TRUE(heap.claim(4096 + 53 * 75, 1200));
  EXPECT_EQ(heap.check(), "");
  EXPECT_EQ(heap.used_bytes(), 64u + 1200);
  EXPECT_TRUE(heap.free(4096 + 53 * 75, 1200));
  EXPECT_TRUE(heap.claim(4096 + 1, 16)) << "the emptied slab is anybody's";
  EXPECT_EQ(heap.check(), "");
}

TEST(KeyHeap, OnlyWholeSlabsOfAFoundFileCount) {
  File file;
  file.usable_bytes = 2 * 65'536;
  KeyHeap heap(file.make_usable(), 3 * 65'536 - 1);
  EXPECT_EQ(heap.reserved_bytes(), 2u * 65'536);
  for (int i = 0; i < 3 * 1024; ++i) ASSERT_TRUE(heap.allocate(64));
  EXPECT_EQ(file.calls, 1);
  EXPECT_EQ(heap.check(), "");
}

TEST(KeyHeap, StopsAtTheReachOfItsReferences) {
  File file;
  KeyHeap heap(file.make_usable(), ~uint64_t{0});
  EXPECT_EQ(heap.reserved_bytes(), KeyHeap::kMaxBytes);
  EXPECT_FALSE(heap.claim(KeyHeap::kNoRef, 16));
  EXPECT_TRUE(heap.claim(static_cast<uint32_t>(KeyHeap::kMaxBytes / 16 - 1), 16));
  EXPECT_EQ(heap.used_bytes(), 16u);
  EXPECT_EQ(file.calls, 0);
}

TEST(KeyHeap, BookkeepingStaysWithinTwoBytesAKey) {
  File file;
  KeyHeap heap(file.make_usable());
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(heap.allocate(64));
  EXPECT_LE(heap.memory_bytes(), 2u * 100'000);
}

TEST(KeyHeap, AMillionRandomOperationsNeverOverlapAndARestartFindsThemAll) {
  File file;
  file.max_bytes = 8 * kMiB;
  KeyHeap heap(file.make_usable());
  std::mt19937_64 random(7);
  std::vector<Record> live;
  std::map<uint64_t, uint64_t> ranges;  // first byte to end
  for (int i = 0; i < 1'000'000; ++i) {
    // Phases of growth and of decline, so that slabs fill, empty and change class.
    const bool growing = i / 50'000 % 2 == 0;
    if (random() % 100 < (growing ? 70u : 30u)) {
      const auto bytes = static_cast<uint32_t>(1 + random() % (random() % 4 == 0 ? 1200 : 150));
      const auto ref = heap.allocate(bytes);
      if (!ref) continue;
      const Record record{*ref, bytes};
      const auto [at, fresh] = ranges.emplace(record.first_byte(), record.first_byte() + bytes);
      ASSERT_TRUE(fresh);
      ASSERT_LE(at->second, file.usable_bytes);
      if (at != ranges.begin()) {
        ASSERT_LE(std::prev(at)->second, at->first);
      }
      if (std::next(at) != ranges.end()) {
        ASSERT_GE(std::next(at)->first, at->second);
      }
      live.push_back(record);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_TRUE(heap.free(live.back().ref, live.back().bytes));
      ranges.erase(live.back().first_byte());
      live.pop_back();
    }
    if (i % 1'000 == 0) {
      ASSERT_EQ(heap.check(), "") << "at operation " << i;
    }
  }
  KeyHeap restarted(file.make_usable(), file.usable_bytes);
  for (const Record& record : live) ASSERT_TRUE(restarted.claim(record.ref, record.bytes));
  for (const Record& record : live) ASSERT_FALSE(restarted.claim(record.ref, record.bytes));
  EXPECT_EQ(restarted.check(), "");
  EXPECT_EQ(restarted.used_bytes(), heap.used_bytes());
  for (const Record& record : live) ASSERT_TRUE(heap.free(record.ref, record.bytes));
  EXPECT_EQ(heap.used_bytes(), 0u);
  EXPECT_EQ(heap.check(), "");
}

}  // namespace
}  // namespace mc::agent
