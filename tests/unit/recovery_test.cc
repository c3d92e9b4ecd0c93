// SPDX-License-Identifier: Apache-2.0
//
// An agent dies at a bad moment. The next agent takes over the files and serves only whole objects.
#include "agent/pool/recovery.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <bit>

#include "agent/pool/object_store.h"

namespace mc::agent {
namespace {

constexpr std::uint64_t kObjectBytes = 100;  // of each object
constexpr std::uint64_t kSession = 7;
constexpr std::uint64_t kGoneSession = 8;
constexpr std::uint32_t kGroup = 3;

class RecoveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.pool_bytes = config_.max_pool_bytes = config_.capacity_bytes = 8 << 20;
    store_ = std::move(*ObjectStore::create(config_, [](std::vector<std::uint64_t>&) {}));
    while (store_->pool().growing()) {
      pollfd chunk{store_->pool().event_fd(), POLLIN, 0};
      ::poll(&chunk, 1, 1000);
      store_->pool().on_chunk();
    }
  }
  std::uint32_t reserve(std::uint64_t session = kSession) {
    std::uint32_t entry = kNoEntry;
    EXPECT_EQ(store_->reserve(session, kObjectBytes, true, entry), ObjectStore::Reserve::kOk);
    return entry;
  }
  void put(std::string_view key, std::uint32_t group) {
    PutOrder order;
    order.key = key;
    order.group = group;
    put(order);
  }
  void put(PutOrder order) {
    order.entry = reserve();
    order.length = kObjectBytes;
    EXPECT_EQ(store_->publish(kSession, order), ObjectStore::Put::kStored);
  }
  // Evicts until only this many objects are left.
  bool evict_all_but(std::uint64_t count) {
    return store_->make_room(store_->capacity_bytes() - count * kObjectBytes);
  }
  // The agent dies, and the next agent takes over the files and knows kSession alone.
  void recover() {
    MemoryFile index = std::move(*store_->index().file().duplicate());
    MemoryFile pool = std::move(*store_->pool().file().duplicate());
    store_.reset();
    auto next = ObjectStore::recover(
        config_, [](std::vector<std::uint64_t>&) {}, std::move(index), std::move(pool),
        [](std::uint64_t session) { return session == kSession; }, [this] { ++progress_; });
    ASSERT_TRUE(next) << next.error().to_string();
    store_ = std::move(*next);
  }
  bool found(std::string_view key) const {
    return store_->index().find(key, store_->index().hash(key)).has_value();
  }

  ObjectStore::Config config_;
  std::unique_ptr<ObjectStore> store_;
  unsigned progress_ = 0;
};

TEST_F(RecoveryTest, ObjectsAndReservationsOfLiveSessionsStay) {
  put("a", 0);
  const std::uint32_t kept = reserve();
  reserve(kGoneSession);
  recover();
  EXPECT_TRUE(found("a"));
  EXPECT_EQ(store_->live_count(), 1u);
  EXPECT_EQ(store_->reserved_count(), 1u);
  EXPECT_TRUE(store_->is_reserved_by(kSession, kept));
  EXPECT_GT(progress_, 0u);
  const auto found = store_->take_recovered_reservations();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].session_id, kSession);
  EXPECT_EQ(found[0].entry, kept);
}

// The policy learns of the objects of an earlier agent a few at a time, and still evicts children
// before their parents.
TEST_F(RecoveryTest, AnAdoptedChildIsEvictedBeforeItsParent) {
  put("parent", 0);
  PutOrder child;
  child.key = "child";
  child.parent_hash = store_->index().hash("parent");
  put(child);
  recover();
  EXPECT_TRUE(evict_all_but(1));
  EXPECT_TRUE(found("parent"));
  EXPECT_FALSE(found("child"));
}

TEST_F(RecoveryTest, ObjectsThatThePolicyDoesNotKnowYetCanBeUsedRemovedAndReplaced) {
  constexpr unsigned kObjects = 500;
  const auto key = [](unsigned i) { return "object-" + std::to_string(i); };
  for (unsigned i = 0; i < kObjects; ++i) put(key(i), 0);
  recover();
  for (unsigned i = 0; i < kObjects; i += 5) EXPECT_TRUE(store_->remove(key(i)));
  store_->reclaim();
  for (unsigned i = 0; i < kObjects; i += 5) put(key(i), 0);  // reuses the entries
  for (unsigned i = 1; i < kObjects; i += 5) {
    store_->touch(*store_->index().find(key(i), store_->index().hash(key(i))));
  }
  PutOrder again;
  const std::string replaced = key(2);
  again.key = replaced;
  again.upsert = true;
  put(again);
  EXPECT_TRUE(store_->set_pin(key(3), MC_PIN_HARD, 0));
  EXPECT_EQ(store_->live_count(), kObjects);
  EXPECT_TRUE(evict_all_but(kObjects / 2));
  EXPECT_EQ(store_->live_count(), kObjects / 2);
  EXPECT_TRUE(evict_all_but(1));
  EXPECT_TRUE(found(key(3)));
  EXPECT_FALSE(evict_all_but(0)) << "the object left is hard pinned";
  EXPECT_EQ(store_->live_count(), 1u);
}

TEST_F(RecoveryTest, AVictimIsFoundBehindManyPinnedObjects) {
  constexpr unsigned kPinned = 300;
  for (unsigned i = 0; i < kPinned; ++i) {
    PutOrder pinned;
    const std::string key = "pinned-" + std::to_string(i);
    pinned.key = key;
    pinned.pin = MC_PIN_HARD;
    put(pinned);
  }
  put("free", 0);
  recover();
  EXPECT_TRUE(evict_all_but(kPinned));
  EXPECT_FALSE(found("free"));
  EXPECT_FALSE(evict_all_but(kPinned - 1));
}

TEST_F(RecoveryTest, NoMemberOfAGroupThatWasNotCommittedIsServed) {
  put("first", kGroup);
  put("second", kGroup);
  put("other", kGroup + 1);
  put("alone", 0);
  store_->index().header().committing_group.store_relaxed(kGroup);
  recover();
  EXPECT_FALSE(found("first") || found("second"));
  EXPECT_TRUE(found("other") && found("alone"));
  EXPECT_EQ(store_->index().header().committing_group.load_relaxed(), 0u);
}

// The agent died after writing the key and before writing the version. The client repeats the put.
TEST_F(RecoveryTest, AnUnfinishedPutIsAReservationAgain) {
  const std::uint32_t entry_id = reserve();
  shm::Entry& entry = store_->index().entry(entry_id);
  shm::KeyField field = key_field(entry);
  field.key_bytes = 1;
  entry.key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  entry.hash.store_relaxed(store_->index().hash("a"));
  store_->index().header().publishing_session.store_relaxed(kSession);
  store_->index().header().publishing_entry.store_relaxed(entry_id + std::uint64_t{1});
  recover();
  EXPECT_FALSE(found("a"));
  EXPECT_TRUE(store_->is_reserved_by(kSession, entry_id));
  EXPECT_EQ(store_->index().header().publishing_entry.load_relaxed(), 0u);
}

}  // namespace
}  // namespace mc::agent
