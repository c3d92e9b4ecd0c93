// SPDX-License-Identifier: Apache-2.0
//
// The promise of a cluster store's watch: every change, in order, across restarts of the server,
// or kRelist.
#include <atomic>

#include "conformance/store/store_fixture.h"
#include "metadata/store/http/http_client.h"

namespace mc::conformance {
namespace {

using metadata::kNoLease;
using metadata::Revision;

class StoreWatchTest : public ClusterStoreTest {};

INSTANTIATE_TEST_SUITE_P(, StoreWatchTest,
                         testing::Values(Backend::kMemory, Backend::kRedis, Backend::kEtcd),
                         backend_name);

Revision now_of(metadata::ClusterStore& store) { return store.list("", soon())->revision; }

TEST_P(StoreWatchTest, TellsPutsAndRemovalsBelowItsPrefix) {
  const auto store = open();
  Told told;
  const auto watch = store->watch("m/", now_of(*store), told.callback());
  ASSERT_TRUE(watch.has_value());
  const auto first = store->put("m/a", "1", kNoLease, soon());
  const auto event = told.wait_for_put("m/a", "1");
  EXPECT_EQ(event.entry.revision, *first);
  ASSERT_TRUE(store->put("n", "1", kNoLease, soon()).has_value());
  ASSERT_TRUE(store->remove("m/a", soon()).ok());
  EXPECT_GT(told.wait_for_remove("m/a").entry.revision, *first);
  ASSERT_TRUE(store->put("m/b", "2", kNoLease, soon()).has_value());
  told.wait_for_put("m/b", "2");
  EXPECT_EQ(told.story(), "+m/a=1 -m/a +m/b=2");
}

TEST_P(StoreWatchTest, TellsWhatOtherStoresAndClustersDid) {
  const auto store = open();
  const auto other = open();
  const auto foreign = open("foreign");
  Told told;
  const auto watch = store->watch("", now_of(*store), told.callback());
  ASSERT_TRUE(foreign->put("a", "foreign", kNoLease, soon()).has_value());
  ASSERT_TRUE(other->put("a", "1", kNoLease, soon()).has_value());
  told.wait_for_put("a", "1");
  EXPECT_EQ(told.story(), "+a=1");
}

TEST_P(StoreWatchTest, BeginsAfterTheRevisionOfAListing) {
  const auto store = open();
  ASSERT_TRUE(store->put("before", "1", kNoLease, soon()).has_value());
  const Revision revision = now_of(*store);
  ASSERT_TRUE(store->put("between", "1", kNoLease, soon()).has_value());
  ASSERT_TRUE(store->remove("before", soon()).ok());
  Told told;
  const auto watch = store->watch("", revision, told.callback());
  told.wait_for_remove("before");
  EXPECT_EQ(told.story(), "+between=1 -before");
}

TEST_P(StoreWatchTest, TellsTheLastStateOfEveryKeyInOrder) {
  const auto store = open();
  Told told;
  const auto watch = store->watch("", now_of(*store), told.callback());
  constexpr int kChanges = 200;
  for (int i = 0; i < kChanges; ++i) {
    ASSERT_TRUE(
        store->put("k" + std::to_string(i % 7), std::to_string(i), kNoLease, soon()).has_value());
  }
  Revision last = 0;
  for (int i = kChanges - 7; i < kChanges; ++i) {
    const auto event = told.wait_for_put("k" + std::to_string(i % 7), std::to_string(i));
    EXPECT_GT(event.entry.revision, last);
    last = event.entry.revision;
  }
}

TEST_P(StoreWatchTest, TellsThatALeaseEnded) {
  const auto store = open();
  const auto lease = store->grant_lease(2000, soon());
  Told told;
  const auto watch = store->watch("", now_of(*store), told.callback());
  ASSERT_TRUE(store->put("member", "1", lease->id, soon()).has_value());
  EXPECT_EQ(told.wait_for_put("member", "1").entry.lease, lease->id);
  told.wait_for_remove("member");
  EXPECT_EQ(told.story(), "+member=1 -member");
}

TEST_P(StoreWatchTest, APositionThatTheStoreNeverHadMeansRelist) {
  const auto store = open();
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  Told told;
  const auto watch = store->watch("", now_of(*store) + (1u << 30), told.callback());
  const auto relist = told.wait_for_relist();
  EXPECT_EQ(relist.entry.revision, now_of(*store));
  ASSERT_TRUE(store->put("a", "2", kNoLease, soon()).has_value());
  told.wait_for_put("a", "2");
  EXPECT_EQ(told.story(), "~ +a=2");
}

TEST_P(StoreWatchTest, APositionThatIsForgottenMeansRelist) {
  const auto store = open();
  const Revision start = now_of(*store);
  // More changes than a log keeps; etcd keeps all changes until a compaction.
  const int changes = GetParam() == Backend::kEtcd ? 3 : 4200;
  for (int i = 0; i < changes; ++i) {
    ASSERT_TRUE(store->put("a", std::to_string(i), kNoLease, soon()).has_value());
  }
  if (GetParam() == Backend::kEtcd) {
    metadata::HttpClient client{{}};
    const auto answer = client.call({"POST",
                                     "http://" + server().host() + "/v3/kv/compaction",
                                     R"({"revision":")" + std::to_string(now_of(*store)) + "\"}",
                                     {}},
                                    1 << 20, soon());
    ASSERT_TRUE(answer.has_value() && answer->status == 200);
  }
  Told told;
  const auto watch = store->watch("", start, told.callback());
  told.wait_for_relist();
  ASSERT_TRUE(store->put("b", "1", kNoLease, soon()).has_value());
  told.wait_for_put("b", "1");
  EXPECT_EQ(told.story(), "~ +b=1");
}

TEST_P(StoreWatchTest, GoesOnWhereItWasAfterTheServerWasAway) {
  MC_NEEDS_SERVER();
  const auto store = open();
  Told told;
  const auto watch = store->watch("", now_of(*store), told.callback());
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  told.wait_for_put("a", "1");
  for (int round = 0; round < 2; ++round) {
    server().kill_hard();
    server().start();
    const std::string value = "back" + std::to_string(round);
    ASSERT_TRUE(open()->put("a", value, kNoLease, soon()).has_value());
    told.wait_for_put("a", value);
  }
  EXPECT_EQ(told.story(), "+a=1 +a=back0 +a=back1");
}

TEST_P(StoreWatchTest, WaitsForAServerThatComesLater) {
  MC_NEEDS_SERVER();
  const auto store = open();
  const Revision start = now_of(*store);
  server().kill_hard();
  Told told;
  const auto watch = store->watch("", start, told.callback());
  ASSERT_TRUE(watch.has_value());
  server().start();
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  told.wait_for_put("a", "1");
}

TEST_P(StoreWatchTest, EndsAtOnceWhileTheServerIsGoneOrHangs) {
  MC_NEEDS_SERVER();
  const auto store = open();
  Told told;
  auto watch = store->watch("", now_of(*store), told.callback());
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  told.wait_for_put("a", "1");
  server().pause(true);
  watch->reset();
  watch = store->watch("", 0, told.callback());
  watch->reset();
  server().pause(false);
  server().kill_hard();
  watch = store->watch("", 0, told.callback());
  watch->reset();
}

TEST_P(StoreWatchTest, TellsNothingOnceItIsDestroyed) {
  const auto store = open();
  std::atomic<bool> alive{true};
  std::atomic<int> late{0};
  std::atomic<int> calls{0};
  auto watch = store->watch("", now_of(*store), [&](const metadata::WatchEvent&) {
    ++calls;
    if (!alive) ++late;
  });
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(store->put("a", std::to_string(i), kNoLease, soon()).has_value());
  }
  until_holds([&] { return calls > 0; });
  watch->reset();
  alive = false;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(store->put("a", std::to_string(i), kNoLease, soon()).has_value());
  }
  EXPECT_EQ(late, 0);
}

}  // namespace
}  // namespace mc::conformance
