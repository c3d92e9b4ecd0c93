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

constexpr std::uint64_t kSession = 7;
constexpr std::uint64_t kGoneSession = 8;
constexpr std::uint32_t kGroup = 3;

class RecoveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.pool_bytes = config_.max_pool_bytes = 8 << 20;
    store_ = std::move(*ObjectStore::create(config_, [](std::vector<std::uint64_t>&) {}));
    while (store_->pool().growing()) {
      pollfd chunk{store_->pool().event_fd(), POLLIN, 0};
      ::poll(&chunk, 1, 1000);
      store_->pool().on_chunk();
    }
  }
  std::uint32_t reserve(std::uint64_t session = kSession) {
    std::uint32_t entry = kNoEntry;
    EXPECT_EQ(store_->reserve(session, 100, true, entry), ObjectStore::Reserve::kOk);
    return entry;
  }
  void put(std::string_view key, std::uint32_t group) {
    PutOrder order;
    order.key = key;
    order.entry = reserve();
    order.length = 100;
    order.group = group;
    EXPECT_EQ(store_->publish(kSession, order), ObjectStore::Put::kStored);
  }
  // The agent dies, and the next agent takes over the files and knows kSession alone.
  void recover() {
    const auto take = [](const MemoryFile& file) {
      return std::move(*MemoryFile::adopt(Fd(::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0))));
    };
    MemoryFile index = take(store_->index().file());
    MemoryFile pool = take(store_->pool().file());
    store_.reset();
    auto next = ObjectStore::recover(
        config_, [](std::vector<std::uint64_t>&) {}, std::move(index), std::move(pool),
        [](std::uint64_t session) { return session == kSession; });
    ASSERT_TRUE(next) << next.error().to_string();
    store_ = std::move(*next);
  }
  bool found(std::string_view key) const {
    return store_->index().find(key, store_->index().hash(key)).has_value();
  }

  ObjectStore::Config config_;
  std::unique_ptr<ObjectStore> store_;
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
