// SPDX-License-Identifier: Apache-2.0
//
// Listings and removals by pattern: a bounded part a turn. A walk misses no object that exists all
// the time, even if the object moves meanwhile.
#include "agent/cluster/namespace/index_walks.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <set>
#include "metadata/directory/key_hash.h"

namespace mc::agent {
namespace {

namespace wire = metadata::wire;

constexpr std::uint64_t kSession = 7;

class IndexWalksTest : public ::testing::Test, public ArrivalListener {
 protected:
  void SetUp() override {
    auto made = std::make_shared<Tenant>();
    made->name = "walked";
    ObjectStore::Config config;
    config.pool_bytes = 8 << 20;
    auto store = ObjectStore::create(config, [](std::vector<std::uint64_t>&) {});
    ASSERT_TRUE(store);
    made->store = std::move(*store);
    while (made->store->pool().growing()) {
      pollfd chunk{made->store->pool().event_fd(), POLLIN, 0};
      ::poll(&chunk, 1, 1000);
      made->store->pool().on_chunk();
    }
    auto book = VersionBook::open({}, made->store->index().header().max_entries);
    ASSERT_TRUE(book);
    tenant_ = std::make_unique<ClusterTenant>(made, hasher_, clock_, std::move(*book), this);
    made->store->set_listener(tenant_.get());
  }
  void on_arrival(const ClusterTenant& tenant, std::uint32_t entry, bool is_put) override {
    walks_.arrived(tenant, entry, is_put);
  }
  void on_put(const metadata::PublishItem&) override {}
  void on_not_on_disks(ClusterTenant&, const std::shared_ptr<RemoteRequest>&,
                       std::size_t) override {}
  ObjectStore& store() { return tenant_->store(); }

  void put(const std::string& key, bool upsert = false) {
    std::uint32_t entry = 0;
    ASSERT_EQ(store().reserve(kSession, 100, true, entry), ObjectStore::Reserve::kOk);
    PutOrder order;
    order.key = key;
    order.entry = entry;
    order.length = 100;
    order.upsert = upsert;
    ASSERT_EQ(store().publish(kSession, order), ObjectStore::Put::kStored);
  }
  void put_many(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) put(key_of(i));
  }
  static std::string key_of(std::size_t number) {
    std::string text = std::to_string(100'000 + number);
    return "key " + text;
  }
  static wire::Match match(const std::string& pattern, std::uint32_t limit = 0,
                           wire::Match::Kind kind = wire::Match::Kind::kPrefix) {
    wire::Match made;
    made.name_space = "walked";
    made.pattern = pattern;
    made.kind = kind;
    made.limit = limit;
    return made;
  }
  void list(std::uint32_t limit) {
    walks_.list(*tenant_, match("key ", limit), partition_,
                [this](const Result<wire::ListAnswer>& answer) { listed_ = *answer; });
  }
  void remove(const std::string& pattern, wire::Match::Kind kind) {
    walks_.remove(*tenant_, match(pattern, 0, kind), partition_,
                  [this](Result<wire::RemoveMatchingAnswer> answer) { removed_ = answer; });
  }
  std::size_t turns() {
    std::size_t count = 0;
    for (; walks_.next_ns() != UINT64_MAX; ++count) walks_.turn(UINT64_MAX);
    return count;
  }

  metadata::KeyHasher hasher_{"secret"};
  VersionClock clock_{1};
  std::unique_ptr<ClusterTenant> tenant_;
  IndexWalks walks_;
  IndexWalks::Partition partition_;  // all keys, until a test changes this
  std::optional<wire::ListAnswer> listed_;
  std::optional<Result<wire::RemoveMatchingAnswer>> removed_;
};

TEST_F(IndexWalksTest, ATurnLooksAtABoundedPartOfTheIndex) {
  constexpr std::size_t kKeys = 20 * IndexWalks::kEntriesPerTurn;
  put_many(kKeys);
  list(10);
  EXPECT_FALSE(listed_);
  EXPECT_GE(turns(), 20u);
  ASSERT_TRUE(listed_);
  ASSERT_EQ(listed_->keys.size(), 10u);
  EXPECT_EQ(listed_->keys.front().key, key_of(0));
  EXPECT_EQ(listed_->keys.back().key, key_of(9));
  EXPECT_TRUE(listed_->more);

  // The keys left after each turn show the amount of work of a turn.
  remove("^key 1", wire::Match::Kind::kRegex);
  std::uint64_t before = store().live_count();
  while (walks_.next_ns() != UINT64_MAX) {
    walks_.turn(UINT64_MAX);
    EXPECT_LE(before - store().live_count(), IndexWalks::kEntriesPerTurn);
    before = store().live_count();
  }
  ASSERT_TRUE(removed_ && *removed_);
  EXPECT_EQ((*removed_)->removed, kKeys);
  EXPECT_EQ(store().live_count(), 0u);
}

TEST_F(IndexWalksTest, AKeyReplacedBehindTheCursorIsListedAllTheSame) {
  constexpr std::size_t kKeys = 3 * IndexWalks::kEntriesPerTurn;
  put("zz");
  put_many(kKeys);
  ASSERT_TRUE(store().remove("zz"));  // its entry, the first one, is free again
  store().reclaim();
  list(1024);
  walks_.turn(UINT64_MAX);
  // The last key of the first page moves to the entry that the cursor has passed.
  put(key_of(kKeys - 1), true);
  put(key_of(1023), true);
  turns();
  ASSERT_TRUE(listed_);
  ASSERT_EQ(listed_->keys.size(), 1024u);
  for (std::size_t i = 0; i < 1024; ++i) EXPECT_EQ(listed_->keys[i].key, key_of(i));
}

TEST_F(IndexWalksTest, SeveralWalksTakeTurnsAndEndWithTheirNamespace) {
  put_many(4 * IndexWalks::kEntriesPerTurn);
  list(5);
  remove("key 1000", wire::Match::Kind::kPrefix);
  walks_.turn(UINT64_MAX);
  walks_.turn(UINT64_MAX);
  EXPECT_FALSE(listed_ || removed_);
  walks_.forget(*tenant_);
  EXPECT_EQ(walks_.next_ns(), UINT64_MAX);
  EXPECT_TRUE(listed_ && removed_);
}

TEST_F(IndexWalksTest, AWalkOfAShareMeetsItsKeysAlone) {
  constexpr std::size_t kKeys = 300;
  put_many(kKeys);
  std::set<std::string> met;
  std::size_t in_first = 0;
  for (partition_ = {0, 3}; partition_.number < 3; ++partition_.number) {
    list(1024);
    turns();
    for (const wire::ListedKey& key : listed_->keys) {
      EXPECT_EQ(metadata::partition_of(tenant_->name_of(key.key), 3), partition_.number);
      EXPECT_TRUE(met.insert(key.key).second) << key.key;
    }
    if (partition_.number == 0) in_first = listed_->keys.size();
  }
  EXPECT_EQ(met.size(), kKeys);
  partition_.number = 0;
  remove("key", wire::Match::Kind::kPrefix);
  turns();
  ASSERT_TRUE(removed_ && *removed_);
  EXPECT_GT(in_first, 0u);
  EXPECT_EQ((*removed_)->removed, in_first);
  EXPECT_EQ(store().live_count(), kKeys - in_first);
}

TEST_F(IndexWalksTest, APatternThatIsNoneIsRefused) {
  put_many(1);
  remove("(", wire::Match::Kind::kRegex);
  turns();
  ASSERT_TRUE(removed_);
  EXPECT_EQ(removed_->error().code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(walks_.next_ns(), UINT64_MAX);
}

TEST_F(IndexWalksTest, MoreThanTheMostIsRefused) {
  put_many(10);
  for (std::size_t i = 0; i < IndexWalks::kMaxWalks; ++i) list(1);
  remove("key", wire::Match::Kind::kPrefix);
  ASSERT_TRUE(removed_);
  EXPECT_EQ(removed_->error().code(), MC_BUSY);
  turns();
  EXPECT_EQ(store().live_count(), 10u);
}

}  // namespace
}  // namespace mc::agent
