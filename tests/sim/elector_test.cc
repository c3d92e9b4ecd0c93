// SPDX-License-Identifier: Apache-2.0
//
// Electors on the simulated clock, with a store that fails on the test's command.
#include "metadata/master/elector.h"

#include <gtest/gtest.h>

#include "libmc/base/clock.h"
#include "sim/fleet_fixture.h"
#include "sim/sim_clock.h"
#include "sim/sim_store.h"

namespace mc::sim {
namespace {

using metadata::Elector;

constexpr std::uint32_t kTtlMs = 1000;

class ElectorTest : public testing::Test {
 protected:
  struct Master {
    Master(StoreWorld& world, HostId host)
        : elector(world.client(host), "host:" + std::to_string(host), kTtlMs, {},
                  {.leading =
                       [this](const metadata::Term& term) {
                         leading = true;
                         epoch = term.epoch;
                       },
                   .lost = [this] { leading = false; },
                   .leader = [](const std::string&) {},
                   .trouble = [this](const Status& status) { trouble = status.code(); }},
                  [this](metadata::StoreThread::Step of_elector) {
                    elector_step = std::move(of_elector);
                    return std::make_unique<NoThread>();
                  }) {}
    std::uint64_t step() {
      trouble = MC_OK;
      return elector_step();
    }

    struct NoThread final : metadata::StoreThread {
      void wake() override {}
    };
    metadata::StoreThread::Step elector_step;

    bool leading = false;
    std::uint64_t epoch = 0;
    mc_status trouble = MC_OK;
    Elector elector;
  };

  std::string value(std::string_view key) {
    const auto found = world_.content().get(key, 0);
    return found ? found->value : "";
  }

  Clock clock_;
  StoreWorld world_;
};

TEST_F(ElectorTest, AWriteThatFailsIsRepeatedAndHoldsUpNoOther) {
  Master master(world_, 0);
  master.step();
  ASSERT_TRUE(master.leading);
  for (const mc_status code : {MC_NO_SPACE, MC_PERMISSION_DENIED, MC_UNSUPPORTED, MC_CORRUPT,
                               MC_TOO_LARGE, MC_AGENT_UNAVAILABLE, MC_TIMEOUT}) {
    SCOPED_TRACE(mc_status_name(code));
    int stored = 0;
    world_.set_write_error(code);
    master.elector.save("key", mc_status_name(code), [&] { ++stored; });
    EXPECT_LE(master.step(), now_ns() + 50 * kMs);
    EXPECT_EQ(master.trouble, code);
    EXPECT_TRUE(master.leading);
    world_.set_write_error(MC_OK);
    master.elector.save("other", mc_status_name(code), [&] { ++stored; });
    master.step();
    EXPECT_EQ(stored, 2);
    EXPECT_EQ(value("key"), mc_status_name(code));
    EXPECT_EQ(value("other"), mc_status_name(code));
  }
}

TEST_F(ElectorTest, NoMasterLeadsWithAStoreThatMayLoseWrites) {
  Master master(world_, 0);
  world_.may_lose_writes = true;
  master.step();
  EXPECT_FALSE(master.leading);
  EXPECT_EQ(master.trouble, MC_INVALID_ARGUMENT);
  EXPECT_FALSE(world_.content().get(metadata::kLeaderKey, 0).has_value()) << "others may try";
  world_.may_lose_writes = false;
  master.step();
  EXPECT_TRUE(master.leading);
}

TEST_F(ElectorTest, TheLatestOfTheValuesThatFailedIsWritten) {
  Master master(world_, 0);
  master.step();
  int stored = 0;
  world_.set_write_error(MC_NO_SPACE);
  master.elector.save("key", "old", [&] { ++stored; });
  master.step();
  master.elector.save("key", "new", [&] { ++stored; });
  world_.set_write_error(MC_OK);
  master.step();
  EXPECT_EQ(stored, 2);
  EXPECT_EQ(value("key"), "new");
  master.elector.save("key", std::nullopt, [&] { ++stored; });
  master.elector.save("absent", std::nullopt, [&] { ++stored; });
  master.step();
  EXPECT_EQ(stored, 4);
  EXPECT_FALSE(world_.content().get("key", 0).has_value());
}

TEST_F(ElectorTest, AFormerLeaderChangesNothingInTheStore) {
  Master former(world_, 0);
  former.step();
  ASSERT_TRUE(former.leading);
  // The lease ends, and another master leads, while the former leader stands still between two renewals.
  const auto lock = world_.content().get(metadata::kLeaderKey, 0);
  ASSERT_TRUE(lock && world_.content().revoke(lock->lease, 0).ok());
  Master next(world_, 1);
  next.step();
  ASSERT_TRUE(next.leading);
  next.elector.save("away/7", "1", nullptr);
  next.step();
  int stored = 0;
  former.elector.save("away/7", std::nullopt, [&] { ++stored; });
  former.elector.save("members/7", "old", [&] { ++stored; });
  former.step();
  EXPECT_EQ(stored, 0);
  EXPECT_FALSE(former.leading);
  EXPECT_EQ(value("away/7"), "1");
  EXPECT_EQ(value("members/7"), "");
}

TEST_F(ElectorTest, ALeaderWhoseMembersHaveHeardOfAHigherEpochIsElectedAnewAboveIt) {
  Master master(world_, 0);
  master.step();
  const std::uint64_t first = master.epoch;
  master.elector.outbid(first);
  master.step();
  EXPECT_EQ(master.epoch, first) << "as high is high enough";
  const std::uint64_t heard = first + 1'000'000'000;
  world_.set_write_error(MC_NO_SPACE);
  master.elector.outbid(heard);
  master.step();
  EXPECT_TRUE(master.leading);
  world_.set_write_error(MC_OK);
  master.step();
  EXPECT_FALSE(master.leading);
  master.step();
  EXPECT_TRUE(master.leading);
  EXPECT_GT(master.epoch, heard);
  EXPECT_TRUE(master.elector.leads(master.epoch));
  // The next leader of another process is above that epoch.
  const auto lock = world_.content().get(metadata::kLeaderKey, 0);
  ASSERT_TRUE(lock && world_.content().revoke(lock->lease, 0).ok());
  Master next(world_, 1);
  next.step();
  EXPECT_GT(next.epoch, master.epoch);
  // A leader that stood still meanwhile changes nothing.
  master.elector.outbid(next.epoch);
  master.step();
  EXPECT_FALSE(master.leading);
  next.step();
  EXPECT_TRUE(next.leading);
  next.elector.outbid(UINT64_MAX);
  next.step();
  EXPECT_TRUE(next.leading) << "no leader has such an epoch";
}

// The server executes the first write late, because the bytes were on their way over another connection. By then
// the server has a later value.
TEST_F(ElectorTest, AWriteThatIsExecutedLateReplacesNoLaterValue) {
  Master master(world_, 0);
  master.step();
  ASSERT_TRUE(master.leading);
  SimStoreThread::All threads;
  SimStoreThread thread(master.elector_step, threads);
  const auto pass = [&](std::uint64_t ms, bool silent) {
    for (const std::uint64_t until_ns = now_ns() + ms * kMs; now_ns() < until_ns;) {
      clock_.set(now_ns() + 5 * kMs);
      world_.run_threads(0);
      thread.run(silent);
    }
  };
  for (int round = 0; round < 20; ++round) {
    world_.set_silent(0, true);
    master.elector.save("key", "old", nullptr);
    thread.wake();
    pass(350, true);
    world_.set_silent(0, false);
    int stored = 0;
    master.elector.save("key", "new", [&] { ++stored; });
    pass(400, false);
    ASSERT_TRUE(master.leading);
    EXPECT_EQ(stored, 1);
    EXPECT_EQ(value("key"), "new");
  }
}

// The store has lost the lock, and the leader goes on by its members' promises. Without the lock, nothing guards a
// write. A lock without a lease would never end.
TEST_F(ElectorTest, ALeaderWithoutTheLockWritesNothing) {
  Master master(world_, 0);
  master.step();
  ASSERT_TRUE(master.leading);
  const auto pass = [&](std::uint64_t ms) {
    clock_.set(now_ns() + ms * kMs);
    master.step();
  };
  master.elector.go_on(master.epoch, now_ns() + 60'000 * kMs);
  world_.set_write_error(MC_TIMEOUT);
  master.elector.save("key", "value", nullptr);
  pass(10);  // a write without an answer
  world_.lose();
  pass(300);  // time to renew the lock, which cannot be taken again
  ASSERT_TRUE(master.leading);
  world_.set_write_error(MC_OK);
  pass(10);
  EXPECT_TRUE(master.leading);
  EXPECT_EQ(value("key"), "");
  EXPECT_FALSE(world_.content().get(metadata::kLeaderKey, 0).has_value());
}

using Epochs = FleetTest;

// Revisions of an emptied store begin at the clock, and the clock was set back.
TEST_F(Epochs, AfterAClockThatWasSetBackTheNextLeaderIsBelieved) {
  put_on_all("key");
  const std::uint64_t before = fleet_.master().epoch(0);
  fleet_.master().stop();
  fleet_.store().lose(1);
  fleet_.master().start();
  turn_for(5'000 * kMs);
  EXPECT_GT(fleet_.master().epoch(0), before);
  EXPECT_TRUE(writer().ready() && other().ready() && third().ready());
  EXPECT_EQ(end_of(fleet_.remove(writer(), "key")), MC_OK);
  EXPECT_FALSE(holds(other(), "key") || holds(third(), "key"));
}

}  // namespace
}  // namespace mc::sim
