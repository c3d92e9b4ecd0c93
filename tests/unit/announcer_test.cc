// SPDX-License-Identifier: Apache-2.0
//
// Puts that were acknowledged without a master, and that are announced later. The test answers for the master.
#include "agent/cluster/publish/announcer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libmc/base/clock.h"
#include "unit/scripted_master.h"

namespace mc::agent {
namespace {

using metadata::PublishItem;
using metadata::Verdict;
using ::testing::ElementsAre;

class AnnouncerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = make_tenant("announced", 0);
    ASSERT_TRUE(made);
    auto book = VersionBook::open({}, made->store->index().header().max_entries);
    ASSERT_TRUE(book);
    tenants_.push_back(std::make_unique<ClusterTenant>(made, hasher_, clock_, std::move(*book)));
    tenants_.front()->store().set_listener(tenants_.front().get());
    flush();
  }
  void TearDown() override { tenants_.front()->store().set_listener(nullptr); }
  void put(bool upsert = false) { put_object(tenants_.front()->store(), "key", upsert); }
  void put_without_a_master() {
    master_.is_ready = false;
    put();
    flush();
    std::vector<PublishItem> reported;
    announcer_.next_report(0, true, reported);
    EXPECT_TRUE(reported.empty()) << "the report would replace other hosts' objects";
    master_.is_ready = true;
  }
  // The put is acknowledged before the report ends.
  void put_during_a_report(bool upsert) {
    master_.is_ready = false;
    std::vector<PublishItem> reported;
    announcer_.next_report(0, true, reported);
    put(upsert);
    flush();
    EXPECT_TRUE(master_.published.empty());
    master_.is_ready = true;
  }
  // Each call is later than all waits of the announcer.
  void flush() { announcer_.flush(now_ns_ += 10'000 * kMs); }
  // The only object that is announced now.
  PublishItem announced() {
    flush();
    EXPECT_EQ(master_.published.size(), 1u);
    EXPECT_EQ(master_.published.at(0).items.size(), 1u);
    return master_.published.at(0).items.at(0);
  }
  void answer(Verdict verdict) {
    const auto done = std::move(master_.published.at(0).done);
    master_.published.pop_front();
    done(std::vector{verdict});
  }
  // The kinds of all announcements, until the master accepts the object after so many refusals.
  std::vector<PublishItem::What> announced_while(Verdict refusal, int times) {
    std::vector<PublishItem::What> all;
    for (int i = 0; i < times; ++i) {
      all.push_back(announced().what);
      answer(refusal);
    }
    all.push_back(announced().what);
    answer(Verdict::kAccepted);
    return all;
  }
  bool is_here() {
    const ObjectIndex& index = tenants_.front()->store().index();
    return index.find("key", index.hash("key")).has_value();
  }

  std::uint64_t now_ns_ = now_ns();
  ScriptedMaster master_;
  Masters masters_{{&master_}};
  metadata::KeyHasher hasher_{"secret"};
  VersionClock clock_{1};
  std::vector<std::unique_ptr<ClusterTenant>> tenants_;
  OperationTable operations_;
  Announcer announcer_{operations_, tenants_, masters_, clock_};
};

TEST_F(AnnouncerTest, APutIsAnnouncedAsCreatesHoweverOftenTheDirectoryIsFull) {
  put();
  EXPECT_THAT(announced_while(Verdict::kFull, 2),
              ElementsAre(PublishItem::What::kCreates, PublishItem::What::kCreates,
                          PublishItem::What::kCreates));
}

TEST_F(AnnouncerTest, APutThatWasAcknowledgedWithoutAMasterIsAnnouncedAsCreated) {
  put_without_a_master();
  EXPECT_THAT(announced_while(Verdict::kFull, 1),
              ElementsAre(PublishItem::What::kCreated, PublishItem::What::kCreated));
  flush();
  EXPECT_TRUE(master_.published.empty());
  EXPECT_TRUE(is_here());
}

TEST_F(AnnouncerTest, ALatePutGivesWayToAnotherHostsObject) {
  put_without_a_master();
  EXPECT_EQ(announced().what, PublishItem::What::kCreated);
  answer(Verdict::kStale);
  EXPECT_FALSE(is_here());
}

TEST_F(AnnouncerTest, APutDuringAReportIsAnnouncedAsCreated) {
  put_during_a_report(false);
  EXPECT_EQ(announced().what, PublishItem::What::kCreated);
  answer(Verdict::kAccepted);
}

// Another host's upsert began after this upsert had been acknowledged.
TEST_F(AnnouncerTest, AnUpsertDuringAReportGivesWayToALaterVersion) {
  put_during_a_report(true);
  EXPECT_EQ(announced().what, PublishItem::What::kHolds);
  answer(Verdict::kStale);
  EXPECT_FALSE(is_here());
}

TEST_F(AnnouncerTest, AnUpsertThatWasAcknowledgedSinceGivesWayToALaterVersion) {
  put(true);
  announced();
  answer(Verdict::kFull);  // the put is acknowledged
  announced();
  answer(Verdict::kStale);
  EXPECT_FALSE(is_here());
}

// The put is not acknowledged yet.
TEST_F(AnnouncerTest, AnUpsertIsAnnouncedAgainAboveALaterVersion) {
  put(true);
  const PublishItem first = announced();
  answer(Verdict::kStale);
  EXPECT_GT(announced().version, first.version);
  answer(Verdict::kAccepted);
  EXPECT_TRUE(is_here());
}

TEST_F(AnnouncerTest, ALatePutWaitsForAnIncompleteObjectThreeTimes) {
  put_without_a_master();
  EXPECT_THAT(announced_while(Verdict::kFull, 4),
              ElementsAre(PublishItem::What::kCreated, PublishItem::What::kCreated,
                          PublishItem::What::kCreated, PublishItem::What::kCreates,
                          PublishItem::What::kCreates));
}

// The new announcement has a version above the refusing version.
TEST_F(AnnouncerTest, ALatePutThatIsBehindKeepsWaiting) {
  put_without_a_master();
  const PublishItem first = announced();
  answer(Verdict::kBehind);
  const PublishItem second = announced();
  EXPECT_GT(second.version, first.version);
  EXPECT_EQ(second.what, PublishItem::What::kCreated);
  answer(Verdict::kAccepted);
}

}  // namespace
}  // namespace mc::agent
