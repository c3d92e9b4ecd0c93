// SPDX-License-Identifier: Apache-2.0
//
// Leadership by a cluster store: a single leader at a time, each with an epoch above all
// earlier epochs.
#include "metadata/store/leader_lock.h"

#include <atomic>
#include <thread>

#include "conformance/store/store_fixture.h"
#include "libmc/base/clock.h"
#include "patience.h"

namespace mc::conformance {
namespace {

using metadata::LeaderLock;
using metadata::Revision;

class LeaderLockTest : public ClusterStoreTest {};

INSTANTIATE_TEST_SUITE_P(, LeaderLockTest,
                         testing::Values(Backend::kMemory, Backend::kRedis, Backend::kEtcd),
                         backend_name);

const auto kTtlMs = static_cast<std::uint32_t>(4 * kSecondNs / 1'000'000);

TEST_P(LeaderLockTest, OnlyOneLeadsAndTheNextHasAHigherEpoch) {
  const auto store = open();
  LeaderLock one(*store, "one:1", kTtlMs, now_ns);
  LeaderLock two(*store, "two:1", kTtlMs, now_ns);
  EXPECT_EQ(metadata::find_leader(*store, soon()).error().code(), MC_NOT_FOUND);
  ASSERT_TRUE(*one.campaign(soon()));
  EXPECT_TRUE(one.leads());
  EXPECT_FALSE(*two.campaign(soon()));
  EXPECT_FALSE(two.leads());
  const auto leader = metadata::find_leader(*store, soon());
  ASSERT_TRUE(leader.has_value());
  EXPECT_EQ(leader->value, "one:1");
  EXPECT_EQ(leader->epoch, one.epoch());
  EXPECT_TRUE(one.renew(soon()).ok());
  const Revision before = one.epoch();
  ASSERT_TRUE(one.resign(soon()).ok());
  EXPECT_FALSE(one.leads());
  ASSERT_TRUE(*two.campaign(soon()));
  EXPECT_GT(two.epoch(), before);
  EXPECT_EQ(one.renew(soon()).code(), MC_NOT_FOUND);
}

TEST_P(LeaderLockTest, EachShareHasALeaderOfItsOwn) {
  const auto store = open();
  LeaderLock zero(*store, "zero:1", kTtlMs, now_ns);
  LeaderLock three(*store, "three:1", kTtlMs, now_ns, 3);
  LeaderLock other(*store, "other:1", kTtlMs, now_ns, 3);
  ASSERT_TRUE(*three.campaign(soon()));
  EXPECT_EQ(metadata::find_leader(*store, soon()).error().code(), MC_NOT_FOUND);
  ASSERT_TRUE(*zero.campaign(soon()));
  EXPECT_FALSE(*other.campaign(soon()));
  EXPECT_EQ(metadata::find_leader(*store, soon())->value, "zero:1");
  EXPECT_EQ(metadata::find_leader(*store, soon(), 3)->value, "three:1");
  // A single list covers the leaders of all partitions.
  const auto all = store->list(metadata::kLeaderKey, soon());
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(0).key, metadata::leader_key(0));
  EXPECT_EQ(all->at(1).key, metadata::leader_key(3));
  ASSERT_TRUE(three.resign(soon()).ok());
  EXPECT_TRUE(zero.renew(soon()).ok());
  EXPECT_TRUE(*other.campaign(soon()));
}

TEST_P(LeaderLockTest, ALeaderThatFallsSilentIsFollowedByAnother) {
  const auto store = open();
  LeaderLock one(*store, "one:1", kTtlMs / 4, now_ns);
  LeaderLock two(*store, "two:1", kTtlMs, now_ns);
  ASSERT_TRUE(*one.campaign(soon()));
  const Revision before = one.epoch();
  until_holds([&] {
    const auto won = two.campaign(soon());
    // Never two leaders: by its own clock, the old leader stops before the store admits the
    // new leader.
    EXPECT_FALSE(won && *won && one.leads());
    return won && *won;
  });
  EXPECT_GT(two.epoch(), before);
  EXPECT_EQ(one.renew(soon()).code(), MC_NOT_FOUND);
  EXPECT_EQ(one.epoch(), 0u);
}

TEST_P(LeaderLockTest, OfManyCandidatesAtOnceExactlyOneLeads) {
  std::atomic<int> leaders{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto store = open();
      LeaderLock lock(*store, std::to_string(i), 60000, now_ns);
      const auto won = lock.campaign(soon());
      if (won && *won) ++leaders;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(leaders, 1);
}

TEST_P(LeaderLockTest, StopsLeadingByItsOwnClockWhileTheStoreIsAway) {
  MC_NEEDS_SERVER();
  const auto store = open();
  LeaderLock lock(*store, "one:1", kTtlMs, now_ns);
  ASSERT_TRUE(*lock.campaign(soon()));
  server().kill_hard();
  until_holds([&] {
    EXPECT_FALSE(lock.renew(at_once()).ok());
    return !lock.leads();
  });
  server().start();
  until_holds([&] {
    const auto won = lock.campaign(soon());
    return won && *won;
  });
  EXPECT_TRUE(lock.leads());
}

TEST_P(LeaderLockTest, AFormerGuardAdmitsNoWrite) {
  const auto store = open();
  LeaderLock lock(*store, "one:1", kTtlMs, now_ns);
  EXPECT_EQ(lock.outdate_guards(soon()).code(), MC_NOT_FOUND) << "no lock without a lease";
  ASSERT_TRUE(*lock.campaign(soon()));
  const metadata::Guard former = lock.guard();
  ASSERT_TRUE(store->write_guarded(former, "key", "old", soon()).value());
  ASSERT_TRUE(lock.outdate_guards(soon()).ok());
  EXPECT_GT(lock.epoch(), former.revision);
  EXPECT_FALSE(store->write_guarded(former, "key", "late", soon()).value());
  EXPECT_TRUE(store->write_guarded(lock.guard(), "key", "new", soon()).value());
  EXPECT_EQ(store->get("key", soon())->value, "new");
  // The lock is the same: the lease holds it, and nobody else leads.
  EXPECT_TRUE(lock.renew(soon()).ok());
  EXPECT_EQ(metadata::find_leader(*store, soon())->value, "one:1");
  LeaderLock other(*store, "two:1", kTtlMs, now_ns);
  EXPECT_FALSE(*other.campaign(soon()));
  ASSERT_TRUE(store->remove(former.key, soon()).ok());
  EXPECT_EQ(lock.outdate_guards(soon()).code(), MC_NOT_FOUND);
}

TEST(LeaderLock, AStoreThatCannotElectSaysSo) {
  const StoreServer server(metadata_command());
  const auto store = open_store("http://" + server.host() + "/metadata");
  LeaderLock lock(*store, "one:1", kTtlMs, now_ns);
  EXPECT_EQ(lock.campaign(soon()).error().code(), MC_UNSUPPORTED);
}

}  // namespace
}  // namespace mc::conformance
