// SPDX-License-Identifier: Apache-2.0
//
// Shrinking pools. A step is never longer than a tick may be, also with a large object in a full pool.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>

#include "agent/pool/object_store.h"
#include "patience.h"

namespace mc::agent {
namespace {

constexpr std::uint64_t kShrinkSession = 7;
constexpr std::uint64_t kShrinkMiB = 1 << 20;

class ShrinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ObjectStore::Config config;
    config.pool_bytes = config.max_pool_bytes = 64 * kShrinkMiB;
    store_ = std::move(*ObjectStore::create(config, [](std::vector<std::uint64_t>&) {}));
    while (pool().growing()) take_event();
  }
  ExtentPool& pool() { return store_->pool(); }
  bool take_event() {
    pollfd event{pool().event_fd(), POLLIN, 0};
    if (::poll(&event, 1, 1) != 1) return false;
    pool().on_chunk();
    return true;
  }
  void put(std::string_view key, std::uint64_t bytes, mc_pin pin = MC_PIN_NONE) {
    PutOrder order;
    order.pin = pin;
    order.key = key;
    order.length = bytes;
    ASSERT_EQ(store_->reserve(kShrinkSession, bytes, true, order.entry), ObjectStore::Reserve::kOk);
    const std::vector<std::byte> value(bytes, std::byte(key[0]));
    store_->write(order.entry, 0, value);
    ASSERT_EQ(store_->publish(kShrinkSession, order), ObjectStore::Put::kStored);
  }
  void remove(std::string_view key) {
    ASSERT_TRUE(store_->remove(key));
    store_->reclaim();
  }
  // The object's entry, if the object is found and has its bytes.
  OptionalId find(std::string_view key) {
    const auto entry = store_->index().find(key, store_->index().hash(key));
    if (!entry) return entry;
    std::vector<std::byte> value(store_->index().entry(*entry).length.load_relaxed());
    store_->read(*entry, 0, value);
    for (const std::byte byte : value) {
      if (byte != std::byte(key[0])) return std::nullopt;
    }
    return entry;
  }
  bool settles() {
    return until([&] {
      store_->tick(1);
      take_event();
      return !pool().shrinking();
    });
  }

  std::unique_ptr<ObjectStore> store_;
};

TEST_F(ShrinkTest, AnEmptyPoolGivesItsMemoryBackAStepAtATime) {
  store_->resize(8 * kShrinkMiB);
  std::uint64_t before = pool().reserved_bytes();
  unsigned steps = 0;
  ASSERT_TRUE(until([&] {
    store_->tick(1);
    const std::uint64_t now = pool().reserved_bytes();
    EXPECT_LE(before - now, 16 * kShrinkMiB);
    steps += now < before ? 1 : 0;
    before = now;
    take_event();
    return !pool().shrinking();
  }));
  EXPECT_EQ(pool().reserved_bytes(), 8 * kShrinkMiB);
  EXPECT_LE(pool().file().resident_bytes(), 8 * kShrinkMiB);
  EXPECT_GE(steps, 4u);
}

TEST_F(ShrinkTest, ALargeObjectMovesInStepsAndIsServedMeanwhile) {
  put("front", 30 * kShrinkMiB);
  put("large", 20 * kShrinkMiB);
  remove("front");
  const OptionalId first = find("large");
  ASSERT_TRUE(first);
  store_->resize(32 * kShrinkMiB);
  unsigned steps = 0;
  for (; find("large") == first; ++steps) {
    ASSERT_LT(steps, 80u);
    EXPECT_TRUE(store_->shrink_some());
  }
  EXPECT_EQ(steps, 40u) << "512 KiB a step";
  EXPECT_TRUE(find("large"));
  EXPECT_EQ(store_->held_bytes(), 0u);
  ASSERT_TRUE(settles());
  EXPECT_TRUE(find("large"));
  EXPECT_EQ(pool().reserved_bytes(), 32 * kShrinkMiB);
  EXPECT_EQ(pool().used_bytes(), 20 * kShrinkMiB);
}

TEST_F(ShrinkTest, AMoveUnderWayEndsWithItsObject) {
  put("front", 30 * kShrinkMiB);
  put("large", 20 * kShrinkMiB);
  remove("front");
  store_->resize(32 * kShrinkMiB);
  store_->tick(1);
  store_->tick(1);
  EXPECT_EQ(store_->held_bytes(), 20 * kShrinkMiB);
  remove("large");
  put("other", 20 * kShrinkMiB);  // may get the same entry
  ASSERT_TRUE(settles());
  EXPECT_TRUE(find("other"));
  EXPECT_EQ(store_->held_bytes(), 0u);
  EXPECT_EQ(pool().used_bytes(), 20 * kShrinkMiB);
}

TEST_F(ShrinkTest, AMoveUnderWayIsGivenUpIfThePoolGrowsAgainWhileTheSystemTakesPages) {
  put("front", 30 * kShrinkMiB);
  put("large", 20 * kShrinkMiB);
  remove("front");
  store_->resize(16 * kShrinkMiB);
  // The first step gives the empty tail back; the event about the pages stays unread.
  ASSERT_TRUE(until([&] {
    EXPECT_TRUE(store_->shrink_some());
    return store_->held_bytes() > 0;
  }));
  store_->resize(64 * kShrinkMiB);
  ASSERT_TRUE(until([&] {
    take_event();
    store_->tick(1);
    return !pool().growing() && !pool().shrinking();
  }));
  store_->tick(1);
  EXPECT_EQ(store_->held_bytes(), 0u);
  EXPECT_TRUE(find("large"));
}

TEST_F(ShrinkTest, AHardPinWithoutRoomDoesNotKeepAnotherObjectFromMoving) {
  put("front", 7 * kShrinkMiB);
  put("between", 41 * kShrinkMiB);
  put("movable", 6 * kShrinkMiB);
  put("pinned", 8 * kShrinkMiB, MC_PIN_HARD);
  remove("front");
  const OptionalId first = find("movable");
  store_->resize(48 * kShrinkMiB);
  // The last object of an arena leaves first: each step meets the pinned object before the other.
  for (int steps = 0; steps < 12; ++steps) EXPECT_TRUE(store_->shrink_some());
  EXPECT_NE(find("movable"), first);
  EXPECT_TRUE(find("movable"));
  EXPECT_FALSE(store_->shrink_some()) << "the shrink waits for the pin";
  remove("pinned");
  ASSERT_TRUE(settles());
  EXPECT_EQ(pool().reserved_bytes(), 48 * kShrinkMiB);
}

TEST_F(ShrinkTest, WithoutRoomElsewhereObjectsAreEvicted) {
  for (int i = 0; i < 15; ++i) put("object-" + std::to_string(i), 4 * kShrinkMiB);
  store_->resize(16 * kShrinkMiB);
  ASSERT_TRUE(settles());
  EXPECT_EQ(pool().reserved_bytes(), 16 * kShrinkMiB);
  EXPECT_LE(store_->live_bytes(), 16 * kShrinkMiB);
  EXPECT_GE(store_->live_count(), 3u);
}

TEST_F(ShrinkTest, AResizeBackWhileThePoolShrinksKeepsAllObjects) {
  for (int i = 0; i < 8; ++i) put("object-" + std::to_string(i), 2 * kShrinkMiB);
  for (int round = 0; round < 5; ++round) {
    store_->resize(20 * kShrinkMiB);
    store_->tick(1);
    take_event();
    store_->resize(64 * kShrinkMiB);
    ASSERT_TRUE(until([&] {
      take_event();
      return !pool().growing() && !pool().shrinking();
    }));
    EXPECT_EQ(pool().reserved_bytes(), 64 * kShrinkMiB);
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(find("object-" + std::to_string(i))) << i;
  }
}

}  // namespace
}  // namespace mc::agent
