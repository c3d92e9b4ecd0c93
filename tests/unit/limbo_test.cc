// SPDX-License-Identifier: Apache-2.0
//
// Objects that left while readers hold views of the objects.
#include "agent/pool/limbo.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "agent/pool/object_store.h"
#include "shm/pins.h"

namespace mc::agent {
namespace {

constexpr std::uint64_t kPuttingSession = 7;

class LimboTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ObjectStore::Config config;
    config.pool_bytes = config.max_pool_bytes = 8 << 20;
    store_ = std::move(*ObjectStore::create(config, [this](std::vector<std::uint64_t>& pins) {
      ++looks_;
      pins = pins_;
    }));
    while (store_->pool().growing()) {
      pollfd chunk{store_->pool().event_fd(), POLLIN, 0};
      ::poll(&chunk, 1, 1000);
      store_->pool().on_chunk();
    }
  }
  void put(const std::string& key) {
    PutOrder order;
    order.key = key;
    order.length = 100;
    ASSERT_EQ(store_->reserve(kPuttingSession, 100, true, order.entry), ObjectStore::Reserve::kOk);
    ASSERT_EQ(store_->publish(kPuttingSession, order), ObjectStore::Put::kStored);
    store_->catch_up();
  }
  // A reader holds a view, and the object is removed.
  void remove_under_a_view(const std::string& key) {
    const auto entry = store_->index().find(key, store_->index().hash(key));
    ASSERT_TRUE(entry);
    pins_.push_back(shm::pin_value(*entry, store_->index().entry(*entry).version.load_relaxed()));
    ASSERT_TRUE(store_->remove(key));
  }

  std::unique_ptr<ObjectStore> store_;
  std::vector<std::uint64_t> pins_;
  unsigned looks_ = 0;  // at all pins
};

TEST_F(LimboTest, ViewsOfRemovedObjectsCostLaterPutsNothing) {
  constexpr unsigned kViews = 600;
  for (unsigned i = 0; i < kViews; ++i) put("viewed-" + std::to_string(i));
  for (unsigned i = 0; i < kViews; ++i) remove_under_a_view("viewed-" + std::to_string(i));
  store_->reclaim();
  EXPECT_EQ(store_->limbo_count(), kViews);
  const unsigned before = looks_;
  for (unsigned i = 0; i < 200; ++i) put("later-" + std::to_string(i));
  EXPECT_EQ(looks_, before);
  pins_.clear();
  store_->tick(1);
  EXPECT_EQ(store_->limbo_count(), 0u);
}

TEST_F(LimboTest, ManyObjectsThatLeftAreLookedAtBetweenRequests) {
  for (unsigned i = 0; i < 600; ++i) put("object-" + std::to_string(i));
  const unsigned before = looks_;
  for (unsigned i = 0; i < 600; ++i) ASSERT_TRUE(store_->remove("object-" + std::to_string(i)));
  EXPECT_EQ(store_->limbo_count(), 600u);
  for (unsigned i = 0; i < 600; ++i) put("later-" + std::to_string(i));
  EXPECT_EQ(store_->limbo_count(), 0u);
  EXPECT_EQ(looks_, before + 1);
}

}  // namespace
}  // namespace mc::agent
