// SPDX-License-Identifier: Apache-2.0
//
// Objects of a cluster's namespace on model disks: announcements and reports, and the effects of the master's
// verdicts and orders. The test answers for the master.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/cluster/namespace/index_walks.h"
#include "agent/cluster/publish/announcer.h"
#include "libmc/base/clock.h"
#include "patience.h"
#include "tier/tiered_rig.h"
#include "unit/scripted_master.h"

namespace mc::agent {
namespace {

using metadata::KeyHash;
using metadata::PublishItem;
using metadata::Verdict;
using What = PublishItem::What;

class SharedDisksTest : public TieredRig, public ArrivalListener {
 protected:
  void TearDown() override {
    close();
    TieredRig::TearDown();
  }
  std::optional<std::uint64_t> hash_seed() override { return hasher_.index_seed("default"); }
  SharedObjects* share() override {
    close();
    auto book = VersionBook::open({}, store().index().header().max_entries);
    EXPECT_TRUE(book);
    tenants_.push_back(
        std::make_unique<ClusterTenant>(tenant_, hasher_, clock_, std::move(*book), this));
    tenants_.front()->set_disks(pools_.get());
    store().set_listener(tenants_.front().get());
    master_.published.clear();
    return tenants_.front().get();
  }
  void close() {
    for (const auto& tenant : tenants_) tenant->store().set_listener(nullptr);
    tenants_.clear();
  }
  void on_arrival(const ClusterTenant& tenant, std::uint32_t entry, bool is_put) override {
    walks_.arrived(tenant, entry, is_put);
  }
  void on_put(const PublishItem&) override {}
  void on_not_on_disks(ClusterTenant&, const std::shared_ptr<RemoteRequest>& request,
                       std::size_t item) override {
    elsewhere_.push_back(request->items[item].otherwise);
    request->settle(request->items[item], MC_NOT_FOUND);  // as if no host had the object
  }

  ClusterTenant& shared() { return *tenants_.front(); }
  KeyHash name_of(const std::string& key) { return shared().name_of(key); }
  const tier::TierEntry* entry_in_tier(const std::string& key) {
    return rig_.log().find({.given = tier_key_of(shared_name_of(name_of(key)))});
  }
  std::uint64_t version_in_pool(const std::string& key) {
    const std::uint32_t entry = shared().find(name_of(key));
    return entry == kNoEntry ? 0 : shared().book().row(entry).version;
  }
  std::uint64_t version_on_disk(const std::string& key) {
    return pools_->version_of(shared_name_of(name_of(key)));
  }
  void flush() { announcer_.flush(now_ns_ += 10'000 * kMs); }
  // All that the master is told now. The master accepts everything.
  std::vector<PublishItem> told(Verdict verdict = Verdict::kAccepted) {
    std::vector<PublishItem> items;
    for (flush(); !master_.published.empty(); flush()) {
      ScriptedMaster::Published batch = std::move(master_.published.front());
      master_.published.pop_front();
      items.insert(items.end(), batch.items.begin(), batch.items.end());
      batch.done(std::vector(batch.items.size(), verdict));
    }
    return items;
  }
  std::vector<PublishItem> report() {
    std::vector<PublishItem> all, items;
    for (bool first = true; announcer_.next_report(0, first, items); first = false) {
      if (items.empty()) return all;
      all.insert(all.end(), items.begin(), items.end());
    }
    ADD_FAILURE() << "the report waits";
    return all;
  }
  void put_and_evict(const std::string& key, std::uint64_t version) {
    ASSERT_EQ(put(key, version), ObjectStore::Put::kStored);
    told();
    evict(key);
  }
  // Drops from the disks. Returns false if a restart may bring the object back.
  bool drop(const std::string& key, std::uint64_t up_to_version) {
    std::optional<bool> durable;
    pools_->drop(shared_name_of(name_of(key)), up_to_version, [&](bool is) { durable = is; });
    for (int i = 0; i < 100'000 && !durable; ++i) turn();
    return durable.value_or(false);
  }
  // Until the walk has answered. meanwhile: called between the steps.
  template <typename Answer>
  void finish_walk(const std::optional<Answer>& answer, const std::function<void()>& meanwhile) {
    // In real time: a pattern is matched by another thread.
    const std::uint64_t end_ns = mc::now_ns() + kWatchdogNs;
    while (!answer && mc::now_ns() < end_ns) {
      walks_.turn(UINT64_MAX);
      if (walks_.next_ns() != 0) turn();  // the walk waits for a disk
      if (meanwhile) meanwhile();
    }
    ASSERT_TRUE(answer);
  }
  static metadata::wire::Match match_of(const std::string& pattern, bool regex = false) {
    metadata::wire::Match match;
    match.name_space = "default";
    match.pattern = pattern;
    if (regex) match.kind = metadata::wire::Match::Kind::kRegex;
    match.limit = metadata::wire::kMaxListed;
    return match;
  }
  std::uint64_t removed_by(const std::string& pattern, bool regex = false,
                           const std::function<void()>& meanwhile = {}) {
    std::optional<metadata::wire::RemoveMatchingAnswer> answer;
    walks_.remove(
        shared(), match_of(pattern, regex), {},
        [&](const Result<metadata::wire::RemoveMatchingAnswer>& said) { answer = *said; });
    finish_walk(answer, meanwhile);
    return answer ? answer->removed : 0;
  }
  std::vector<std::string> listed(const std::string& prefix = "",
                                  const std::function<void()>& meanwhile = {}) {
    std::optional<metadata::wire::ListAnswer> answer;
    walks_.list(shared(), match_of(prefix), {},
                [&](const Result<metadata::wire::ListAnswer>& said) { answer = *said; });
    finish_walk(answer, meanwhile);
    std::vector<std::string> keys;
    if (!answer) return keys;
    for (const metadata::wire::ListedKey& key : answer->keys) {
      keys.push_back(key.key);
      EXPECT_EQ(key.bytes, kObjectBytes);
    }
    return keys;
  }
  // Another host asks for the object.
  Ask ask_to_bring(const std::string& key) {
    auto request = std::make_shared<RemoteRequest>();
    request->kind = RemoteRequest::Kind::kBring;
    request->tenant = tenant_;
    request->items.emplace_back().name = shared_name_of(name_of(key));
    request->open_count = 1;
    pools_->begin_item(request, 0, rig_.now_ns());
    return {.request = request};
  }
  mc_status bring(const std::string& key) { return end_of(ask_to_bring(key)); }
  // The next start of the agent, with an empty pool.
  void restart() {
    close();
    pools_.reset();
    rig_.kill();
    open();
  }

  std::uint64_t now_ns_ = now_ns();
  metadata::KeyHasher hasher_{"secret"};
  VersionClock clock_{1};
  ScriptedMaster master_;
  Masters masters_{{&master_}};
  ClusterTenants tenants_;
  OperationTable operations_;
  IndexWalks walks_;
  Announcer announcer_{operations_, tenants_, masters_, clock_};
  std::vector<mc_status> elsewhere_;  // why the disks could not end a get
};

MATCHER_P2(Is, what, on_disk, "") { return arg.what == what && arg.on_disk == on_disk; }
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(SharedDisksTest, TheMasterHearsOfEachMoveBetweenPoolAndDisk) {
  put("a", 1);
  EXPECT_THAT(told(), ElementsAre(Is(What::kHolds, false)));
  const std::uint64_t version = version_in_pool("a");
  evict("a");
  const auto left = told();
  ASSERT_THAT(left, ElementsAre(Is(What::kHolds, true)));
  EXPECT_EQ(left[0].version, version);
  EXPECT_EQ(left[0].bytes, kObjectBytes);
  settle();
  EXPECT_THAT(told(), IsEmpty());
  EXPECT_EQ(bring("a"), MC_OK);
  EXPECT_EQ(version_in_pool("a"), version);
  EXPECT_THAT(told(), ElementsAre(Is(What::kHolds, false)));
  evict("a");  // the disk has the object still
  EXPECT_THAT(told(), ElementsAre(Is(What::kHolds, true)));
  EXPECT_EQ(pools_->demotions().same, 1u);
  EXPECT_EQ(version_on_disk("a"), version);
}

TEST_F(SharedDisksTest, AnObjectThatNoDiskTakesHasLeftTheHost) {
  put_and_evict("a", 1);
  rig_.disk().set_faults({.fail_write = 1, .error = EIO});
  told();
  settle();
  EXPECT_THAT(told(), ElementsAre(Is(What::kDropped, false)));
  EXPECT_EQ(version_on_disk("a"), 0u);
}

TEST_F(SharedDisksTest, TheMasterHearsOfObjectsThatLeaveWithTheirDisk) {
  put_and_evict("a", 1);
  put_and_evict("b", 1);
  settle();
  EXPECT_EQ(bring("b"), MC_OK);
  told();
  rig_.disk().vanish();
  put_and_evict("c", 1);
  settle();
  const auto items = told();
  for (const char* const gone : {"a", "c"}) {
    const auto at = std::ranges::find(items, name_of(gone), &PublishItem::hash);
    ASSERT_NE(at, items.end()) << gone;
    EXPECT_THAT(items, Contains(Is(What::kDropped, false))) << gone;
  }
  EXPECT_EQ(std::ranges::count(items, name_of("b"), &PublishItem::hash), 0) << "the pool has it";
}

TEST_F(SharedDisksTest, TheMasterHearsOfObjectsThatTheCleanerDrops) {
  std::map<KeyHash, PublishItem> latest;
  const auto note = [&] {
    for (const PublishItem& item : told()) latest[item.hash] = item;
  };
  for (int i = 0; i < 900; ++i) {
    put("k" + std::to_string(i), 1);
    for (int turns = 0; turns < 20; ++turns) turn();
    note();
  }
  settle();
  note();
  int on_disks = 0, dropped = 0;
  for (const auto& [name, item] : latest) {
    const bool is_there = pools_->version_of(shared_name_of(name)) == item.version;
    const bool is_dropped = item.what == What::kDropped;
    on_disks += item.on_disk ? 1 : 0;
    dropped += is_dropped ? 1 : 0;
    EXPECT_EQ(is_there || shared().find(name) != kNoEntry, !is_dropped);
    EXPECT_TRUE(is_there || !item.on_disk);
  }
  EXPECT_GT(on_disks, 300);
  EXPECT_GT(dropped, 100);
}

TEST_F(SharedDisksTest, TheMasterHearsOfADamagedObject) {
  put_and_evict("a", 1);
  settle();
  told();
  const tier::Place place = entry_in_tier("a")->place;
  rig_.disk().flip_bit(tier::kFirstSegmentOffset + tier::number_of(place.segment) * kSegmentBytes +
                           place.unit * tier::kUnitBytes + kObjectBytes / 2,
                       3);
  EXPECT_EQ(end_of(fetch("a")), MC_NOT_FOUND);
  EXPECT_THAT(elsewhere_, ElementsAre(MC_CORRUPT));
  EXPECT_THAT(told(), ElementsAre(Is(What::kDropped, false)));
  EXPECT_THAT(report(), IsEmpty());
  EXPECT_EQ(bring("a"), MC_NOT_FOUND);
}

TEST_F(SharedDisksTest, AReportNamesObjectsOnDisksAndOnTheirWay) {
  put_and_evict("a", 1);
  settle();
  put_and_evict("b", 1);
  put("c", 1);
  told();
  ASSERT_EQ(entry_in_tier("b"), nullptr);
  const auto items = report();
  ASSERT_EQ(items.size(), 3u);
  for (const PublishItem& item : items) {
    EXPECT_EQ(item.on_disk, item.hash != name_of("c"));
    EXPECT_EQ(item.what, What::kHolds);
  }
}

TEST_F(SharedDisksTest, AReportAfterAStartWaitsForTheDisks) {
  put_and_evict("a", 1);
  put_and_evict("b", 1);
  const std::uint64_t version = version_on_disk("a");
  settle();
  restart();
  std::vector<PublishItem> items;
  EXPECT_FALSE(announcer_.next_report(0, true, items));
  EXPECT_THAT(items, IsEmpty());
  rig_.recover();
  EXPECT_TRUE(announcer_.next_report(0, false, items));
  ASSERT_THAT(items, ElementsAre(Is(What::kHolds, true), Is(What::kHolds, true)));
  const auto a = std::ranges::find(items, name_of("a"), &PublishItem::hash);
  ASSERT_NE(a, items.end());
  EXPECT_EQ(a->version, version);
  EXPECT_EQ(a->bytes, kObjectBytes);
  EXPECT_GT(clock_.next(0), version) << "a put would be older than an object on the disk";
}

// The report has passed the pool when the object comes back.
TEST_F(SharedDisksTest, AnObjectThatIsPromotedDuringAReportIsNamed) {
  put_and_evict("a", 1);
  settle();
  restart();
  std::vector<PublishItem> items;
  EXPECT_FALSE(announcer_.next_report(0, true, items));
  rig_.recover();
  EXPECT_EQ(bring("a"), MC_OK);
  EXPECT_TRUE(announcer_.next_report(0, false, items));
  EXPECT_THAT(items, ElementsAre(Is(What::kHolds, false)));
}

TEST_F(SharedDisksTest, AVerdictThatComesWhileTheObjectIsOnItsWayCounts) {
  master_.is_ready = false;
  ASSERT_EQ(put("a", 1, kObjectBytes, false), ObjectStore::Put::kStored);
  flush();
  EXPECT_THAT(report(), IsEmpty());
  evict("a");
  master_.is_ready = true;
  EXPECT_THAT(told(), Not(IsEmpty()));
  ASSERT_EQ(entry_in_tier("a"), nullptr);
  settle();
  EXPECT_THAT(report(), ElementsAre(Is(What::kHolds, true)));
}

// The directory still names this host for the earlier object, and a create would yield to that.
TEST_F(SharedDisksTest, ACreateOverAnObjectThatTheDiskCannotReadIsNoLaterPut) {
  put_and_evict("a", 1);
  settle();
  const std::uint64_t earlier = version_on_disk("a");
  told();
  rig_.disk().fail_next(tier::BlockOperation::Kind::kRead, 1, EIO);
  EXPECT_EQ(end_of(fetch("a")), MC_NOT_FOUND);
  ASSERT_EQ(put("a", 2, kObjectBytes, false), ObjectStore::Put::kStored);
  const Ask forgotten = forget("a");
  const auto items = told();
  ASSERT_THAT(items, ElementsAre(Is(What::kDropped, false), Is(What::kCreates, false)));
  EXPECT_EQ(items[0].version, earlier);
  EXPECT_EQ(end_of(forgotten), MC_OK);
  EXPECT_GT(version_in_pool("a"), earlier);
}

TEST_F(SharedDisksTest, ARefusedObjectLeavesTheDiskForGood) {
  put_and_evict("a", 1);
  put_and_evict("b", 1);
  settle();
  for (const PublishItem& item : report()) {
    if (item.hash == name_of("a")) announcer_.on_verdict(item, Verdict::kRemoved);
  }
  settle();
  EXPECT_EQ(version_on_disk("a"), 0u);
  restart();
  rig_.recover();
  const auto items = report();
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].hash, name_of("b"));
}

// The verdict is of the put, and comes after the object has left the pool.
TEST_F(SharedDisksTest, APutThatIsRefusedAfterItsEvictionLeavesTheDisk) {
  for (const Verdict verdict : {Verdict::kStale, Verdict::kRemoved, Verdict::kBehind}) {
    put("a", 1);
    evict("a");
    ASSERT_NE(version_on_disk("a"), 0u);
    told(verdict);
    EXPECT_EQ(version_on_disk("a"), 0u);
    settle();
    told();
  }
}

TEST_F(SharedDisksTest, APutThatNoMasterKnowsYieldsInTheReport) {
  master_.is_ready = false;
  ASSERT_EQ(put("a", 1, kObjectBytes, false), ObjectStore::Put::kStored);
  flush();
  evict("a");
  flush();
  settle();
  restart();
  rig_.recover();
  EXPECT_THAT(report(), ElementsAre(Is(What::kCreated, true)))
      << "the report would replace other hosts' objects";
  master_.is_ready = true;
  EXPECT_THAT(told(), IsEmpty());
  EXPECT_THAT(report(), ElementsAre(Is(What::kHolds, true))) << "the master knows the put by now";
}

TEST_F(SharedDisksTest, ADropTakesTheOrderedVersionsAlone) {
  put_and_evict("a", 1);
  const std::uint64_t first = version_on_disk("a");
  settle();
  put_and_evict("a", 2);
  const std::uint64_t second = version_on_disk("a");
  ASSERT_GT(second, first);
  settle();
  EXPECT_TRUE(drop("a", first));
  EXPECT_EQ(version_on_disk("a"), second);
  EXPECT_TRUE(drop("a", second));
  EXPECT_EQ(version_on_disk("a"), 0u);
  EXPECT_TRUE(drop("a", second)) << "nothing is left to drop";
  restart();
  rig_.recover();
  EXPECT_THAT(report(), IsEmpty());
}

TEST_F(SharedDisksTest, ADropOfAnObjectOnItsWayIsDurable) {
  put_and_evict("a", 1);
  ASSERT_EQ(entry_in_tier("a"), nullptr);
  EXPECT_TRUE(drop("a", version_on_disk("a")));
  restart();
  rig_.recover();
  EXPECT_THAT(report(), IsEmpty());
}

// The record of the later object has a removal of the earlier one before it.
TEST_F(SharedDisksTest, ADropWhileALaterObjectIsOnItsWayIsDurable) {
  put_and_evict("a", 1);
  settle();
  const std::uint64_t earlier = version_on_disk("a");
  put_and_evict("a", 2);
  ASSERT_EQ(entry_in_tier("a"), nullptr);
  ASSERT_GT(version_on_disk("a"), earlier);
  EXPECT_TRUE(drop("a", earlier));
  close();
  pools_.reset();
  rig_.power_cut();
  open();
  rig_.recover();
  for (const PublishItem& item : report()) EXPECT_NE(item.version, earlier);
}

TEST_F(SharedDisksTest, ADropWhileALaterObjectIsRemovedIsDurable) {
  put_and_evict("a", 1);
  settle();
  const std::uint64_t earlier = version_on_disk("a");
  put_and_evict("a", 2);
  std::optional<bool> durable;
  pools_->drop(shared_name_of(name_of("a")), earlier, [&](bool is) { durable = is; });
  EXPECT_FALSE(durable);
  EXPECT_TRUE(drop("a", version_on_disk("a")));
  for (int i = 0; i < 100'000 && !durable; ++i) turn();
  EXPECT_EQ(durable, true);
}

TEST_F(SharedDisksTest, ADropDuringTheRecoveryIsDurable) {
  put_and_evict("a", 1);
  const std::uint64_t version = version_on_disk("a");
  settle();
  restart();
  EXPECT_TRUE(drop("a", version));
  rig_.recover();
  EXPECT_THAT(report(), IsEmpty());
}

TEST_F(SharedDisksTest, ADropAfterAFailureOfTheDiskIsNotDurable) {
  put_and_evict("a", 1);
  const std::uint64_t version = version_on_disk("a");
  settle();
  rig_.disk().vanish();
  put_and_evict("b", 1);
  settle();
  EXPECT_EQ(version_on_disk("a"), 0u);
  EXPECT_FALSE(drop("a", version)) << "the disk may come back with the object";
}

// The second drop waits for the removal of the first one.
TEST_F(SharedDisksTest, ADropOfAnObjectThatIsBeingDroppedIsDurable) {
  put_and_evict("a", 1);
  const std::uint64_t version = version_on_disk("a");
  settle();
  pools_->drop(shared_name_of(name_of("a")), version, {});
  const std::uint64_t removals = rig_.log().report().front().log.removals;
  EXPECT_TRUE(drop("a", version));
  EXPECT_EQ(rig_.log().report().front().log.removals, removals + 1);
}

TEST_F(SharedDisksTest, ACopyReplacesAnEarlierObjectOnTheDisk) {
  put_and_evict("a", 1);
  settle();
  shared().expect_copy(version_on_disk("a") + 1024);
  put("a", 2);
  settle();
  EXPECT_EQ(version_on_disk("a"), 0u);
  restart();
  rig_.recover();
  EXPECT_THAT(report(), IsEmpty());
}

TEST_F(SharedDisksTest, AnObjectThatTheDiskCannotReadIsLookedForElsewhere) {
  put_and_evict("a", 1);
  settle();
  rig_.disk().set_faults({.fail_read = 1, .error = EIO});
  const Ask got = fetch("a");
  EXPECT_EQ(end_of(got), MC_NOT_FOUND);
  EXPECT_THAT(elsewhere_, ElementsAre(MC_DISK_AWAY));
  EXPECT_EQ(bring("a"), MC_DISK_AWAY);
}

TEST_F(SharedDisksTest, AnotherHostGetsAnObjectOnItsWayOnceTheDiskHasIt) {
  put_and_evict("a", 1);
  ASSERT_EQ(entry_in_tier("a"), nullptr);
  EXPECT_EQ(bring("a"), MC_OK);
  EXPECT_TRUE(in_pool("a"));
  EXPECT_TRUE(gets("a", 1));
  EXPECT_EQ(bring("b"), MC_NOT_FOUND);
}

// As a drain does it: objects of the pool must not be lost for those of the disk.
TEST_F(SharedDisksTest, ObjectsComeIntoAFullPoolWithoutTheLossOfAnother) {
  constexpr int kObjects = 20;
  for (int i = 0; i < kObjects; ++i) {
    put_and_evict("a/" + std::to_string(i), 1);
    settle();
  }
  for (int i = 0; store().free_bytes() > 2 * kObjectBytes; ++i) put("b/" + std::to_string(i), 1);
  const auto lost = [&] { return pools_->demotions().busy + pools_->demotions().failed; };
  const std::uint64_t before = lost();
  std::vector<Ask> asks;
  for (int i = 0; i < kObjects; ++i) asks.push_back(ask_to_bring("a/" + std::to_string(i)));
  for (const Ask& ask : asks) EXPECT_EQ(end_of(ask), MC_OK);
  settle();
  EXPECT_EQ(lost(), before);
}

TEST_F(SharedDisksTest, APinBringsAnObjectOfTheDiskIntoThePool) {
  put_and_evict("a", 1);
  settle();
  const std::uint64_t version = version_on_disk("a");
  told();
  EXPECT_EQ(pin("a", MC_PIN_HARD), MC_OK);
  EXPECT_EQ(version_in_pool("a"), version);
  EXPECT_THAT(told(), ElementsAre(Is(What::kHolds, false)));
  EXPECT_EQ(pin("of another host", MC_PIN_HARD), MC_NOT_FOUND);
  EXPECT_THAT(elsewhere_, IsEmpty()) << "a pin is of this host's objects";
}

TEST_F(SharedDisksTest, AListingNamesObjectsInThePoolOnTheirWayAndOnDisks) {
  put_and_evict("a/1", 1);
  settle();
  put_and_evict("a/2", 1);
  put("a/3", 1);
  put_and_evict("b/1", 1);
  EXPECT_THAT(listed("a/"), ElementsAre("a/1", "a/2", "a/3"));
  settle();
  EXPECT_EQ(bring("a/1"), MC_OK);
  EXPECT_THAT(listed("a/"), ElementsAre("a/1", "a/2", "a/3"));
  EXPECT_TRUE(drop("a/2", version_on_disk("a/2")));
  EXPECT_THAT(listed(), ElementsAre("a/1", "a/3", "b/1"));
  restart();
  EXPECT_THAT(listed(), ElementsAre("a/1", "b/1")) << "the listing waits for the recovery";
}

TEST_F(SharedDisksTest, AListingMissesNoObjectThatMovesMeanwhile) {
  std::vector<std::string> keys;
  for (int i = 0; i < 150; ++i) {
    keys.push_back("kept/" + std::to_string(1000 + i));
    put(keys.back(), 1);
    for (int turns = 0; turns < 20; ++turns) turn();
  }
  settle();
  int moves = 0;
  const auto move_some = [&] {
    const std::string& key = keys[static_cast<std::size_t>(moves * 37 % 150)];
    if (!in_pool(key)) bring(key);
    if (const std::string& other = keys[static_cast<std::size_t>(moves * 53 % 150)];
        in_pool(other)) {
      evict(other);
    }
    // The cleaner has work.
    put("other/" + std::to_string(moves++), 1);
  };
  for (int i = 0; i < 300; ++i) move_some();
  std::vector<std::string> before, after;
  const auto note_present = [&](std::vector<std::string>& present) {
    for (const std::string& key : keys) {
      if (in_pool(key) || version_on_disk(key) != 0) present.push_back(key);
    }
  };
  note_present(before);
  const int moved = moves;
  const std::vector<std::string> found = listed("kept/", move_some);
  EXPECT_GT(moves, moved + 3);
  note_present(after);
  EXPECT_GT(after.size(), 80u);
  for (const std::string& key : after) EXPECT_THAT(found, Contains(key));
  for (const std::string& key : found) EXPECT_THAT(before, Contains(key));
}

TEST_F(SharedDisksTest, ARemovalByPatternLeavesTheOtherObjectsOnTheDisks) {
  for (const bool regex : {false, true}) {
    put_and_evict("a/1", 1);
    settle();
    put_and_evict("a/2", 1);
    put_and_evict("b/1", 1);
    put("b/2", 1);
    put("a/3", 1);
    told();
    EXPECT_EQ(removed_by(regex ? "^a/[1-3]" : "a/", regex), 3u);
    EXPECT_THAT(told(), ElementsAre(Is(What::kDropped, false), Is(What::kDropped, false),
                                    Is(What::kDropped, false)));
    EXPECT_THAT(listed(), ElementsAre("b/1", "b/2"));
    restart();
    rig_.recover();
    EXPECT_THAT(report(), ElementsAre(Is(What::kHolds, true)));
    EXPECT_TRUE(gets("b/1", 1));
    EXPECT_TRUE(drop("b/1", version_on_disk("b/1")));
  }
}

TEST_F(SharedDisksTest, ARemovalOfAllObjectsReadsNoKeys) {
  for (int i = 0; i < 90; ++i) {
    put_and_evict("a/" + std::to_string(i), 1);
    if (i < 89) settle();
  }
  put("b", 1);
  const std::uint64_t reads = rig_.disk().counts().reads;
  EXPECT_EQ(removed_by(""), 91u);
  EXPECT_EQ(rig_.disk().counts().reads, reads);
  EXPECT_EQ(listed().size(), 0u);
  restart();
  rig_.recover();
  EXPECT_THAT(report(), IsEmpty());
}

TEST_F(SharedDisksTest, ARemovalByPatternTakesObjectsThatComeBackMeanwhile) {
  for (const bool regex : {false, true}) {
    for (int i = 0; i < 30; ++i) {
      put_and_evict("a/" + std::to_string(i), 1);
      put_and_evict("b/" + std::to_string(i), 1);
      settle();
    }
    int brought = 0;
    const std::uint64_t removed = removed_by(regex ? "^a/" : "a/", regex, [&] {
      if (brought == 30) return;
      bring("a/" + std::to_string(29 - brought));
      bring("b/" + std::to_string(brought++));
    });
    EXPECT_EQ(removed, 30u);
    EXPECT_EQ(listed("a/").size(), 0u);
    EXPECT_EQ(listed("b/").size(), 30u);
    restart();
    rig_.recover();
    EXPECT_EQ(report().size(), 30u);
    EXPECT_EQ(removed_by(""), 30u);
  }
}

TEST_F(SharedDisksTest, ARemovalTakesAnObjectWhoseKeyCannotBeRead) {
  for (int i = 0; i < 60; ++i) {
    put_and_evict("b/" + std::to_string(i), 1);
    settle();
  }
  ASSERT_EQ(listed().size(), 60u);
  const tier::Place place = entry_in_tier("b/0")->place;
  const std::uint64_t segment =
      tier::kFirstSegmentOffset + tier::number_of(place.segment) * kSegmentBytes;
  rig_.disk().flip_bit(segment + kSegmentBytes - tier::kBlockBytes + 20, 3);
  const std::uint64_t front = place.unit * tier::kUnitBytes / tier::kBlockBytes * tier::kBlockBytes;
  rig_.disk().fail_range(tier::BlockOperation::Kind::kRead, segment + front, tier::kBlockBytes,
                         EIO);
  EXPECT_EQ(listed().size(), 59u);
  EXPECT_EQ(removed_by("a/"), 1u);
  EXPECT_EQ(version_on_disk("b/0"), 0u);
  EXPECT_EQ(listed().size(), 59u);
}

TEST_F(SharedDisksTest, AListingAndARemovalEndWhenTheDiskFails) {
  put_and_evict("a/1", 1);
  settle();
  put("a/2", 1);
  EXPECT_THAT(listed("", [&] { rig_.disk().vanish(); }), Contains("a/2"));
  put_and_evict("a/3", 1);
  settle();
  for (const char* const prefix : {"a/", "none/"}) {
    std::optional<Status> ended;
    walks_.remove(shared(), match_of(prefix), {},
                  [&](const Result<metadata::wire::RemoveMatchingAnswer>& said) {
                    ended = said ? Status() : said.error();
                  });
    finish_walk(ended, {});
    EXPECT_EQ(ended->code(), MC_DISK_AWAY) << "the disk may come back with objects";
  }
}

TEST_F(SharedDisksTest, ARemovalByPatternOutlivesAPowerCut) {
  put_and_evict("a/1", 1);
  settle();
  put_and_evict("a/2", 1);
  put_and_evict("b/1", 1);
  settle();
  EXPECT_EQ(bring("a/1"), MC_OK);
  EXPECT_EQ(removed_by("a/"), 2u);
  close();
  pools_.reset();
  rig_.power_cut();
  open();
  rig_.recover();
  EXPECT_THAT(listed(), ElementsAre("b/1"));
}

// Each removal of an unknown key is written while the disks are being read.
TEST_F(SharedDisksTest, ADropThatWaitsTakesTheObjectOnceThereIsRoom) {
  put_and_evict("a", 1);
  settle();
  const std::uint64_t version = version_on_disk("a");
  restart();
  for (int i = 0; pools_->may_forget(1); ++i) {
    ASSERT_TRUE(rig_.log().remove({"none/" + std::to_string(i), 1}));
  }
  EXPECT_TRUE(drop("a", version));
  rig_.recover();
  EXPECT_EQ(version_on_disk("a"), 0u);
  EXPECT_THAT(report(), IsEmpty());
}

TEST_F(SharedDisksTest, AnotherClusterDoesNotSeeTheObjects) {
  put_and_evict("a", 1);
  settle();
  hasher_ = metadata::KeyHasher("another secret");
  restart();
  rig_.recover();
  EXPECT_THAT(report(), IsEmpty());
  EXPECT_EQ(version_on_disk("a"), 0u);
}

}  // namespace
}  // namespace mc::agent
