// SPDX-License-Identifier: Apache-2.0
//
// The pool of one namespace: reservations and groups have numbers that never mean two things.
#include "agent/pool/object_store.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "agent/pool/index/object_index.h"

namespace mc::agent {
namespace {

constexpr std::uint64_t kSession = 7;

class ObjectStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ObjectStore::Config config;
    config.pool_bytes = 8 << 20;
    auto store = ObjectStore::create(config, [](std::vector<std::uint64_t>&) {});
    ASSERT_TRUE(store);
    store_ = std::move(*store);
    while (store_->pool().growing()) {
      pollfd chunk{store_->pool().event_fd(), POLLIN, 0};
      ::poll(&chunk, 1, 1000);
      store_->pool().on_chunk();
    }
  }
  std::uint32_t reserve() {
    std::uint32_t entry = kNoEntry;
    EXPECT_EQ(store_->reserve(kSession, 100, true, entry), ObjectStore::Reserve::kOk);
    return entry;
  }
  PutOrder order(std::string_view key) {
    PutOrder order;
    order.key = key;
    order.entry = reserve();
    order.length = 100;
    return order;
  }
  ObjectStore::Put publish(std::vector<PutOrder> orders) {
    std::size_t failed = 0;
    return store_->publish_group(kSession, orders, failed);
  }
  OptionalId find(std::string_view key) {
    return store_->index().find(key, store_->index().hash(key));
  }
  std::uint32_t group_of(std::string_view key) {
    return attribute_field(store_->index().entry(find(key).value())).group;
  }

  std::unique_ptr<ObjectStore> store_;
};

TEST_F(ObjectStoreTest, EachReservationOfAnEntryHasAnotherGeneration) {
  const std::uint32_t entry = reserve();
  const std::uint64_t first = store_->generation_of(entry);
  ASSERT_TRUE(store_->abandon(kSession, entry));
  ASSERT_EQ(reserve(), entry) << "the test needs the entry to be granted again";
  EXPECT_NE(store_->generation_of(entry), first);
}

TEST_F(ObjectStoreTest, AGroupsNumberIsNotGivenToAnotherGroupWhileTheGroupLives) {
  ASSERT_EQ(publish({order("a"), order("b")}), ObjectStore::Put::kStored);
  const std::uint32_t number = group_of("a");
  const PutOrder later = order("c");
  // The sequence comes to the same number again after 2^32 - 1 steps.
  store_->index().header().next_sequence.store_relaxed(std::uint64_t{number} - 1 + 0xffffffff);
  ASSERT_EQ(publish({later}), ObjectStore::Put::kStored);
  EXPECT_TRUE(find("a") && find("b"));
  EXPECT_NE(group_of("c"), number);
}

}  // namespace
}  // namespace mc::agent
