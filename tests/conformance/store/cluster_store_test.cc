// SPDX-License-Identifier: Apache-2.0
//
// The promises of every cluster store: values, revisions, compare-and-set, leases, lists.
#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "conformance/store/store_fixture.h"

namespace mc::conformance {
namespace {

using metadata::ClusterStore;
using metadata::kNoLease;
using metadata::Revision;

std::string keys_of(const Result<std::vector<metadata::Entry>>& listing) {
  if (!listing) return listing.error().to_string();
  std::string text;
  for (const metadata::Entry& entry : *listing) {
    text += (text.empty() ? "" : " ") + entry.key + "=" + entry.value;
  }
  return text;
}

mc_status code_of_get(ClusterStore& store, std::string_view key) {
  const auto entry = store.get(key, soon());
  return entry ? MC_OK : entry.error().code();
}

INSTANTIATE_TEST_SUITE_P(, ClusterStoreTest,
                         testing::Values(Backend::kMemory, Backend::kRedis, Backend::kEtcd,
                                         Backend::kHttp),
                         backend_name);

TEST_P(ClusterStoreTest, GivesBackWhatWasPut) {
  const auto store = open();
  std::string bytes;
  for (int i = 0; i < 1024; ++i) bytes += static_cast<char>(i);
  for (const std::string& value : {std::string("text"), std::string(), bytes}) {
    ASSERT_TRUE(store->put("a/key", value, kNoLease, soon()).has_value());
    const auto entry = store->get("a/key", soon());
    ASSERT_TRUE(entry.has_value()) << entry.error().to_string();
    EXPECT_EQ(entry->key, "a/key");
    EXPECT_EQ(entry->value, value);
    EXPECT_EQ(entry->lease, kNoLease);
  }
}

TEST_P(ClusterStoreTest, TakesValuesUpToTheLimitAndNoLonger) {
  const auto store = open();
  const std::string longest(metadata::kMaxStoreValueBytes, '\xfe');
  const auto put = store->put("long", longest, kNoLease, soon());
  ASSERT_TRUE(put.has_value()) << put.error().to_string();
  EXPECT_EQ(store->get("long", soon())->value, longest);
  const auto longer = store->put("long", longest + "x", kNoLease, soon());
  ASSERT_FALSE(longer.has_value());
  EXPECT_EQ(longer.error().code(), MC_INVALID_ARGUMENT);
}

TEST_P(ClusterStoreTest, TakesEveryKeyOfTheContractAndNoOther) {
  const auto store = open();
  std::string odd;
  for (char c = 0x21; c < 0x7f; ++c) odd += c;
  const std::string longest(metadata::kMaxStoreKeyBytes, 'k');
  for (const std::string& key : {odd, longest, std::string("%41&key=b"), std::string("a+b")}) {
    const auto put = store->put(key, key, kNoLease, soon());
    ASSERT_TRUE(put.has_value()) << put.error().to_string();
    EXPECT_EQ(store->get(key, soon())->value, key);
    EXPECT_TRUE(store->remove(key, soon()).ok());
  }
  for (const std::string& key : {std::string(), std::string("a b"), longest + "k",
                                 std::string("\x7f"), std::string("caf\xc3\xa9")}) {
    EXPECT_EQ(code_of_get(*store, key), MC_INVALID_ARGUMENT) << key;
    EXPECT_EQ(store->put(key, "v", kNoLease, soon()).error().code(), MC_INVALID_ARGUMENT);
    EXPECT_EQ(store->remove(key, soon()).code(), MC_INVALID_ARGUMENT);
  }
}

TEST_P(ClusterStoreTest, MissesWhatIsNotThere) {
  const auto store = open();
  EXPECT_EQ(code_of_get(*store, "a"), MC_NOT_FOUND);
  EXPECT_EQ(store->remove("a", soon()).code(), MC_NOT_FOUND);
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  EXPECT_TRUE(store->remove("a", soon()).ok());
  EXPECT_EQ(code_of_get(*store, "a"), MC_NOT_FOUND);
  EXPECT_EQ(store->remove("a", soon()).code(), MC_NOT_FOUND);
}

TEST_P(ClusterStoreTest, ClustersDoNotSeeEachOther) {
  const auto one = open("one");
  const auto two = open("two");
  ASSERT_TRUE(one->put("a", "1", kNoLease, soon()).has_value());
  EXPECT_EQ(code_of_get(*two, "a"), MC_NOT_FOUND);
  ASSERT_TRUE(two->put("a", "2", kNoLease, soon()).has_value());
  EXPECT_EQ(one->get("a", soon())->value, "1");
  if (one->capabilities().list) {
    EXPECT_EQ(keys_of(one->list("", soon())), "a=1");
  }
}

TEST_P(ClusterStoreTest, AGuardedWriteNeedsTheRevisionOfItsGuard) {
  const auto store = open();
  MC_NEEDS(store, compare_and_set);
  const auto lease = store->grant_lease(60000, soon());
  const metadata::Guard guard{"lock", *store->put("lock", "me", lease->id, soon())};
  const auto write = [&](const metadata::Guard& by, const std::optional<std::string>& value) {
    const auto written = store->write_guarded(by, "a", value, soon());
    EXPECT_TRUE(written.has_value()) << written.error().to_string();
    return written && *written;
  };
  EXPECT_TRUE(write(guard, std::nullopt));
  EXPECT_TRUE(write(guard, "1"));
  EXPECT_TRUE(write(guard, "2"));
  EXPECT_EQ(store->get("a", soon())->value, "2");
  EXPECT_EQ(store->get("a", soon())->lease, kNoLease);
  for (const metadata::Guard& other :
       {metadata::Guard{"lock", guard.revision + 1}, metadata::Guard{"none", guard.revision}}) {
    EXPECT_FALSE(write(other, "3"));
    EXPECT_FALSE(write(other, std::nullopt));
  }
  EXPECT_EQ(store->get("a", soon())->value, "2");
  EXPECT_TRUE(write(guard, std::nullopt));
  EXPECT_EQ(code_of_get(*store, "a"), MC_NOT_FOUND);
  ASSERT_TRUE(store->revoke(lease->id, soon()).ok());
  EXPECT_FALSE(write(guard, "4"));
  EXPECT_EQ(code_of_get(*store, "a"), MC_NOT_FOUND);
  EXPECT_EQ(store->write_guarded(guard, "a b", "1", soon()).error().code(), MC_INVALID_ARGUMENT);
  EXPECT_EQ(store->write_guarded({"a b", 1}, "a", "1", soon()).error().code(), MC_INVALID_ARGUMENT);
}

TEST_P(ClusterStoreTest, WhatIsLackingIsRefusedByName) {
  const auto store = open();
  const auto can = store->capabilities();
  const auto refused = [](const Status& status) { return status.code() == MC_UNSUPPORTED; };
  const auto swap = store->compare_and_set("a", 0, "1", kNoLease, soon());
  EXPECT_EQ(can.compare_and_set, swap.has_value() || !refused(swap.error()));
  const auto guarded = store->write_guarded({"lock", 1}, "a", "1", soon());
  EXPECT_EQ(can.compare_and_set, guarded.has_value() || !refused(guarded.error()));
  const auto listing = store->list("", soon());
  EXPECT_EQ(can.list, listing.has_value() || !refused(listing.error()));
  const auto lease = store->grant_lease(1000, soon());
  EXPECT_EQ(can.leases, lease.has_value() || !refused(lease.error()));
  EXPECT_EQ(can.leases, !refused(store->keep_alive(77, soon())));
  EXPECT_EQ(can.elects(), GetParam() != Backend::kHttp);
}

TEST_P(ClusterStoreTest, RevisionsGrowWithEveryChangeOfAnyKey) {
  const auto store = open();
  MC_NEEDS(store, revisions);
  Revision last = 0;
  for (const char* key : {"a", "b", "a", "a", "c"}) {
    const auto revision = store->put(key, "v", kNoLease, soon());
    ASSERT_TRUE(revision.has_value());
    EXPECT_GT(*revision, last);
    last = *revision;
    EXPECT_EQ(store->get(key, soon())->revision, last);
  }
  ASSERT_TRUE(store->remove("a", soon()).ok());
  EXPECT_GT(*store->put("a", "v", kNoLease, soon()), store->get("c", soon())->revision + 1);
}

TEST_P(ClusterStoreTest, ComparesBeforeItSets) {
  const auto store = open();
  MC_NEEDS(store, compare_and_set);
  const auto first = store->compare_and_set("a", 0, "1", kNoLease, soon());
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  ASSERT_TRUE(first->applied);
  const auto again = store->compare_and_set("a", 0, "2", kNoLease, soon());
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->applied);
  EXPECT_EQ(again->revision, first->revision);
  const auto second = store->compare_and_set("a", first->revision, "2", kNoLease, soon());
  ASSERT_TRUE(second.has_value() && second->applied);
  EXPECT_GT(second->revision, first->revision);
  EXPECT_FALSE(store->compare_and_set("a", first->revision, "3", kNoLease, soon())->applied);
  EXPECT_EQ(store->get("a", soon())->value, "2");
  const auto absent = store->compare_and_set("b", 5, "1", kNoLease, soon());
  ASSERT_TRUE(absent.has_value());
  EXPECT_FALSE(absent->applied);
  EXPECT_EQ(absent->revision, 0u);
}

TEST_P(ClusterStoreTest, ExactlyOneOfManyThreadsWinsEachRace) {
  const auto store = open();
  MC_NEEDS(store, compare_and_set);
  constexpr int kThreads = 6;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> winners{0};
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const auto swap = store->compare_and_set("race" + std::to_string(round), 0,
                                                 std::to_string(i), kNoLease, soon());
        if (!swap) ++failures;
        if (swap && swap->applied) ++winners;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    ASSERT_EQ(winners, 1) << round;
  }
}

TEST_P(ClusterStoreTest, NoIncrementOfManyStoresIsLost) {
  MC_NEEDS(open(), compare_and_set);
  constexpr int kThreads = 4;
  constexpr int kIncrements = 20;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto store = open();
      for (int done = 0; done < kIncrements;) {
        const auto entry = store->get("count", soon());
        const int count = entry ? std::stoi(entry->value) : 0;
        const auto swap = store->compare_and_set("count", entry ? entry->revision : 0,
                                                 std::to_string(count + 1), kNoLease, soon());
        if (swap && swap->applied) ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(open()->get("count", soon())->value, std::to_string(kThreads * kIncrements));
}

TEST_P(ClusterStoreTest, ListsWhatBeginsWithAPrefixInOrder) {
  const auto store = open();
  MC_NEEDS(store, list);
  EXPECT_EQ(keys_of(store->list("", soon())), "");
  for (const char* key : {"m/2", "m/10", "m", "m/1", "m0", "l", "n", "m/~"}) {
    ASSERT_TRUE(store->put(key, "v", kNoLease, soon()).has_value());
  }
  EXPECT_EQ(keys_of(store->list("m/", soon())), "m/1=v m/10=v m/2=v m/~=v");
  EXPECT_EQ(keys_of(store->list("m/1", soon())), "m/1=v m/10=v");
  EXPECT_EQ(keys_of(store->list("x", soon())), "");
  EXPECT_EQ(keys_of(store->list("", soon())), "l=v m=v m/1=v m/10=v m/2=v m/~=v m0=v n=v");
}

TEST_P(ClusterStoreTest, ListsLargeValues) {
  const auto store = open();
  MC_NEEDS(store, list);
  const std::string value(500000, '\x01');
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(store->put("k" + std::to_string(i), value, kNoLease, soon()).has_value());
  }
  const auto listing = store->list("k", soon());
  ASSERT_TRUE(listing.has_value()) << listing.error().to_string();
  ASSERT_EQ(listing->size(), 8u);
  for (const metadata::Entry& entry : *listing) EXPECT_EQ(entry.value, value);
}

TEST_P(ClusterStoreTest, ARevokedLeaseTakesItsKeysAlong) {
  const auto store = open();
  MC_NEEDS(store, leases);
  const auto lease = store->grant_lease(60000, soon());
  ASSERT_TRUE(lease.has_value()) << lease.error().to_string();
  EXPECT_GE(lease->ttl_ms, 60000u);
  ASSERT_TRUE(store->put("a", "1", lease->id, soon()).has_value());
  ASSERT_TRUE(store->compare_and_set("b", 0, "1", lease->id, soon())->applied);
  ASSERT_TRUE(store->put("c", "1", kNoLease, soon()).has_value());
  EXPECT_EQ(store->get("a", soon())->lease, lease->id);
  EXPECT_TRUE(store->keep_alive(lease->id, soon()).ok());
  EXPECT_TRUE(store->revoke(lease->id, soon()).ok());
  EXPECT_EQ(keys_of(store->list("", soon())), "c=1");
  EXPECT_EQ(store->keep_alive(lease->id, soon()).code(), MC_NOT_FOUND);
  EXPECT_EQ(store->revoke(lease->id, soon()).code(), MC_NOT_FOUND);
}

TEST_P(ClusterStoreTest, ALeaseThatIsNotKeptAliveTakesItsKeysAlong) {
  const auto store = open();
  MC_NEEDS(store, leases);
  const auto lease = store->grant_lease(metadata::kMinLeaseTtlMs, soon());
  ASSERT_TRUE(lease.has_value());
  // On a busy machine the lease may have ended before; then the put reports so.
  const auto put = store->put("a", "1", lease->id, soon());
  EXPECT_EQ(put ? MC_NOT_FOUND : put.error().code(), MC_NOT_FOUND);
  until_holds([&] { return code_of_get(*store, "a") == MC_NOT_FOUND; });
  EXPECT_EQ(keys_of(store->list("", soon())), "");
  EXPECT_EQ(store->keep_alive(lease->id, soon()).code(), MC_NOT_FOUND);
}

TEST_P(ClusterStoreTest, ALeaseThatIsKeptAliveOutlivesOneThatIsNot) {
  const auto store = open();
  MC_NEEDS(store, leases);
  const auto kept = store->grant_lease(4000, soon());
  const auto left = store->grant_lease(4000, soon());
  ASSERT_TRUE(kept.has_value() && left.has_value());
  ASSERT_TRUE(store->put("kept", "1", kept->id, soon()).has_value());
  ASSERT_TRUE(store->put("left", "1", left->id, soon()).has_value());
  until_holds([&] {
    EXPECT_TRUE(store->keep_alive(kept->id, soon()).ok());
    return code_of_get(*store, "left") == MC_NOT_FOUND;
  });
  EXPECT_EQ(code_of_get(*store, "kept"), MC_OK);
}

TEST_P(ClusterStoreTest, AKeyBelongsToTheLeaseOfItsLastPut) {
  const auto store = open();
  MC_NEEDS(store, leases);
  const auto first = store->grant_lease(60000, soon());
  const auto second = store->grant_lease(60000, soon());
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_NE(first->id, second->id);
  ASSERT_TRUE(store->put("moved", "1", first->id, soon()).has_value());
  ASSERT_TRUE(store->put("moved", "2", second->id, soon()).has_value());
  ASSERT_TRUE(store->put("freed", "1", first->id, soon()).has_value());
  ASSERT_TRUE(store->put("freed", "2", kNoLease, soon()).has_value());
  ASSERT_TRUE(store->revoke(first->id, soon()).ok());
  EXPECT_EQ(keys_of(store->list("", soon())), "freed=2 moved=2");
  ASSERT_TRUE(store->revoke(second->id, soon()).ok());
  EXPECT_EQ(keys_of(store->list("", soon())), "freed=2");
}

TEST_P(ClusterStoreTest, ALeaseThatNeverWasIsRefused) {
  const auto store = open();
  MC_NEEDS(store, leases);
  for (const metadata::LeaseId lease : {metadata::LeaseId{77}, ~metadata::LeaseId{0}}) {
    EXPECT_EQ(store->put("a", "1", lease, soon()).error().code(), MC_NOT_FOUND);
    EXPECT_EQ(store->compare_and_set("a", 0, "1", lease, soon()).error().code(), MC_NOT_FOUND);
    EXPECT_EQ(store->keep_alive(lease, soon()).code(), MC_NOT_FOUND);
    EXPECT_EQ(store->revoke(lease, soon()).code(), MC_NOT_FOUND);
  }
  EXPECT_EQ(code_of_get(*store, "a"), MC_NOT_FOUND);
  for (const std::uint32_t ttl_ms : {metadata::kMinLeaseTtlMs - 1, metadata::kMaxLeaseTtlMs + 1}) {
    EXPECT_EQ(store->grant_lease(ttl_ms, soon()).error().code(), MC_INVALID_ARGUMENT);
  }
  EXPECT_TRUE(store->grant_lease(metadata::kMaxLeaseTtlMs, soon()).has_value());
}

TEST_P(ClusterStoreTest, CallsEndWhileTheServerIsGoneAndWorkWhenItIsBack) {
  MC_NEEDS_SERVER();
  const auto store = open();
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  server().kill_hard();
  const auto gone = [](mc_status code) {
    return code == metadata::kStoreUnavailable || code == metadata::kOutcomeUnknown;
  };
  EXPECT_TRUE(gone(store->get("a", at_once()).error().code()));
  EXPECT_TRUE(gone(store->put("a", "2", kNoLease, at_once()).error().code()));
  EXPECT_TRUE(gone(store->remove("a", at_once()).code()));
  if (store->capabilities().list) {
    EXPECT_TRUE(gone(store->list("", at_once()).error().code()));
    EXPECT_TRUE(gone(store->grant_lease(1000, at_once()).error().code()));
    EXPECT_TRUE(gone(store->keep_alive(77, at_once()).code()));
    EXPECT_TRUE(gone(store->compare_and_set("b", 0, "1", kNoLease, at_once()).error().code()));
  }
  const auto words = store->get("a", at_once());
  EXPECT_NE(words.error().text().find(server().host()), std::string::npos) << words.error().text();
  server().start();
  const auto put = store->put("b", "1", kNoLease, soon());
  ASSERT_TRUE(put.has_value()) << put.error().to_string();
  EXPECT_EQ(store->get("b", soon())->value, "1");
  // Acknowledged values still exist, if the server keeps values at all.
  if (GetParam() != Backend::kHttp) {
    EXPECT_EQ(store->get("a", soon())->value, "1");
  }
}

TEST_P(ClusterStoreTest, ACallOutlivesARestartOfTheServer) {
  MC_NEEDS_SERVER();
  const auto store = open();
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  server().kill_hard();
  std::atomic<bool> started{false};
  mc_status code = MC_INTERNAL;
  std::thread caller([&] {
    started = true;
    const auto put = store->put("b", "2", kNoLease, soon());
    code = put ? MC_OK : put.error().code();
  });
  until_holds([&] { return started.load(); });
  server().start();
  caller.join();
  EXPECT_EQ(code, MC_OK);
  EXPECT_EQ(store->get("b", soon())->value, "2");
}

TEST_P(ClusterStoreTest, CallsEndWhileTheServerHangs) {
  MC_NEEDS_SERVER();
  const auto store = open();
  ASSERT_TRUE(store->put("a", "1", kNoLease, soon()).has_value());
  server().pause(true);
  const auto get = store->get("a", at_once());
  // A put whose deadline passes before the put is sent had no effect.
  until_holds([&] {
    const auto put = store->put("a", "2", kNoLease, at_once());
    EXPECT_FALSE(put.has_value());
    return !put && put.error().code() == metadata::kOutcomeUnknown;
  });
  const auto fresh = open()->put("c", "2", kNoLease, at_once());
  server().pause(false);
  ASSERT_FALSE(get.has_value() || fresh.has_value());
  EXPECT_TRUE(store->put("a", "3", kNoLease, soon()).has_value());
  // The outcome of the unanswered put is unknown: the put may land even after this put.
  const std::string last = store->get("a", soon())->value;
  EXPECT_TRUE(last == "3" || last == "2") << last;
}

TEST_P(ClusterStoreTest, ACallWhoseDeadlineHasPassedHasNoEffect) {
  MC_NEEDS_SERVER();
  const auto store = open();
  EXPECT_EQ(code_of_get(*store, "a"), MC_NOT_FOUND);  // a connection is ready
  const auto put = store->put("a", "1", kNoLease, 1);
  ASSERT_FALSE(put.has_value());
  EXPECT_EQ(put.error().code(), metadata::kStoreUnavailable) << put.error().to_string();
  EXPECT_EQ(code_of_get(*store, "a"), MC_NOT_FOUND);
}

}  // namespace
}  // namespace mc::conformance
