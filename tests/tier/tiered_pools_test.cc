// SPDX-License-Identifier: Apache-2.0
//
// Objects between a pool and the tier, over model disks: demotion, reads, promotion, removal, and what
// happens if two of these meet.
#include "agent/tiering/tiered_pools.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tier/tiered_rig.h"

namespace mc::agent {
namespace {

class TieredPoolsTest : public TieredRig {
 protected:
  using TieredRig::TieredRig;
};

TEST_F(TieredPoolsTest, EvictedObjectsGoToTheDiskAndComeBackWithTheSecondRead) {
  constexpr int kObjects = 200;
  for (int i = 0; i < kObjects; ++i) {
    ASSERT_EQ(put("k" + std::to_string(i), 1), ObjectStore::Put::kStored);
    for (int turns = 0; turns < 20; ++turns) turn();
  }
  settle();
  EXPECT_EQ(pools_->demotions().objects, store().counters().evictions) << "an object was lost";
  EXPECT_GT(store().counters().evictions, 100u);
  const std::uint64_t evictions = store().counters().evictions;
  for (int i = 0; i < kObjects; ++i) EXPECT_TRUE(gets("k" + std::to_string(i), 1)) << i;
  EXPECT_GT(pools_->reads().objects, 0u);
  EXPECT_EQ(pools_->reads().promoted, 0u);
  EXPECT_GE(store().counters().evictions, evictions);

  ASSERT_FALSE(in_pool("k0"));
  EXPECT_TRUE(gets("k0", 1));
  EXPECT_TRUE(in_pool("k0"));
  EXPECT_EQ(pools_->reads().promoted, 1u);
  // The disk still has the promoted object: the next eviction writes nothing.
  const std::uint64_t demoted = pools_->demotions().objects;
  const std::uint64_t same = pools_->demotions().same;
  evict("k0");
  EXPECT_GT(pools_->demotions().same, same);
  settle();
  EXPECT_TRUE(gets("k0", 1));
  EXPECT_GE(pools_->demotions().objects, demoted);
}

TEST_F(TieredPoolsTest, AnObjectOnItsWayToTheDiskIsFound) {
  put("a", 1);
  evict("a");
  EXPECT_FALSE(in_pool("a"));
  EXPECT_FALSE(on_disk("a"));
  EXPECT_TRUE(pools_->has(*tenant_, "a"));
  const Ask got = fetch("a");
  ASSERT_TRUE(got.over());
  EXPECT_EQ(got.status(), MC_OK);
  // The reader's pin keeps the bytes after the write has ended.
  for (int i = 0; i < 1000 && !(on_disk("a") && rig_.log().idle()); ++i) turn();
  put("b", 2, 4 << 20);
  EXPECT_EQ(bytes_of(got), value_of("a", 1, kObjectBytes));
  EXPECT_EQ(store().limbo_count(), 1u);
  shm::clear_pin(*got.pin);
  settle();
  EXPECT_EQ(store().limbo_count(), 0u);
  EXPECT_EQ(pools_->reads().on_the_way, 1u);
}

TEST_F(TieredPoolsTest, AMissIsAMissAndExistsTellsTheLength) {
  put("a", 1);
  evict("a");
  settle();
  const Ask found = ask(RemoteRequest::Kind::kExists, "a");
  ASSERT_TRUE(found.over());
  EXPECT_EQ(found.status(), MC_OK);
  EXPECT_EQ(found.request->items[0].length, kObjectBytes);
  EXPECT_EQ(ask(RemoteRequest::Kind::kExists, "b").status(), MC_NOT_FOUND);
  EXPECT_EQ(fetch("b").status(), MC_NOT_FOUND);
  EXPECT_EQ(pools_->reads().misses, 2u);
}

TEST_F(TieredPoolsTest, ReadersOfAnObjectShareARead) {
  put("a", 1);
  evict("a");
  settle();
  const Ask first = fetch("a");
  const Ask second = fetch("a");
  EXPECT_EQ(end_of(first), MC_OK);
  ASSERT_TRUE(second.over());
  EXPECT_EQ(pools_->reads().objects, 1u);
  EXPECT_EQ(bytes_of(first), value_of("a", 1, kObjectBytes));
  EXPECT_EQ(bytes_of(second), value_of("a", 1, kObjectBytes));
  EXPECT_EQ(first.request->items[0].entry, second.request->items[0].entry);
}

TEST_F(TieredPoolsTest, ARemovedObjectStaysAwayWhereverItWas) {
  for (const char* const key : {"pool", "way", "disk", "both"}) put(key, 1);
  for (const char* const key : {"disk", "both"}) evict(key);
  settle();
  ASSERT_TRUE(gets("both", 1) && gets("both", 1) && in_pool("both") && on_disk("both"));
  evict("way");
  for (const char* const key : {"pool", "way", "disk", "both"}) {
    const Ask removal = ask(RemoteRequest::Kind::kRemove, key);
    EXPECT_EQ(fetch(key).status(), MC_NOT_FOUND) << key << ", at once";
    EXPECT_EQ(end_of(removal), MC_OK) << key;
    EXPECT_EQ(fetch(key).status(), MC_NOT_FOUND) << key;
    EXPECT_EQ(remove(key), MC_NOT_FOUND) << key;
  }
  settle();
  pools_.reset();
  rig_.power_cut();
  rig_.recover();
  open();
  for (const char* const key : {"pool", "way", "disk", "both"}) {
    EXPECT_EQ(fetch(key).status(), MC_NOT_FOUND) << key;
  }
}

TEST_F(TieredPoolsTest, ARemovalOutdatesAReadThatIsUnderWay) {
  put("a", 1);
  evict("a");
  settle();
  EXPECT_TRUE(gets("a", 1));
  const Ask early = fetch("a");  // would promote the object
  ASSERT_FALSE(early.over());
  const Ask removal = ask(RemoteRequest::Kind::kRemove, "a");
  EXPECT_EQ(fetch("a").status(), MC_NOT_FOUND);
  EXPECT_EQ(end_of(early), MC_OK);
  EXPECT_EQ(bytes_of(early), value_of("a", 1, kObjectBytes));
  EXPECT_EQ(end_of(removal), MC_OK);
  EXPECT_FALSE(in_pool("a"));
  EXPECT_EQ(fetch("a").status(), MC_NOT_FOUND);
}

TEST_F(TieredPoolsTest, AnUpsertDuringAReadOrAWriteWins) {
  for (const bool read : {true, false}) {
    const std::string key = read ? "read" : "written";
    put(key, 1);
    evict(key);
    std::vector<Ask> early;
    if (read) {
      settle();
      EXPECT_TRUE(gets(key, 1));
      early.push_back(fetch(key));
    }
    put(key, 2);
    EXPECT_EQ(end_of(forget(key)), MC_OK);
    for (const Ask& each : early) {
      EXPECT_EQ(end_of(each), MC_OK);
      EXPECT_EQ(bytes_of(each), value_of(key, 1, kObjectBytes));
      shm::clear_pin(*each.pin);
    }
    settle();
    EXPECT_FALSE(on_disk(key));
    EXPECT_TRUE(gets(key, 2));
    evict(key);
    settle();
    EXPECT_TRUE(on_disk(key));
    EXPECT_TRUE(gets(key, 2));
    EXPECT_TRUE(gets(key, 2));
  }
  pools_.reset();
  rig_.power_cut();
  rig_.recover();
  open();
  EXPECT_TRUE(gets("read", 2));
  EXPECT_TRUE(gets("written", 2));
}

TEST_F(TieredPoolsTest, AReaderJoinsNoReadOfAnEarlierVersion) {
  put("a", 1);
  evict("a");
  settle();
  rig_.disk().set_speed({.read_ns = 5'000'000'000, .write_ns = 30'000, .flush_ns = 400'000});
  const Ask early = fetch("a");
  put("a", 2);
  EXPECT_EQ(end_of(forget("a")), MC_OK);
  evict("a");
  for (int i = 0; i < 10'000 && !on_disk("a"); ++i) turn();
  ASSERT_FALSE(early.over()) << "the test needs a slow read";
  const Ask late = fetch("a");
  EXPECT_EQ(end_of(early), MC_OK);
  EXPECT_EQ(end_of(late), MC_OK);
  EXPECT_EQ(bytes_of(early), value_of("a", 1, kObjectBytes));
  EXPECT_EQ(bytes_of(late), value_of("a", 2, kObjectBytes));
}

TEST_F(TieredPoolsTest, AnotherPoolReadsTheObjectsWithChecksumsOfItsOwn) {
  put("parent", 1);
  put("child", 1);
  evict("parent");
  evict("child");
  settle();
  const std::uint64_t seed = store().index().header().hash_seed;
  pools_.reset();
  rig_.kill();
  rig_.recover();
  open();
  ASSERT_NE(store().index().header().hash_seed, seed);
  EXPECT_TRUE(gets("child", 1));
  EXPECT_TRUE(gets("child", 1));
  EXPECT_TRUE(in_pool("child"));
  EXPECT_TRUE(gets("child", 1));
}

TEST_F(TieredPoolsTest, DamagedAndUnreadableBytesAreNoMiss) {
  put("a", 1);
  put("b", 1);
  evict("a");
  evict("b");
  settle();
  rig_.disk().fail_next(tier::BlockOperation::Kind::kRead, 1, EIO);
  EXPECT_EQ(end_of(fetch("a")), MC_DISK_AWAY);
  // A client that only creates would never get past the record.
  EXPECT_FALSE(pools_->has(*tenant_, "a"));
  EXPECT_TRUE(pools_->may_bring_back(*tenant_, "a"));
  EXPECT_EQ(ask(RemoteRequest::Kind::kExists, "a").status(), MC_OK);
  EXPECT_TRUE(gets("a", 1)) << "the disk reads again";
  EXPECT_TRUE(pools_->has(*tenant_, "a"));
  EXPECT_EQ(pools_->reads().failed, 1u);

  const tier::Place place = entry_of("b")->place;
  rig_.disk().flip_bit(tier::kFirstSegmentOffset + tier::number_of(place.segment) * kSegmentBytes +
                           place.unit * tier::kUnitBytes + 5'000,
                       3);
  EXPECT_EQ(end_of(fetch("b")), MC_CORRUPT);
  EXPECT_EQ(fetch("b").status(), MC_NOT_FOUND);
  EXPECT_FALSE(pools_->has(*tenant_, "b"));
  EXPECT_TRUE(pools_->may_bring_back(*tenant_, "b"));
  // The object can be put anew, and its damaged record never counts.
  put("b", 2);
  evict("b");
  settle();
  EXPECT_TRUE(gets("b", 2));
  EXPECT_EQ(store().reserved_count(), 0u);
}

TEST_F(TieredPoolsTest, AReadOfALargeObjectClearsAPlaceInAPoolOfSmallOnes) {
  constexpr std::size_t kLarge = 1'500'000;
  put("large", 1, kLarge);
  evict("large");
  settle();
  for (int i = 0; i < 100; ++i) put("k" + std::to_string(i), 1);
  ASSERT_LT(store().free_bytes(), kLarge / 2);
  EXPECT_TRUE(gets("large", 1, kLarge));
}

TEST_F(TieredPoolsTest, TwoReadsOfAKeyThatWaitForRoomBothEnd) {
  put("large", 1, 5 * kObjectBytes);
  put("a", 1);
  evict("large");
  settle();
  evict("a");
  settle();
  // Room for an object of a, but not for the large one, whose read is the first in the queue.
  std::vector<std::uint32_t> held(2, kNoEntry);
  for (std::uint32_t& entry : held) {
    ASSERT_EQ(store().reserve(kSession, kPoolBytes / 2 - 3 * kObjectBytes / 2, true, entry),
              ObjectStore::Reserve::kOk);
  }
  const Ask large = fetch("large");
  const Ask first = fetch("a");
  put("a", 2);
  ASSERT_TRUE(store().set_pin("a", MC_PIN_HARD, 0));
  EXPECT_EQ(end_of(forget("a")), MC_OK);
  ASSERT_TRUE(store().set_pin("a", MC_PIN_NONE, 0));
  for (int i = 0; i < 10'000 && !on_disk("a"); ++i) turn();
  ASSERT_TRUE(on_disk("a")) << "the waiting read evicts all objects";
  const Ask second = fetch("a");
  EXPECT_FALSE(large.over() || first.over() || second.over());
  ASSERT_TRUE(store().abandon(kSession, held[0]));
  EXPECT_EQ(end_of(large), MC_OK);
  EXPECT_EQ(end_of(first), MC_OK);
  EXPECT_EQ(end_of(second), MC_OK);
  EXPECT_EQ(bytes_of(second), value_of("a", 2, kObjectBytes));
}

TEST_F(TieredPoolsTest, APinBringsAnObjectOfTheDiskIntoThePool) {
  put("a", 1);
  put("b", 1);
  evict("a");
  settle();
  ASSERT_FALSE(in_pool("a"));
  EXPECT_EQ(pin("a", MC_PIN_HARD), MC_OK);
  ASSERT_TRUE(in_pool("a"));
  evict_oldest();
  EXPECT_TRUE(in_pool("a"));
  EXPECT_FALSE(in_pool("b"));
  EXPECT_TRUE(gets("a", 1));
  EXPECT_EQ(pin("a", MC_PIN_NONE), MC_OK);
  evict_oldest();
  EXPECT_FALSE(in_pool("a"));
}

TEST_F(TieredPoolsTest, APinOfAnObjectOnItsWayWaitsForTheDisk) {
  put("a", 1);
  evict("a");
  ASSERT_FALSE(on_disk("a"));
  EXPECT_EQ(pin("a", MC_PIN_SOFT), MC_OK);
  EXPECT_TRUE(in_pool("a"));
  EXPECT_TRUE(gets("a", 1));
}

TEST_F(TieredPoolsTest, APinJoinsAReadThatIsUnderWay) {
  put("a", 1);
  evict("a");
  settle();
  const Ask got = fetch("a");
  EXPECT_EQ(pin("a", MC_PIN_HARD), MC_OK);
  EXPECT_TRUE(in_pool("a")) << "the first read alone would be served unpublished";
  EXPECT_EQ(end_of(got), MC_OK);
  EXPECT_EQ(bytes_of(got), value_of("a", 1, kObjectBytes));
  shm::clear_pin(*got.pin);
}

TEST_F(TieredPoolsTest, TheEndOfAPinReadsNothing) {
  put("a", 1);
  evict("a");
  settle();
  EXPECT_EQ(pin("a", MC_PIN_NONE), MC_OK);
  EXPECT_FALSE(in_pool("a"));
  EXPECT_EQ(pin("nowhere", MC_PIN_NONE), MC_NOT_FOUND);
  EXPECT_EQ(pin("nowhere", MC_PIN_HARD), MC_NOT_FOUND);
}

TEST_F(TieredPoolsTest, APinOfAnObjectThatCannotBeReadSaysSo) {
  put("a", 1);
  evict("a");
  settle();
  rig_.disk().fail_next(tier::BlockOperation::Kind::kRead, 1, EIO);
  EXPECT_EQ(pin("a", MC_PIN_HARD), MC_DISK_AWAY);
  EXPECT_EQ(pin("a", MC_PIN_HARD), MC_OK);
}

TEST_F(TieredPoolsTest, AnObjectThatTheDiskDoesNotTakeIsNotFollowedByAnEarlierOne) {
  put("a", 1);
  evict("a");
  settle();
  // Not announced to the disks: as after a crash between an upsert and the removal on the disk.
  put("a", 2);
  ASSERT_TRUE(on_disk("a"));
  for (const char* const other : {"b", "c", "d"}) put(other, 1);
  for (const char* const key : {"b", "c", "d"}) evict(key);
  const std::uint64_t busy = pools_->demotions().busy;
  evict("a");
  ASSERT_GT(pools_->demotions().busy, busy) << "the test needs a full way to the disk";
  EXPECT_EQ(fetch("a").status(), MC_NOT_FOUND);
  settle();
  EXPECT_EQ(fetch("a").status(), MC_NOT_FOUND);
}

TEST_F(TieredPoolsTest, ACreateDuringTheStartReplacesTheObjectOnTheDisk) {
  restart_with_a();
  ASSERT_TRUE(rig_.log().recovering());
  const Ask early = fetch("a");
  EXPECT_FALSE(early.over());
  put("a", 2);
  pools_->created(*tenant_, "a");
  EXPECT_EQ(end_of(early), MC_OK);
  EXPECT_EQ(bytes_of(early), value_of("a", 2, kObjectBytes));
  rig_.recover();
  settle();
  EXPECT_FALSE(on_disk("a"));
}

TEST_F(TieredPoolsTest, DuringTheStartOnlyARemovalOfTheSameKeyIsUnsure) {
  restart_with_a();
  EXPECT_FALSE(pools_->may_bring_back(*tenant_, "b"));
  const Ask removal = ask(RemoteRequest::Kind::kRemove, "b");
  EXPECT_TRUE(pools_->may_bring_back(*tenant_, "b"));
  EXPECT_FALSE(pools_->may_bring_back(*tenant_, "c")) << "a create would wait";
  EXPECT_EQ(end_of(removal), MC_OK);
  EXPECT_FALSE(pools_->may_bring_back(*tenant_, "b"));
}

TEST_F(TieredPoolsTest, AnObjectThatIsEvictedDuringTheStartIsNotFollowedByAnEarlierOne) {
  restart_with_a();
  put("a", 2);  // as an object of a pool that was kept
  evict("a");
  while (rig_.log().recovering()) {
    ASSERT_FALSE(pools_->has(*tenant_, "a"));
    turn();
  }
  settle();
  EXPECT_EQ(fetch("a").status(), MC_NOT_FOUND);
}

TEST_F(TieredPoolsTest, AGetOfAnUnknownKeyWaitsForTheDisksOnlyForAWhile) {
  pools_.reset();
  rig_.kill();
  rig_.disk().set_slowness(100'000);
  open();
  const Ask got = fetch("nowhere");
  const std::uint64_t begun_ns = rig_.now_ns();
  EXPECT_EQ(end_of(got), MC_DISK_AWAY);
  EXPECT_GE(rig_.now_ns() - begun_ns, 2'000'000'000u);
  EXPECT_LT(rig_.now_ns() - begun_ns, 4'000'000'000u);
  EXPECT_EQ(fetch("nowhere").status(), MC_DISK_AWAY);
}

TEST_F(TieredPoolsTest, AnAbandonedReadWritesNoPin) {
  put("a", 1);
  evict("a");
  settle();
  const Ask got = fetch("a");
  got.request->abandoned = true;
  settle();
  EXPECT_EQ(got.pin->load_relaxed(), 0u);
  EXPECT_EQ(store().reserved_count(), 0u);
  EXPECT_EQ(store().limbo_count(), 0u);
}

TEST_F(TieredPoolsTest, AnObjectOfMoreThanAQuarterOfThePoolIsLost) {
  put("large", 1, kPoolBytes / 3);
  evict("large");
  EXPECT_EQ(pools_->demotions().too_large, 1u);
  EXPECT_EQ(fetch("large").status(), MC_NOT_FOUND);
}

TEST_F(TieredPoolsTest, AnUpsertSaysThatAFailedDiskMayBringBackAnEarlierObject) {
  put("a", 1);
  evict("a");
  settle();
  rig_.disk().vanish();
  put("b", 1);
  evict("b");
  settle();
  put("a", 2);
  EXPECT_EQ(end_of(forget("a")), MC_DISK_AWAY);
  EXPECT_TRUE(gets("a", 2));
  EXPECT_EQ(remove("a"), MC_DISK_AWAY);
  EXPECT_EQ(fetch("a").status(), MC_NOT_FOUND);
}

TEST_F(TieredPoolsTest, ASlowDiskDelaysNoPut) {
  rig_.disk().set_speed({.read_ns = 1'000'000'000,
                         .write_ns = 1'000'000'000,
                         .flush_ns = 1'000'000'000,
                         .block_ns = 1'000'000});
  for (int i = 0; i < 500; ++i) {
    std::uint32_t entry = kNoEntry;
    // Without a turn of the disk.
    ASSERT_EQ(store().reserve(kSession, kObjectBytes, true, entry), ObjectStore::Reserve::kOk) << i;
    ASSERT_TRUE(publish("k" + std::to_string(i), entry, kObjectBytes));
    store().catch_up();
  }
  EXPECT_GT(pools_->demotions().busy, 300u);
  EXPECT_EQ(pools_->demotions().objects, 0u);
  EXPECT_GT(store().live_bytes(), kPoolBytes * 9 / 10);
}

TEST_F(TieredPoolsTest, APutThatNeedsRoomLeavesOnlyAFewVictimsToTheDisk) {
  constexpr std::size_t kSmall = 4096;
  for (int i = 0; store().free_bytes() > kSmall; ++i) {
    std::uint32_t entry = kNoEntry;
    ASSERT_EQ(store().reserve(kSession, kSmall, false, entry), ObjectStore::Reserve::kOk);
    ASSERT_TRUE(publish("k" + std::to_string(i), entry, kSmall));
  }
  const std::uint64_t batch = store().live_count() / 64;
  std::uint32_t entry = kNoEntry;
  ASSERT_EQ(store().reserve(kSession, 1 << 20, true, entry), ObjectStore::Reserve::kOk);
  EXPECT_GT(store().limbo_bytes(), 0u);
  EXPECT_LE(store().limbo_bytes(), batch * kSmall);
}

TEST_F(TieredPoolsTest, ObjectsThatWereReadAreTakenLongestIfTheBytesOfTheDayRunShort) {
  open(24 * 1'000'000);
  for (int i = 0; i < 16; ++i) put("k" + std::to_string(i), 1);
  for (int i = 8; i < 16; ++i) use("k" + std::to_string(i));
  int first_lost = 0;
  for (int i = 0; i < 16; ++i) {
    evict_oldest();
    settle();
    if (first_lost == 0 && pools_->demotions().saving > 0) first_lost = i;
  }
  EXPECT_GE(first_lost, 1);
  EXPECT_LT(first_lost, 8);
  EXPECT_FALSE(on_disk("k7"));
  EXPECT_TRUE(on_disk("k8"));
  EXPECT_FALSE(on_disk("k15")) << "nothing is left of the plan";
  EXPECT_EQ(pools_->demotions().objects + pools_->demotions().saving, 16u);
}

class TwoDisksTest : public TieredPoolsTest {
 protected:
  TwoDisksTest() : TieredPoolsTest(2) {}
};

TEST_F(TwoDisksTest, ADiskThatHangsHoldsUpNoReadOfTheOther) {
  std::vector<std::string> on[2];
  for (int i = 0; on[0].size() < 8 || on[1].empty(); ++i) {
    ASSERT_LT(i, 100);
    const std::string key = "k" + std::to_string(i);
    put(key, 1);
    evict(key);
    settle();
    on[tier::disk_of(entry_of(key)->place.segment)].push_back(key);
  }
  rig_.disk(0).set_speed({.read_ns = 20'000'000'000, .write_ns = 30'000, .flush_ns = 400'000});
  std::vector<Ask> slow;
  for (const std::string& key : on[0]) slow.push_back(fetch(key));
  EXPECT_TRUE(gets(on[1].front(), 1));
  for (const Ask& each : slow) EXPECT_FALSE(each.over());
  for (const Ask& each : slow) EXPECT_EQ(end_of(each), MC_OK);
}

TEST(Admission, SavesAnHourAndTakesUsedObjectsWithTheLastHalf) {
  constexpr std::uint64_t kHour = 3'600'000'000'000;
  Admission admission(24'000, 500, kHour);  // 1,000 bytes an hour; 500 are saved
  EXPECT_TRUE(admission.admits(false, 500, kHour));
  admission.charge(100);
  EXPECT_FALSE(admission.admits(false, 500, kHour));
  EXPECT_TRUE(admission.admits(true, 600, kHour)) << "these bytes were charged before";
  EXPECT_TRUE(admission.admits(true, 1'000, kHour));
  EXPECT_FALSE(admission.admits(true, 1'001, kHour)) << "nothing is saved";
  EXPECT_TRUE(admission.admits(true, 1'001, kHour + kHour / 4));
  EXPECT_FALSE(admission.admits(false, 1'001, kHour + kHour / 4));
  EXPECT_TRUE(admission.admits(false, 1'001, 20 * kHour));
  EXPECT_FALSE(admission.admits(false, 1'502, 20 * kHour)) << "more than an hour was saved";
  EXPECT_TRUE(Admission(0, 0, 0).admits(false, UINT64_MAX, 0)) << "there is no plan";
}

// ---- The end of the agent

TEST_F(TieredPoolsTest, AStopDuringTheRecoveryWaitsForTheDisks) {
  put("earlier", 1);
  evict("earlier");
  settle();
  pools_.reset();
  rig_.kill();
  open();
  ASSERT_TRUE(pools_->recovering());
  for (int i = 0; i < 20; ++i) put("key-" + std::to_string(i), 1);
  EXPECT_TRUE(pools_->write_pools());
  EXPECT_EQ(store().live_count(), 20u) << "no disk takes objects yet";
  int turns = 0;
  for (; turns < 100'000 && pools_->write_pools(); ++turns) turn();
  EXPECT_LT(turns, 100'000);
  EXPECT_EQ(pools_->written().objects, 20u);
  EXPECT_EQ(pools_->written().lost + pools_->written().left, 0u);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(on_disk("key-" + std::to_string(i))) << i;
}

TEST_F(TieredPoolsTest, AStopWritesObjectsWithAHardPinToo) {
  put("pinned", 1);
  put("other", 1);
  ASSERT_TRUE(store().set_pin("pinned", MC_PIN_HARD, 0));
  for (int i = 0; i < 100'000 && pools_->write_pools(); ++i) turn();
  EXPECT_TRUE(on_disk("pinned") && on_disk("other"));
  EXPECT_EQ(pools_->written().left, 0u);
}

TEST_F(TieredPoolsTest, AStopThatIsTakenBackLeavesNothingBehind) {
  put("key", 1);
  for (int i = 0; i < 100'000 && pools_->write_pools(); ++i) turn();
  EXPECT_FALSE(pools_->writes_pins()) << "no object has a hard pin";
  pools_->stop_writing();
  put("pinned", 1);
  ASSERT_TRUE(store().set_pin("pinned", MC_PIN_HARD, 0));
  EXPECT_EQ(pools_->written().objects, 0u);
  for (int i = 0; i < 100'000 && pools_->write_pools(); ++i) turn();
  EXPECT_TRUE(pools_->writes_pins());
  EXPECT_TRUE(on_disk("pinned"));
  EXPECT_EQ(pools_->written().objects, 1u);
}

TEST_F(TieredPoolsTest, AStopEndsWithoutADisk) {
  put("key", 1);
  rig_.disk().vanish();
  put("other", 1);
  evict("other");
  settle();
  int turns = 0;
  for (; turns < 100'000 && pools_->write_pools(); ++turns) turn();
  EXPECT_LT(turns, 100'000);
  EXPECT_EQ(pools_->written().left, 1u);
}

TEST_F(TieredPoolsTest, AHardPinAboveALoweredCapacityKeepsPutsOut) {
  for (int i = 0; i < 10; ++i) {
    put("key-" + std::to_string(i), 1);
    if (i >= 5) continue;
    ASSERT_TRUE(store().set_pin("key-" + std::to_string(i), MC_PIN_HARD, 0));
  }
  store().set_capacity(kObjectBytes);
  for (int i = 0; i < 1000 && store().live_count() > 5; ++i) turn();
  turn();
  EXPECT_EQ(store().live_count(), 5u);
  EXPECT_FALSE(store().make_room(kObjectBytes));
}

TEST_F(TieredPoolsTest, APutBesideALoweredCapacityEvictsLittle) {
  for (int i = 0; i < 60; ++i) put("key-" + std::to_string(i), 1);
  store().set_capacity(kObjectBytes);
  put("after", 1);
  EXPECT_GT(store().live_count(), 50u);
  for (int i = 0; i < 100'000 && store().live_count() > 1; ++i) turn();
  settle();
  EXPECT_EQ(store().live_bytes(), kObjectBytes);
  EXPECT_EQ(pools_->demotions().busy, 0u);
}

}  // namespace
}  // namespace mc::agent
